"""Watching a box from outside while it runs: its processes, memory and disk, seen through its own `/proc` and folders.

The kernel's limit of memory (`RLIMIT_AS`) counts each process alone, and control groups need rights that few users have; so the
sum over the box is measured here, every few milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from tracewheel.sandbox.base import WORKING_FOLDER, Finding, Limits

PAGE = os.sysconf("SC_PAGE_SIZE")
WRITABLE = (WORKING_FOLDER, "/tmp", "/dev/shm")
# An empty file that no honest program opens.
DECOY = "/etc/shadow"
# The environment of the box's first process, which holds nothing: `ps` opens it, too, but not without the other.
SECRETS, WITH_SECRETS = "/proc/1/environ", "/proc/1/status"
# What the kernel may hold behind one socket that nobody reads (`net.core.wmem_max`, counted twice by the kernel).
SOCKET_BYTES = 425984
IN_OPEN = 0x20
EVENT_BYTES = 1 << 18  # all that the kernel holds back
LIBRARY = ctypes.CDLL(None)  # inotify, which Python has no module for
FEW_SOCKETS = 128
PROCESS_FILE_BYTES = 1 << 20
# Memory is filled at a few gigabytes a second: the nearer a box is to its limit, the sooner it is looked at again.
FILL_BYTES_PER_SECOND = 4 << 30
SOONEST, LATEST = 0.01, 0.1


@dataclass
class Watch:
    """Descriptors into a box, opened before its command begins; they outlive it, so what it used can be read at the end, too.

    Raises:
        OSError: the box is gone already, or this user may not look into it.
    """

    process: int
    limits: Limits
    _folders: dict[str, int] = field(default_factory=dict, init=False)
    _processes: int = field(default=-1, init=False)
    _network: int = field(default=-1, init=False)
    _decoy: int = field(default=-1, init=False)
    _decoys: dict[int, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        root = f"/proc/{self.process}/root"
        try:
            for folder in WRITABLE:
                self._folders[folder] = os.open(root + folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._processes = os.open(f"{root}/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._network = os.open(f"/proc/{self.process}/net/snmp", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self.close()
            raise
        self._decoy, self._decoys = _opened(root, (DECOY, SECRETS, WITH_SECRETS))

    def close(self) -> None:
        for descriptor in (*self._folders.values(), self._processes, self._network, self._decoy):
            if descriptor >= 0:
                os.close(descriptor)

    @property
    def folder(self) -> int:
        """Descriptor of the working folder."""
        return self._folders[WORKING_FOLDER]

    def look(self) -> tuple[Finding | None, float]:
        """What the box has too much of now, and in how many seconds to look again."""
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
        """Whether the box opened a decoy, or sent anything to an address beyond its own loopback."""
        with contextlib.suppress(OSError):
            # An event without a name has 16 bytes; the kernel adds one of its own when the box's disk is gone.
            events = os.read(self._decoy, EVENT_BYTES) if self._decoy >= 0 else b""
            opened = {self._decoys.get(watch) for watch, mask, _, _ in struct.iter_unpack("=iIII", events) if mask & IN_OPEN}
            if DECOY in opened or (SECRETS in opened and WITH_SECRETS not in opened):
                return True
        return self._counters().get("Ip:OutNoRoutes", 0) > 0

    def called_nobody(self) -> bool:
        """Whether the box called a port of its loopback where nothing listens, and no server of its own was ever reached."""
        count = self._counters()
        refused = count.get("Tcp:AttemptFails", 0) + count.get("Udp:NoPorts", 0)
        return refused > 0 and not count.get("Tcp:PassiveOpens", 0) and not count.get("Udp:InDatagrams", 0)

    def _counters(self) -> dict[str, int]:
        """The kernel's counters of the box's network; none where they cannot be read."""
        found: dict[str, int] = {}
        with contextlib.suppress(OSError):
            rows = [line.split() for line in os.pread(self._network, PAGE, 0).decode().splitlines()]
            for names, values in zip(rows[::2], rows[1::2], strict=False):
                found |= {names[0] + name: int(value) for name, value in zip(names[1:], values[1:], strict=False)}
        return found

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


def _opened(root: str, paths: Sequence[str]) -> tuple[int, dict[int, str]]:
    """Descriptor that tells which of the files are opened from now on; negative where the kernel grants no more of them."""
    descriptor = int(LIBRARY.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    if descriptor < 0:
        return -1, {}
    return descriptor, {LIBRARY.inotify_add_watch(descriptor, (root + path).encode(), IN_OPEN): path for path in paths}
