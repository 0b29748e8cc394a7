"""What a role of the process sandbox cannot ask of the kernel, at each level of confinement."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_matrix.inside import confine
from kernel_matrix.model.enums import Role
from kernel_matrix.sandboxes import RoleSpec
from kernel_matrix.sandboxes.process import Confinement, ProcessSandbox
from kernel_matrix.sandboxes.system_call_filter import (
    CHECKED,
    MEMORY_FILES,
    REFUSED,
    SHARED_FILES,
    make_connection_filter,
    make_filter,
)
from tests.sandboxes.levels import LEVELS, AtLevel, at_level, public_probes
from tests.sandboxes.observe import answer

MakeSpec = Callable[..., RoleSpec]
MACHINE = os.uname().machine
ALLOW, MISSING, NOT_PERMITTED = 0x7FFF0000, 0x50000 | errno.ENOSYS, 0x50000 | errno.EPERM


@pytest.fixture(params=LEVELS)
def sandbox(request: pytest.FixtureRequest) -> ProcessSandbox:
    """The sandbox at each level that works here."""
    return at_level(LEVELS[request.param])


@pytest.fixture
def ask(sandbox: ProcessSandbox, spec: MakeSpec) -> Callable[..., object]:
    """``ask("make_calls", "{}")``: what the probe printed."""

    def run(*args: str, **changes: object) -> object:
        with public_probes() as mount, sandbox.launch(spec(sandbox, *args, mounts=(mount,), **changes)) as role:
            end = role.wait(30)
        assert end is not None
        return answer(end)

    return run


def number(name: str) -> int:
    return int(getattr({**REFUSED, **MEMORY_FILES, **CHECKED}[name], MACHINE))


def test_refused_calls_fail_at_every_level(ask: Callable[..., object]) -> None:
    # None of the arguments means anything: a call that is let through ends with another error, or not at all.
    calls = {name: [number(name), -1, 0, 0, 0, 0] for name in REFUSED}
    assert ask("make_calls", json.dumps(calls)) == dict.fromkeys(REFUSED, "EPERM")


def test_refused_calls_fail_for_judge(ask: Callable[..., object]) -> None:
    assert ask("make_calls", json.dumps({"bpf": [number("bpf"), -1, 0, 0]}), role=Role.JUDGE) == {"bpf": "EPERM"}


def test_namespaces_cannot_be_made_by_clone(ask: Callable[..., object]) -> None:
    calls = {"clone": [number("clone"), 0x10000000 | 17, 0, 0, 0, 0], "clone3": [number("clone3"), 0, 0]}
    assert ask("make_calls", json.dumps(calls)) == {"clone": "EPERM", "clone3": "ENOSYS"}


def test_hypervisor_cannot_be_reached(ask: Callable[..., object]) -> None:
    assert ask("make_calls", json.dumps({"socket": [number("socket"), 40, 1, 0]})) == {"socket": "EPERM"}


def test_own_judge_cannot_be_traced(ask: Callable[..., object], spec: MakeSpec) -> None:
    judge_sandbox = ProcessSandbox()
    with judge_sandbox.launch(spec(judge_sandbox, "hang", role=Role.JUDGE)) as judge:
        attach = {"ptrace": [number("ptrace"), 16, judge.root_pid(), 0, 0]}
        assert ask("make_calls", json.dumps(attach)) == {"ptrace": "EPERM"}


def test_processes_and_threads_still_start(ask: Callable[..., object]) -> None:
    assert ask("use_processes_and_threads") == ["thread", 7, "8\n"]


def test_memory_cannot_be_mounted(ask: Callable[..., object]) -> None:
    assert ask("mount_memory") == {"written": 0, "error": "EPERM"}


def test_keyring_carries_nothing_to_next_role(ask: Callable[..., object]) -> None:
    assert ask("keep_secret", "answers of the last cell") == {"found": False, "error": "EPERM"}
    assert ask("recall_secret") == {"found": False, "error": "EPERM"}


def test_isolation_names_own_filter(sandbox: ProcessSandbox, spec: MakeSpec) -> None:
    for role in (Role.CANDIDATE, Role.JUDGE):
        assert sandbox.isolation(spec(sandbox, "hang", role=role)).seccomp == "own"


def test_isolation_without_filter_says_why(spec: MakeSpec) -> None:
    bare = AtLevel(Confinement(confine.NONE, other_user=False, unfiltered="the kernel has no seccomp"))
    found = bare.isolation(spec(bare, "hang"))
    assert found.seccomp == "none"
    assert "system calls are not filtered: the kernel has no seccomp" in found.notes
    assert bare.describe(spec(bare, "hang"))["orders"]["system_call_filter"] == ""


def test_kernel_without_filter_weakens_level(monkeypatch: pytest.MonkeyPatch) -> None:
    invalid = struct.pack("=HBBI", 0xFFFF, 0, 0, 0)
    monkeypatch.setattr("kernel_matrix.sandboxes.process.make_filter", lambda **_: invalid)
    found = ProcessSandbox()
    assert "Invalid argument" in found.confinement.unfiltered
    assert found.confinement.refused == ProcessSandbox().confinement.refused


def test_unknown_processor_gets_no_filter() -> None:
    assert make_filter(machine="riscv64") == b""


@pytest.mark.parametrize(
    ("machine", "header"),
    [("x86_64", "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "/usr/include/asm-generic/unistd.h")],
)
def test_numbers_are_those_of_kernel_headers(machine: str, header: str) -> None:
    if not Path(header).exists():
        pytest.skip("the kernel's headers are not installed")
    found = dict(re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", Path(header).read_text(), re.MULTILINE))
    listed = {**REFUSED, **MEMORY_FILES, **SHARED_FILES, **CHECKED}
    known = {name: getattr(both, machine) for name, both in listed.items()}
    # Headers may be older than a call.
    assert {name: int(found[name]) for name in known if name in found} == {n: known[n] for n in known if n in found}
    assert len(set(known) & set(found)) > len(known) * 0.8


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("memory_files", [True, False])
@pytest.mark.parametrize("is_private", [True, False])
def test_filter_decides_as_documented(machine: str, *, memory_files: bool, is_private: bool) -> None:
    program = make_filter(machine=machine, memory_files=memory_files, is_private=is_private)

    def decide(name: str, *arguments: int) -> int:
        both = {**REFUSED, **MEMORY_FILES, **SHARED_FILES, **CHECKED}[name]
        return run_filter(program, getattr(both, machine), ARCHES[machine], *arguments)

    assert {decide(name) for name in REFUSED} == {NOT_PERMITTED}
    assert decide("memfd_create") == (ALLOW if memory_files else NOT_PERMITTED)
    assert {decide(name) for name in SHARED_FILES} == {ALLOW if is_private else NOT_PERMITTED}
    assert decide("socket", socket.AF_INET) == (ALLOW if is_private else NOT_PERMITTED)
    for kind in (socket.SOCK_DGRAM, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC):
        assert decide("socket", socket.AF_UNIX, kind) == (ALLOW if is_private else NOT_PERMITTED)
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK):
        assert decide("socket", socket.AF_UNIX, kind) == ALLOW
    assert decide("clone3") == MISSING
    assert decide("clone", 0x00010F00) == decide("socket", 1) == ALLOW
    assert decide("clone", 0x10000011) == decide("socket", 40) == NOT_PERMITTED
    assert run_filter(program, 0, ARCHES[machine]) == ALLOW
    assert run_filter(program, 0, 0x40000003) == MISSING, "a call of a 32-bit program"
    assert run_filter(program, 0x40000000 | 165, ARCHES[machine]) == MISSING, "a call by its x32 number"


@pytest.mark.parametrize(("machine", "connect"), [("x86_64", 42), ("aarch64", 203)])
def test_connection_filter_refuses_connections_alone(machine: str, connect: int) -> None:
    program = make_connection_filter(machine)
    assert run_filter(program, connect, ARCHES[machine]) == NOT_PERMITTED
    assert {run_filter(program, other, ARCHES[machine]) for other in (0, connect - 1, connect + 1)} == {ALLOW}
    assert make_connection_filter("riscv64") == b""


ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def run_filter(program: bytes, call: int, arch: int, first: int = 0, second: int = 0) -> int:
    """The decision of a filter, by the rules of the kernel's interpreter."""
    data = {0: call, 4: arch, 16: first, 24: second}
    instructions = list(struct.iter_unpack("=HBBI", program))
    position = loaded = 0
    while True:
        code, hit, miss, value = instructions[position]
        position += 1
        if code == 0x20:
            loaded = data[value]
        elif code == 0x54:
            loaded &= value
        elif code == 0x06:
            return int(value)
        else:
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
            position += hit if holds else miss
