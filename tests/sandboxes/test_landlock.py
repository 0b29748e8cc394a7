"""The process sandbox without namespaces: Landlock and the filter of system calls take their place."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from kernel_matrix.inside import confine
from kernel_matrix.model.enums import Role
from kernel_matrix.sandboxes import PACKAGE_TARGET, Mount, RoleSpec
from kernel_matrix.sandboxes.process import Confinement, ProcessSandbox
from kernel_matrix.sandboxes.system_call_filter import CHECKED, SHARED_FILES, make_filter
from tests.sandboxes.levels import at_level
from tests.sandboxes.observe import answer

MakeSpec = Callable[..., RoleSpec]
LIMITS_ONLY = Confinement(confine.NONE, other_user=False)

pytestmark = [
    pytest.mark.skipif(confine.landlock_version() == 0, reason="this kernel has no Landlock"),
    pytest.mark.skipif(not make_filter(), reason="the system calls of this processor are not listed"),
]


@pytest.fixture
def sandbox() -> ProcessSandbox:
    return at_level(LIMITS_ONLY)


@pytest.fixture
def ask(sandbox: ProcessSandbox, spec: MakeSpec) -> Callable[..., Any]:
    """``ask("list_folder", "/")``: what the probe printed, or None if it failed."""

    def run(*args: str, **changes: object) -> Any:
        with sandbox.launch(spec(sandbox, *args, **changes)) as role:
            end = role.wait(30)
        assert end is not None
        return answer(end) if end.code == 0 else None

    return run


def test_files_of_the_host_cannot_be_read(ask: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    assert ask("list_folder", str(tmp_path)) is None
    assert ask("list_folder", str(Path(__file__).parents[2])) is None
    assert ask("list_folder", "/usr") == sorted(path.name for path in Path("/usr").iterdir())


def test_only_scratch_and_writable_mounts_can_be_written(
    ask: Callable[..., Any], sandbox: ProcessSandbox, spec: MakeSpec, tmp_path: Path
) -> None:
    (given, hidden) = (tmp_path / "given", tmp_path / "hidden")
    given.mkdir()
    hidden.mkdir()
    mounts = (*spec(sandbox, "hang").mounts, Mount(source=given, target="/given", writable=True))
    places = ("/tmp", "/given", str(hidden), "/dev/shm", "/var/tmp", "/probes", PACKAGE_TARGET)
    scratch, writable = ask("write_everywhere", *places, mounts=mounts)
    assert (Path(scratch).name, writable) == ("scratch", str(given))
    assert list(given.iterdir()) == [given / "written-by-a-candidate"]
    assert list(hidden.iterdir()) == []


@pytest.mark.parametrize(("role", "end"), [(Role.CANDIDATE, "EPERM"), (Role.BUILDER, "EPERM"), (Role.JUDGE, "done")])
def test_roles_connect_no_more_once_they_refuse(ask: Callable[..., Any], role: Role, end: str) -> None:
    with TemporaryDirectory(dir="/var/tmp") as folder, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as daemon:
        path = f"{folder}/daemon"  # not below /tmp, which stands for the scratch folder
        daemon.bind(path)
        daemon.listen()
        assert ask("connect_after_refusing", path, role=role) == ["done", end, end]


def test_processes_can_name_their_own_threads(ask: Callable[..., Any]) -> None:
    assert ask("name_threads") == ["done", "EACCES"]


@pytest.mark.parametrize("role", [Role.CANDIDATE, Role.JUDGE])
def test_sockets_reach_this_machine_only(ask: Callable[..., Any], role: Role) -> None:
    number = getattr(CHECKED["socket"], os.uname().machine)
    families = {socket.AF_INET: "EPERM", socket.AF_INET6: "EPERM", socket.AF_NETLINK: "EPERM", socket.AF_UNIX: "done"}
    for family, end in families.items():
        assert ask("make_calls", json.dumps({"socket": [number, family, 1, 0]}), role=role) == {"socket": end}


@pytest.mark.skipif(confine.landlock_version() < 6, reason="this Landlock does not know signals")
def test_processes_outside_get_no_signal(ask: Callable[..., Any]) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as other:
        number = {"x86_64": 62, "aarch64": 129}[os.uname().machine]
        found = ask("make_calls", json.dumps({"kill": [number, other.pid, int(signal.SIGKILL)]}))
        assert found == {"kill": "EPERM"}
        assert other.poll() is None
        other.kill()


def test_modes_and_owners_of_files_stay(ask: Callable[..., Any]) -> None:
    calls = {name: [getattr(both, os.uname().machine), -1, 0, 0, 0, 0] for name, both in SHARED_FILES.items()}
    assert ask("make_calls", json.dumps(calls)) == dict.fromkeys(SHARED_FILES, "EPERM")


def test_root_keeps_capabilities_for_files_alone(ask: Callable[..., Any]) -> None:
    kept = 0b110 if os.geteuid() == 0 else 0  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    assert ask("look_inward")["capabilities"] == [kept, kept, 0, 0]


def test_isolation_says_what_is_enforced(sandbox: ProcessSandbox, spec: MakeSpec) -> None:
    found = sandbox.isolation(spec(sandbox, "hang"))
    assert (found.network, found.filesystem, found.processes) == ("none", "read-only", "shared")
    assert found.capabilities == ("some" if os.geteuid() == 0 else "none")
    assert "other processes are visible" in found.notes


def test_isolation_without_landlock_says_why(spec: MakeSpec) -> None:
    old = Confinement(confine.NONE, other_user=False, unrestricted="this kernel has no Landlock")
    bare = at_level(old)
    found = bare.isolation(spec(bare, "hang"))
    assert (found.network, found.filesystem) == ("none", "shared")
    assert "the host's files are within reach, with the user's rights: this kernel has no Landlock" in found.notes
    assert not bare.describe(spec(bare, "hang"))["orders"]["landlock"]


def test_scratch_that_runs_nothing_is_noted(sandbox: ProcessSandbox, spec: MakeSpec, tmp_path: Path) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "noexec", "none", tmp_path], check=False)
    if mounted.returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tempfile.tempdir", str(tmp_path))
            notes = sandbox.isolation(spec(sandbox, "hang")).notes
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert any("noexec" in note for note in notes)
