"""Filter of system calls for processes without a container: a seccomp program that refuses what no kernel needs.

Everything else is allowed, since compilers, torch and drivers need more calls than can be listed. The program is built
here; :mod:`kernel_matrix.inside.confine` installs it as the last step before the role's module starts.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class _Numbers(NamedTuple):
    """Numbers of a system call."""

    x86_64: int
    aarch64: int


REFUSED = {
    # Namespaces: in a user namespace of its own, a process may mount file systems.
    "unshare": _Numbers(272, 97),
    "setns": _Numbers(308, 268),
    # File systems
    "mount": _Numbers(165, 40),
    "umount2": _Numbers(166, 39),
    "pivot_root": _Numbers(155, 41),
    "chroot": _Numbers(161, 51),
    "open_tree": _Numbers(428, 428),
    "move_mount": _Numbers(429, 429),
    "fsopen": _Numbers(430, 430),
    "fsconfig": _Numbers(431, 431),
    "fsmount": _Numbers(432, 432),
    "fspick": _Numbers(433, 433),
    "mount_setattr": _Numbers(442, 442),
    "open_tree_attr": _Numbers(467, 467),
    "open_by_handle_at": _Numbers(304, 265),
    # State that stays in the kernel when all processes of a cell have ended
    "add_key": _Numbers(248, 217),
    "request_key": _Numbers(249, 218),
    "keyctl": _Numbers(250, 219),
    "shmget": _Numbers(29, 194),
    "semget": _Numbers(64, 190),
    "msgget": _Numbers(68, 186),
    "mq_open": _Numbers(240, 180),
    # Other processes
    "ptrace": _Numbers(101, 117),
    "process_vm_readv": _Numbers(310, 270),
    "process_vm_writev": _Numbers(311, 271),
    "kcmp": _Numbers(312, 272),
    "pidfd_getfd": _Numbers(438, 438),
    "process_madvise": _Numbers(440, 440),
    # Parts of the kernel in which many vulnerabilities were found
    "io_uring_setup": _Numbers(425, 425),
    "io_uring_enter": _Numbers(426, 426),
    "io_uring_register": _Numbers(427, 427),
    "bpf": _Numbers(321, 280),
    "userfaultfd": _Numbers(323, 282),
    "perf_event_open": _Numbers(298, 241),
    # The kernel itself
    "kexec_load": _Numbers(246, 104),
    "kexec_file_load": _Numbers(320, 294),
    "init_module": _Numbers(175, 105),
    "finit_module": _Numbers(313, 273),
    "delete_module": _Numbers(176, 106),
    # Memory that no count of a process's memory includes
    "memfd_secret": _Numbers(447, 447),
}
"""Calls that fail with EPERM."""

MEMORY_FILES = {"memfd_create": _Numbers(319, 279)}
"""Calls that fail with EPERM too for roles whose memory is counted by looking at their processes."""

SHARED_FILES = {
    "truncate": _Numbers(76, 45),
    "chmod": _Numbers(90, 53),
    "fchmodat": _Numbers(268, 53),
    "fchmodat2": _Numbers(452, 452),
    "chown": _Numbers(92, 54),
    "lchown": _Numbers(94, 54),
    "fchownat": _Numbers(260, 54),
    "setxattr": _Numbers(188, 5),
    "lsetxattr": _Numbers(189, 6),
    "setxattrat": _Numbers(463, 463),
    "removexattr": _Numbers(197, 14),
    "lremovexattr": _Numbers(198, 15),
    "removexattrat": _Numbers(466, 466),
}
"""Calls that fail with EPERM too for roles without a private tree: Landlock does not restrict them, or only later
versions do. Arm has fewer of them; the same number stands for several names."""

CHECKED = {"clone": _Numbers(56, 220), "clone3": _Numbers(435, 435), "socket": _Numbers(41, 198)}
"""Calls with rules of their own, see :func:`make_filter`."""

_NAMESPACE_FLAGS = 0x7E020000  # of clone: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET
_AF_UNIX = 1  # sockets between processes of this machine
_AF_VSOCK = 40  # sockets to the hypervisor, which a network namespace does not confine

_CONNECT = _Numbers(42, 203)
_DATAGRAMS = 2  # SOCK_DGRAM: a socket that needs no connection
_KIND_BITS = 0xF  # of a socket's type; the others are flags

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000  # set in the numbers of x86_64's second set of calls

# Instructions of the kernel's packet filter, and offsets in ``struct seccomp_data``.
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _JUMP_BITS, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCH, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


@dataclass(frozen=True, slots=True)
class _Instruction:
    """One instruction; ``hit`` and ``miss`` are the instructions to skip."""

    code: int
    value: int
    hit: int = 0
    miss: int = 0

    def packed(self) -> bytes:
        """Return its ``struct sock_filter``."""
        return struct.pack("=HBBI", self.code, self.hit, self.miss, self.value)


def make_filter(*, memory_files: bool = True, is_private: bool = True, machine: str = "") -> bytes:
    """Return the program for this machine's processor; empty for one whose calls are not listed here.

    ``clone`` fails with EPERM if it is to make a namespace, and ``socket`` if it is to reach the hypervisor. The flags
    of ``clone3`` lie in memory, which a filter cannot read: the call does not exist, and the C library uses ``clone``.

    Args:
        memory_files: Allow files that exist in memory only (``memfd_create``).
        is_private: The role has a network and files of its own. Else sockets are only those between processes of this
            machine that need a connection (:func:`make_connection_filter`), and no call may change a file's mode,
            owner, attributes or length by its path.
        machine: Name of the processor, as ``uname -m`` prints it; empty for this machine's.
    """
    machine = machine or os.uname().machine
    if machine not in _AUDIT_ARCH:
        return b""
    return b"".join(instruction.packed() for instruction in _program(machine, memory_files, is_private))


def make_connection_filter(machine: str = "") -> bytes:
    """Return a program that refuses to connect sockets; empty for a processor whose calls are not listed here.

    It is added to that of :func:`make_filter` once a role without a private tree has the connection that it needs.
    """
    machine = machine or os.uname().machine
    if machine not in _AUDIT_ARCH:
        return b""
    program = (
        _Instruction(_LOAD, _NUMBER),
        _Instruction(_JUMP_EQUAL, int(getattr(_CONNECT, machine)), miss=1),
        _Instruction(_RETURN, _ERRNO | errno.EPERM),
        _Instruction(_RETURN, _ALLOW),
    )
    return b"".join(instruction.packed() for instruction in program)


def _program(machine: str, memory_files: bool, is_private: bool) -> Iterator[_Instruction]:  # noqa: FBT001  # see above
    known = {**REFUSED, **MEMORY_FILES, **SHARED_FILES, **CHECKED}
    numbers = {name: int(getattr(both, machine)) for name, both in known.items()}
    missing, refused = _ERRNO | errno.ENOSYS, _ERRNO | errno.EPERM
    yield _Instruction(_LOAD, _ARCH)
    yield _Instruction(_JUMP_EQUAL, _AUDIT_ARCH[machine], hit=1)
    yield _Instruction(_RETURN, missing)  # 32-bit programs have other numbers
    yield _Instruction(_LOAD, _NUMBER)
    yield _Instruction(_JUMP_AT_LEAST, _X32_BIT, miss=1)
    yield _Instruction(_RETURN, missing)
    for name in (*REFUSED, *(() if memory_files else MEMORY_FILES), *(() if is_private else SHARED_FILES)):
        yield _Instruction(_JUMP_EQUAL, numbers[name], miss=1)
        yield _Instruction(_RETURN, refused)
    yield _Instruction(_JUMP_EQUAL, numbers["clone3"], miss=1)
    yield _Instruction(_RETURN, missing)
    refuse, allow = {"miss": 1}, {"hit": 1}  # what a match skips: the next instruction refuses
    family = (_JUMP_EQUAL, _AF_VSOCK, refuse) if is_private else (_JUMP_EQUAL, _AF_UNIX, allow)
    for name, (jump, value, match) in {"clone": (_JUMP_BITS, _NAMESPACE_FLAGS, refuse), "socket": family}.items():
        yield _Instruction(_JUMP_EQUAL, numbers[name], miss=3)
        yield _Instruction(_LOAD, _FIRST_ARGUMENT)
        yield _Instruction(jump, value, **match)
        yield _Instruction(_RETURN, refused)
        yield _Instruction(_LOAD, _NUMBER)
    if not is_private:
        yield _Instruction(_JUMP_EQUAL, numbers["socket"], miss=4)
        yield _Instruction(_LOAD, _SECOND_ARGUMENT)
        yield _Instruction(_AND, _KIND_BITS)
        yield _Instruction(_JUMP_EQUAL, _DATAGRAMS, miss=1)
        yield _Instruction(_RETURN, refused)
    yield _Instruction(_RETURN, _ALLOW)
