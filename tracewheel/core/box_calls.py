"""The system calls that a box may not make, as a seccomp filter: a small classic BPF program.

A box needs none of them, and most kernel bugs that led out of containers lie behind one. Numbers are those of Linux's tables
(`arch/x86/entry/syscalls/syscall_64.tbl`, `include/uapi/asm-generic/unistd.h`), actions those of seccomp(2).
"""

from __future__ import annotations

import errno
import platform
import struct

# Audit name and the numbers of system calls, by machine.
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32_BIT = 0x40000000  # a second set of numbers on x86_64

# Only a program that wants out makes these: it dies by SIGSYS, which is the finding `escape`.
KILLED = {
    "x86_64": {
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "pidfd_getfd": 438, "mount": 165,
        "umount2": 166, "pivot_root": 155, "move_mount": 429, "open_tree": 428, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
        "fspick": 433, "mount_setattr": 442, "setns": 308, "unshare": 272, "swapon": 167, "swapoff": 168, "reboot": 169,
        "init_module": 175, "finit_module": 313, "delete_module": 176, "create_module": 174, "kexec_load": 246,
        "kexec_file_load": 320, "open_by_handle_at": 304, "bpf": 321, "acct": 163, "settimeofday": 164, "clock_settime": 227,
        "iopl": 172, "ioperm": 173, "modify_ldt": 154, "uselib": 134, "quotactl": 179, "quotactl_fd": 443, "userfaultfd": 323,
        "perf_event_open": 298, "add_key": 248, "request_key": 249, "keyctl": 250,
    },
    "aarch64": {
        "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "pidfd_getfd": 438, "mount": 40,
        "umount2": 39, "pivot_root": 41, "move_mount": 429, "open_tree": 428, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
        "fspick": 433, "mount_setattr": 442, "setns": 268, "unshare": 97, "swapon": 224, "swapoff": 225, "reboot": 142,
        "init_module": 105, "finit_module": 273, "delete_module": 106, "kexec_load": 104, "kexec_file_load": 294,
        "open_by_handle_at": 265, "bpf": 280, "acct": 89, "settimeofday": 170, "clock_settime": 112, "quotactl": 60,
        "quotactl_fd": 443, "userfaultfd": 282, "perf_event_open": 241, "add_key": 217, "request_key": 218, "keyctl": 219,
    },
}  # fmt: skip
# Honest programs try these and do without. Memory behind memfd and System V objects belongs to no process and no disk, so no
# limit would count it; clone3 hides its flags from a filter, and libraries then use clone. A user or the machine has a fixed
# number of inotify instances, places for asynchronous I/O and message queues: a box could take those of all others.
ABSENT = {
    "x86_64": {
        "clone3": 435, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "memfd_create": 319,
        "memfd_secret": 447, "shmget": 29, "msgget": 68, "semget": 64, "personality": 135, "syslog": 103,
        "name_to_handle_at": 303, "fanotify_init": 300, "inotify_init": 253, "inotify_init1": 294, "io_setup": 206,
        "mq_open": 240,
    },
    "aarch64": {
        "clone3": 435, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "memfd_create": 279,
        "memfd_secret": 447, "shmget": 194, "msgget": 186, "semget": 190, "personality": 92, "syslog": 116,
        "name_to_handle_at": 264, "fanotify_init": 262, "inotify_init1": 26, "io_setup": 0, "mq_open": 180,
    },
}  # fmt: skip
CLONE = {"x86_64": 56, "aarch64": 220}
SOCKET = {"x86_64": 41, "aarch64": 198}
IOCTL = {"x86_64": 16, "aarch64": 29}
NAMESPACE_FLAGS = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
# Unix, IPv4, IPv6, netlink: those that a network namespace confines; it does not confine sockets to a virtual machine's host.
FAMILIES = (1, 2, 10, 16)
TERMINAL_REQUESTS = (0x5412, 0x541C)  # TIOCSTI and TIOCLINUX type into the terminal that started us

ALLOW, KILL, ERROR = 0x7FFF0000, 0x80000000, 0x00050000
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER_AT, ARCHITECTURE_AT, FIRST_ARGUMENT_AT, SECOND_ARGUMENT_AT = 0, 4, 16, 24


def seccomp_program(machine: str | None = None) -> bytes | None:
    """The filter as bytes for `bwrap --seccomp`; None for a machine whose numbers are not listed here.

    Args:
        machine: As `uname -m` says it; this machine by default.
    """
    machine = machine or platform.machine()
    if machine not in ARCHITECTURES:
        return None
    lines = [
        _line(LOAD, ARCHITECTURE_AT), _line(JUMP_EQUAL, ARCHITECTURES[machine], 1, 0), _line(RETURN, KILL),
        _line(LOAD, NUMBER_AT),
    ]  # fmt: skip
    if machine == "x86_64":
        lines += [_line(JUMP_AT_LEAST, X32_BIT, 0, 1), _line(RETURN, KILL)]
    for number in KILLED[machine].values():
        lines += [_line(JUMP_EQUAL, number, 0, 1), _line(RETURN, KILL)]
    for number in ABSENT[machine].values():
        lines += [_line(JUMP_EQUAL, number, 0, 1), _line(RETURN, ERROR | errno.ENOSYS)]
    # Arguments have 64 bits, of which the kernel takes 32 for each of these.
    lines += [
        _line(JUMP_EQUAL, CLONE[machine], 0, 4),
        _line(LOAD, FIRST_ARGUMENT_AT), _line(JUMP_ANY_BIT, NAMESPACE_FLAGS, 0, 1), _line(RETURN, KILL), _line(RETURN, ALLOW),
        _line(JUMP_EQUAL, SOCKET[machine], 0, 1 + len(FAMILIES) + 2),
        _line(LOAD, FIRST_ARGUMENT_AT),
        *(_line(JUMP_EQUAL, family, len(FAMILIES) - place, 0) for place, family in enumerate(FAMILIES)),
        _line(RETURN, ERROR | errno.EAFNOSUPPORT), _line(RETURN, ALLOW),
        _line(JUMP_EQUAL, IOCTL[machine], 0, 1 + len(TERMINAL_REQUESTS) + 2),
        _line(LOAD, SECOND_ARGUMENT_AT),
        *(_line(JUMP_EQUAL, request, len(TERMINAL_REQUESTS) - place, 0) for place, request in enumerate(TERMINAL_REQUESTS)),
        _line(RETURN, ALLOW), _line(RETURN, KILL),
        _line(RETURN, ALLOW),
    ]  # fmt: skip
    return b"".join(lines)


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
