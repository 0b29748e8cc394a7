"""What both sandboxes promise of every role, shown with real processes that misbehave."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_matrix.errors import SandboxError
from kernel_matrix.model.enums import Role
from kernel_matrix.sandboxes import (
    PACKAGE_TARGET,
    Mount,
    ProcessExit,
    ResourceLimits,
    RoleSpec,
    RunningProcess,
    Sandbox,
)
from kernel_matrix.sandboxes.process import ProcessSandbox
from kernel_matrix.sandboxes.role_environment import TAIL_BYTES
from tests.sandboxes.observe import answer, soon, survivors

Run = Callable[..., ProcessExit]
Started = Callable[..., AbstractContextManager[RunningProcess]]
MakeSpec = Callable[..., RoleSpec]
UID = 4242


@pytest.fixture(scope="session")
def confining(sandbox: Sandbox) -> Sandbox:
    """A sandbox that can do more than set limits here."""
    if isinstance(sandbox, ProcessSandbox) and sandbox.confinement.namespaces == "none":
        pytest.skip(f"this machine allows limits only: {sandbox.confinement.refused}")
    return sandbox


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that every user may write."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("probe", "code", "end_signal"),
    [
        (("exit_with", "0"), 0, None),
        (("exit_with", "3"), 3, None),
        (("exit_at_once",), 0, None),
        (("segfault",), None, signal.SIGSEGV),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_tells_how_it_ended(run: Run, probe: tuple[str, ...], code: int | None, end_signal: int | None) -> None:
    end = run(*probe)
    assert (end.role, end.code, end.signal) == (Role.CANDIDATE, code, end_signal)
    assert (end.killed, end.lost, end.oom_killed) == (False, False, False)


def test_pause_stops_all_processes_until_resumed(sandbox: Sandbox, spec: MakeSpec, shared: Path) -> None:
    plain = spec(sandbox, "count_up", "/counts")
    counting = replace(plain, mounts=(*plain.mounts, Mount(source=shared, target="/counts", writable=True)))

    def counts() -> dict[str, int]:
        return {path.name: path.stat().st_size for path in shared.iterdir()}

    with sandbox.launch(counting) as running:
        assert soon(lambda: len(counts()) == 3 and min(counts().values()) > 0)
        for _ in range(2):
            running.pause()
            before = counts()
            time.sleep(0.1)  # long enough for a hundred counts of each
            assert counts() == before
            running.resume()
            for name, count in before.items():
                assert soon(lambda name=name, count=count: counts()[name] > count)
        running.pause()
        running.kill()
        end = running.wait(10)
    assert end is not None
    assert end.killed
    running.pause()
    running.resume()


def test_keeps_what_was_said(run: Run) -> None:
    assert run("exit_with", "3").log_tail == "said before the end\n"


def test_a_crash_leaves_a_traceback(run: Run) -> None:
    assert "Segmentation fault" in run("segfault").log_tail


def test_hangs_until_killed(started: Started) -> None:
    with started("hang") as running:
        assert running.wait(0.2) is None
        running.kill()
        end = running.wait(20)
    assert end is not None
    assert end.killed
    assert (end.code, end.signal, end.lost) == (None, signal.SIGKILL, False)
    assert running.wait(0) == end, "the end can be asked for again"


def test_can_be_killed_by_another_thread_while_waited_for(started: Started) -> None:
    with started("hang") as running:
        killer = threading.Thread(target=running.kill)
        killer.start()
        end = running.wait(20)
        killer.join()
    assert end is not None
    assert end.killed


def test_leaving_ends_what_still_runs(started: Started) -> None:
    with contextlib.suppress(KeyboardInterrupt), started("hang", "token-leaving") as running:
        assert soon(lambda: bool(survivors("token-leaving")))
        raise KeyboardInterrupt
    assert survivors("token-leaving") == []
    end = running.wait(0)
    assert end is not None
    assert end.killed


def test_killing_what_has_ended_changes_nothing(started: Started) -> None:
    with started("exit_with", "3") as running:
        end = running.wait(20)
        running.kill()
        assert running.wait(0) == end
    assert end is not None
    assert not end.killed


@pytest.mark.alone  # without namespaces, room that other processes of this user give up is taken
def test_a_fork_bomb_is_bounded_and_leaves_nothing(started: Started) -> None:
    limits = ResourceLimits(memory_bytes=1 << 30, pids=20)
    with started("fork_bomb", "token-bomb", limits=limits) as running:
        assert soon(lambda: len(survivors("token-bomb")) > 5)
        assert running.wait(0.3) is None
        assert len(survivors("token-bomb")) <= 20
        running.kill()
        assert running.wait(20) is not None
    assert survivors("token-bomb") == []


def test_tasks_of_other_roles_do_not_count(sandbox: Sandbox, spec: MakeSpec, started: Started, shared: Path) -> None:
    limits = ResourceLimits(memory_bytes=1 << 30, pids=20)
    plain = spec(sandbox, "fork_when_told", "/shared", limits=limits)
    if any("counted per user" in note for note in sandbox.isolation(plain).notes):
        pytest.skip("this machine has no group that limits tasks")
    waiting = replace(plain, mounts=(*plain.mounts, Mount(source=shared, target="/shared", writable=True)))
    with sandbox.launch(waiting) as first, started("fork_bomb", "token-other", limits=limits):
        assert soon(lambda: len(survivors("token-other")) > 15)
        (shared / "go").touch()
        end = first.wait(20)
    assert end is not None
    assert end.log_tail == "all started\n"


def test_daemons_do_not_outlive_the_role(run: Run) -> None:
    assert "left" in run("leave_daemons", "token-daemons").log_tail
    assert survivors("token-daemons") == []


def test_running_out_of_memory_is_seen(run: Run) -> None:
    end = run("eat_memory", limits=ResourceLimits(memory_bytes=256 << 20))
    assert end.oom_killed, end
    assert end.code != 0


def test_a_flood_of_output_keeps_its_tail(run: Run) -> None:
    end = run("print_much", "200")
    assert end.code == 0
    assert end.log_tail.endswith("x\nthe end\n")
    assert len(end.log_tail) <= TAIL_BYTES


def test_the_scratch_folder_is_limited(confining: Sandbox, run: Run) -> None:
    found = answer(run("fill_disk"))
    assert found["error"] == "ENOSPC"
    assert found["written"] <= 16 << 20


def test_the_largest_file_is_limited(run: Run) -> None:
    limits = ResourceLimits(memory_bytes=1 << 30, file_bytes=1 << 20)
    assert answer(run("write_one_file", str(2 << 20), limits=limits)) == {"error": "EFBIG"}
    assert answer(run("write_one_file", str(1 << 19), limits=limits)) == {"error": None}


@pytest.fixture
def server() -> Iterator[int]:
    """Port of a server on the host's loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_there_is_no_network(confining: Sandbox, run: Run, server: int) -> None:
    assert answer(run("open_network", str(server))) == {"reached": False, "interfaces": ["lo"]}


def test_nothing_but_scratch_can_be_written(confining: Sandbox, run: Run) -> None:
    core = f"{PACKAGE_TARGET}/kernel_matrix/inside"
    everywhere = (
        "/",
        "/usr",
        "/usr/bin",
        "/etc",
        "/dev",
        "/proc",
        "/sys",
        "/opt",
        "/run",
        "/var/tmp",
        PACKAGE_TARGET,
        core,
        "/probes",
        "/tmp",
    )
    assert answer(run("write_everywhere", *everywhere)) == ["/tmp"]


def test_not_even_another_user_could_write(confining: Sandbox, run: Run) -> None:
    places = ["/", "/usr", PACKAGE_TARGET, f"{PACKAGE_TARGET}/kernel_matrix/inside", "/probes"]
    assert answer(run("mounted_read_only", *places, "/tmp")) == places


def test_its_own_source_survives_it(confining: Sandbox, run: Run, probes: Path) -> None:
    before = sorted(probes.iterdir())
    assert "tried" in run("delete_self").log_tail
    assert sorted(probes.iterdir()) == before


def test_sees_no_other_process(confining: Sandbox, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "s3cr3t-of-the-host")
    found = answer(run("look_around"))
    assert "s3cr3t-of-the-host" not in json.dumps(found)
    assert len(found["processes"]) <= 3, "init, what ends with the runner, and itself"
    assert not any("pytest" in line for line in found["processes"].values())


def test_is_given_nothing_of_the_host(confining: Sandbox, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST_SECRET", "s3cr3t-of-the-host")
    found = answer(run("look_inward"))
    assert "HOST_SECRET" not in found["environment"]
    assert found["cwd"] == PACKAGE_TARGET
    assert set(found["package"]) <= {"inside", "model", "platforms", "__init__.py"}


def test_has_its_own_user_and_no_rights(confining: Sandbox, run: Run) -> None:
    found = answer(run("look_inward", uid=UID))
    assert found["uids"] == [UID] * 3
    assert found["groups"] in ([], [UID])
    assert found["capabilities"] == [0, 0, 0, 0]
    assert found["no_new_privs"] == "1"


def test_its_caches_are_its_own(run: Run) -> None:
    environment = answer(run("look_inward"))["environment"]
    scratch = environment["TMPDIR"]
    for name in ("HOME", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH"):
        assert environment[name].startswith(scratch)


def test_isolation_says_what_was_shown_above(confining: Sandbox, spec: MakeSpec) -> None:
    isolation = confining.isolation(spec(confining, "hang"))
    assert (isolation.network, isolation.filesystem, isolation.processes) == ("none", "read-only", "private")
    assert isolation.capabilities == "none"
    assert {"memory_bytes", "pids", "tmpfs_bytes", "file_bytes", "open_files"} <= set(isolation.limits)
    gives_uids = os.geteuid() == 0 or not isinstance(confining, ProcessSandbox)  # a daemon runs as root
    assert isolation.user == ("own" if gives_uids else "shared")


def test_what_would_be_asked_can_be_printed(sandbox: Sandbox, spec: MakeSpec) -> None:
    described = sandbox.describe(spec(sandbox, "hang", "word"))
    assert json.loads(json.dumps(described)) == described
    assert '"act", "hang", "word"' in json.dumps(described)


def test_a_mount_that_is_not_there_is_a_sandbox_error(sandbox: Sandbox, spec: MakeSpec, tmp_path: Path) -> None:
    plain = spec(sandbox, "exit_with", "0")
    missing = type(plain.mounts[0])(source=tmp_path / "absent", target="/absent")
    if isinstance(sandbox, ProcessSandbox) and sandbox.confinement.namespaces == "none":
        pytest.skip("a role that sees the host's files has no mounts")
    with pytest.raises(SandboxError, match=r"absent|folder"), sandbox.launch(spec(sandbox, "hang", mounts=(missing,))):
        pytest.fail("started without its mount")


def test_a_writable_mount_can_be_written(confining: Sandbox, run: Run, spec: MakeSpec, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    plain = spec(confining, "exit_with")
    mounts = (*plain.mounts, type(plain.mounts[0])(source=shared, target="/shared", writable=True))
    assert answer(run("write_everywhere", "/shared", mounts=mounts)) == ["/shared"]
    assert (shared / "written-by-a-candidate").read_text() == "x"
