"""Watching a box from outside while it runs: its processes, memory and disk, seen through its own `/proc` and folders.

The kernel's limit of memory (`RLIMIT_AS`) counts each process alone, and control groups need rights that few users have; so the
sum over the box is measured here, every few milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import struct
from collections import Counter
from dataclasses import dataclass, field

from tracewheel import InfrastructureError
from tracewheel_worlds.sandbox.base import WORKING_FOLDER, Finding, Limits

PAGE = os.sysconf("SC_PAGE_SIZE")
WRITABLE = (WORKING_FOLDER, "/tmp", "/dev/shm")
# An empty file that no honest program opens.
DECOY = "/etc/shadow"
# The environment of the box's first process, which holds nothing: `ps` opens it, too, but not without the other.
SECRETS, WITH_SECRETS = "/proc/1/environ", "/proc/1/status"
# What the kernel may hold behind one socket that nobody reads (`net.core.wmem_max`, counted twice by the kernel).
SOCKET_BYTES = 425984
IN_MODIFY, IN_CLOSE_WRITE, IN_CLOSE_NOWRITE, IN_OPEN = 0x2, 0x8, 0x10, 0x20
IN_MOVED_TO, IN_CREATE, IN_Q_OVERFLOW = 0x80, 0x100, 0x4000
WRITING = (IN_MODIFY, IN_CLOSE_WRITE, IN_CLOSE_NOWRITE, IN_OPEN, IN_MOVED_TO, IN_CREATE)
EVENT = struct.Struct("=iIII")  # watch, mask, cookie, bytes of the name that follows
EVENT_BYTES = 1 << 18
LIBRARY = ctypes.CDLL(None, use_errno=True)  # inotify, which Python has no module for
FEW_SOCKETS = 128
PROCESS_FILE_BYTES = 1 << 20
# Memory is filled at a few gigabytes a second: the nearer a box is to its limit, the sooner it is looked at again.
FILL_BYTES_PER_SECOND = 4 << 30
SOONEST, LATEST = 0.01, 0.1


class Blind(InfrastructureError):
    """What a box does cannot be seen, so a run without a finding would say nothing."""


@dataclass
class Watch:
    """Descriptors into a box, opened before its command begins; they outlive it, so what it used can be read at the end, too.

    Raises:
        OSError: the box is gone already, or this user may not look into it.
        Blind: the kernel does not tell which files are opened.
    """

    process: int
    limits: Limits
    counted: str = ""
    _folders: dict[str, int] = field(default_factory=dict, init=False)
    _processes: int = field(default=-1, init=False)
    _networks: list[int] = field(default_factory=list, init=False)
    _events: int = field(default=-1, init=False)
    _watched: dict[int, str] = field(default_factory=dict, init=False)
    _opened: set[str] = field(default_factory=set, init=False)
    _noted: Counter[tuple[str, int]] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        root = f"/proc/{self.process}/root"
        try:
            for folder in WRITABLE:
                self._folders[folder] = os.open(root + folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._processes = os.open(f"{root}/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            for name in ("snmp", "snmp6"):
                path = f"/proc/{self.process}/net/{name}"
                if name == "snmp" or os.path.exists(path):  # a kernel without IPv6
                    self._networks.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            self._be_told(root)
        except (OSError, Blind):
            self.close()
            raise

    def close(self) -> None:
        for descriptor in (*self._folders.values(), self._processes, *self._networks, self._events):
            if descriptor >= 0:
                os.close(descriptor)

    @property
    def folder(self) -> int:
        """Descriptor of the working folder."""
        return self._folders[WORKING_FOLDER]

    def look(self) -> tuple[Finding | None, float]:
        """What the box has too much of now, and in how many seconds to look again."""
        self._listen()
        tasks, resident, mapped, sockets = 0, 0, 0, self._sockets()
        processes = [name for name in os.listdir(self._processes) if name.isdigit()]
        for name in processes:
            line = self._read(f"{name}/stat")
            fields = line[line.rfind(b")") + 2 :].split()
            if len(fields) > 21:
                tasks += int(fields[17])
                mapped += int(fields[20])
                resident += int(fields[21]) * PAGE
        room = self.limits.memory_mb << 20
        kernel = sockets * SOCKET_BYTES if sockets > FEW_SOCKETS else 0
        if tasks >= self.limits.processes:
            return "processes", SOONEST
        if resident + kernel > room or mapped > 2 * room:
            resident = kernel + self._memory(processes)
            if resident > room:
                return "memory", SOONEST
        if self.full():
            return "disk", SOONEST
        return None, min(max((room - resident) / FILL_BYTES_PER_SECOND, SOONEST), LATEST)

    def full(self) -> bool:
        """Whether the box has written all that it may, in bytes or in files."""
        size, files = 0, 0
        for folder in self._folders.values():
            disk = os.fstatvfs(folder)
            size += (disk.f_blocks - disk.f_bfree) * disk.f_frsize
            files += disk.f_files - disk.f_ffree
        return size > self.limits.disk_mb << 20 or files > self.limits.files + len(self._folders)

    def tried_to_escape(self) -> bool:
        """Whether the box opened a decoy, or more files than the kernel can tell, or sent anything beyond its own loopback."""
        self._listen()
        if DECOY in self._opened or (SECRETS in self._opened and WITH_SECRETS not in self._opened):
            return True
        count = self._counters()
        return count["Ip:OutNoRoutes"] + count["Ip6OutNoRoutes"] > 0

    def writes(self) -> dict[str, int]:
        """How often each file of the counted folder was opened to be written, or came into it by another way."""
        self._listen()
        found = {}
        for name in {name for name, _ in self._noted}:
            count = {kind: self._noted[name, kind] for kind in WRITING}
            opened, closed = count[IN_OPEN] - count[IN_CLOSE_NOWRITE], count[IN_CLOSE_WRITE] + count[IN_MOVED_TO]
            found[name] = max(opened, closed, count[IN_CREATE])
        return found

    def called_nobody(self) -> bool:
        """Whether the box called a port of its loopback where nothing listens, and no server of its own was ever reached."""
        count = self._counters()
        refused = count["Tcp:AttemptFails"] + count["Udp:NoPorts"] + count["Udp6NoPorts"]
        return refused > 0 and not count["Tcp:PassiveOpens"] + count["Udp:InDatagrams"] + count["Udp6InDatagrams"]

    def _counters(self) -> Counter[str]:
        """The kernel's counters of the box's network, of IPv4 in rows of names and of values, of IPv6 one a line."""
        found: Counter[str] = Counter()
        for descriptor in self._networks:
            text = b""
            while part := os.pread(descriptor, PROCESS_FILE_BYTES, len(text)):
                text += part
            rows = [line.split() for line in text.decode().splitlines()]
            if rows and len(rows[0]) == 2:
                found.update({name: int(value) for name, value in rows})
                continue
            for names, values in zip(rows[::2], rows[1::2], strict=True):
                found.update({names[0] + name: int(value) for name, value in zip(names[1:], values[1:], strict=True)})
        return found

    def _be_told(self, root: str) -> None:
        """Have the kernel note from now on who opens a decoy, or writes into the counted folder."""
        self._events = _granted(LIBRARY.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        wanted = dict.fromkeys((DECOY, SECRETS, WITH_SECRETS), IN_OPEN)
        if self.counted:
            wanted[f"{WORKING_FOLDER}/{self.counted}"] = sum(WRITING)
        for path, mask in wanted.items():
            self._watched[_granted(LIBRARY.inotify_add_watch(self._events, (root + path).encode(), mask))] = path

    def _listen(self) -> None:
        """Take over what the kernel has noted. It merges equal neighbours, so all kinds of events are asked for."""
        with contextlib.suppress(BlockingIOError):
            while events := os.read(self._events, EVENT_BYTES):
                place = 0
                while place < len(events):
                    watch, mask, _, length = EVENT.unpack_from(events, place)
                    place += EVENT.size + length
                    name = os.fsdecode(events[place - length : place].rstrip(b"\0"))
                    if mask & IN_Q_OVERFLOW:
                        self._opened.add(DECOY)
                        self._noted["", IN_OPEN] += 2
                    elif name:
                        self._noted.update((name, kind) for kind in WRITING if mask & kind)
                    elif mask & IN_OPEN:
                        self._opened.add(self._watched.get(watch, ""))

    def _memory(self, processes: list[str]) -> int:
        """Bytes that processes hold: shared pages by their shares, and all shared memory without a file, mapped in or not."""
        used = 0
        shared: dict[bytes, int] = {}
        for name in processes:
            rollup = self._read(f"{name}/smaps_rollup")
            used += sum(int(size) << 10 for size in re.findall(rb"^Pss_(?:Anon|File):\s+(\d+) kB", rollup, re.MULTILINE))
            for line in self._read(f"{name}/maps", whole=True).splitlines():
                if b"/dev/zero (deleted)" in line:
                    columns = line.split()
                    first, last = columns[0].split(b"-")
                    shared[columns[4] + columns[0]] = int(last, 16) - int(first, 16)
        return used + sum(shared.values())

    def _sockets(self) -> int:
        used = re.match(rb"sockets: used (\d+)", self._read("1/net/sockstat"))
        return int(used[1]) if used else 0

    def _read(self, path: str, whole: bool = False) -> bytes:
        """A file of the box's `/proc`, its first page by default; empty where its process is gone."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._processes)
        except OSError:
            return b""
        try:
            content = os.read(descriptor, PAGE)
            while whole and len(content) < PROCESS_FILE_BYTES and (more := os.read(descriptor, PAGE)):
                content += more
            return content
        except OSError:
            return b""
        finally:
            os.close(descriptor)


def _granted(number: int) -> int:
    """What inotify answered.

    Raises:
        Blind: the kernel grants this user no more.
        OSError: the box is gone.
    """
    if number >= 0:
        return number
    code = ctypes.get_errno()
    if code in (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.ENOMEM):
        raise Blind(
            f"the box cannot be watched ({os.strerror(code)}): other programs of this user hold all that the kernel grants it; "
            "raise fs.inotify.max_user_instances, or fs.inotify.max_user_watches (sysctl)"
        )
    raise OSError(code, os.strerror(code))
