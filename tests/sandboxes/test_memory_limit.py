"""The limit of the memory of all processes of a role together, at each level of confinement and by both means."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_matrix.inside import confine
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.sandboxes import Mount, ProcessExit, ResourceLimits, RoleSpec
from kernel_matrix.sandboxes.memory_groups import MemoryGroups, find_memory_groups
from kernel_matrix.sandboxes.process import ProcessSandbox
from tests.sandboxes.levels import LEVELS, at_level, public_probes
from tests.sandboxes.observe import answer

MakeSpec = Callable[..., RoleSpec]
Run = Callable[..., ProcessExit]

LIMITS = ResourceLimits(memory_bytes=128 << 20, pids=64, tmpfs_bytes=512 << 20, shm_bytes=512 << 20)
BEYOND, WITHIN = "200", "60"  # MiB


@pytest.fixture(params=["group", "watch"])
def means(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=LEVELS)
def sandbox(request: pytest.FixtureRequest, means: str) -> ProcessSandbox:
    """The sandbox at each level, with each means, that works here."""
    level = LEVELS[request.param]
    if means == "watch":
        return at_level(level)
    groups = find_memory_groups()
    if isinstance(groups, str):
        pytest.skip(f"no control groups here: {groups}")
    return at_level(replace(level, groups=groups))


@pytest.fixture
def run(sandbox: ProcessSandbox, spec: MakeSpec) -> Run:
    """``run("take_private", "200")``: how the probe ended by itself."""

    def to_the_end(*args: str, mounts: tuple[Mount, ...] = (), **changes: object) -> ProcessExit:
        with public_probes() as mount:
            role = spec(sandbox, *args, mounts=(mount, *mounts), **{"limits": LIMITS, **changes})
            with sandbox.launch(role) as running:
                end = running.wait(30)
        assert end is not None
        return end

    return to_the_end


@pytest.mark.parametrize("probe", ["take_private", "take_shared"])
def test_memory_beyond_limit_ends_role(run: Run, probe: str) -> None:
    end = run(probe, BEYOND)
    assert end.oom_killed, end
    assert not end.killed
    assert not end.lost


@pytest.mark.parametrize("probe", ["take_private", "take_forked", "take_shared"])
def test_memory_within_limit_is_left_alone(run: Run, probe: str) -> None:
    assert answer(run(probe, WITHIN)) == "held"


def test_files_in_memory_count(sandbox: ProcessSandbox, run: Run) -> None:
    if sandbox.confinement.namespaces == confine.NONE:
        pytest.skip("files lie on the host's file systems")
    end = run("take_files", BEYOND)
    assert end.oom_killed, end


def test_memory_files_count_or_cannot_be_made(run: Run, means: str) -> None:
    end = run("take_memory_files", BEYOND)
    if means == "group":
        assert end.oom_killed, end
    else:
        assert answer(end) == "EPERM"


def test_memory_files_count_beside_device(run: Run) -> None:
    device = get_platform("cpu").inventory().gpus[0]
    assert run("take_memory_files", BEYOND, gpu=device).oom_killed
    assert answer(run("take_memory_files", WITHIN, gpu=device)) == "held"


def test_lent_memory_does_not_count(run: Run, means: str) -> None:
    if means == "group":
        pytest.skip("a group is charged for what its processes touch first")
    with lender(int(BEYOND) << 20) as mount:
        assert answer(run("borrow", "/lender", mounts=(mount,))) == "held"


@contextmanager
def lender(size: int) -> Iterator[Mount]:
    """A server that sends each client a file in memory, as a judge does."""
    with tempfile.TemporaryDirectory(prefix="km-test-") as folder, socket.socket(socket.AF_UNIX) as server:
        Path(folder).chmod(0o755)
        server.bind(f"{folder}/lender.sock")
        Path(folder, "lender.sock").chmod(0o666)
        server.listen()
        descriptor = os.memfd_create("lent")
        os.ftruncate(descriptor, size)

        def serve() -> None:
            with server.accept()[0] as connection:
                socket.send_fds(connection, [b"x"], [descriptor])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Mount(source=Path(folder), target="/lender")
        thread.join(5)
        os.close(descriptor)


def test_isolation_names_what_limits_memory(sandbox: ProcessSandbox, spec: MakeSpec, means: str) -> None:
    assert sandbox.isolation(spec(sandbox, "hang")).memory_limit == means


def test_judge_makes_memory_files_which_count(run: Run) -> None:
    assert answer(run("take_memory_files", WITHIN, lends_memory=True)) == "held"
    assert run("take_memory_files", BEYOND, lends_memory=True).oom_killed


def test_no_group_stays_behind(sandbox: ProcessSandbox, run: Run) -> None:
    groups = sandbox.confinement.groups
    if groups is None:
        pytest.skip("there are no groups")
    run("exit_with", "0")
    assert not list(groups.parent.glob(f"kernel-matrix-role-{os.getpid()}.*"))


OWN_V2 = "0::/user.slice/run.scope\n"
MOUNT_V1 = "31 24 0:28 / {folder} rw,nosuid - cgroup cgroup rw,memory\n"
MOUNT_V2 = "32 24 0:29 / {folder} rw,nosuid - cgroup2 cgroup2 rw\n"


@pytest.mark.parametrize(
    ("host", "controllers", "tried"),
    [
        ((OWN_V2, MOUNT_V2), {"user.slice": "cpu memory"}, ["user.slice"]),
        ((OWN_V2, MOUNT_V2), {"user.slice": "cpu", "user.slice/run.scope": ""}, []),
        (("0::/\n", MOUNT_V2), {"": "memory"}, [""]),
        (("4:memory:/job\n0::/\n", MOUNT_V1 + MOUNT_V2), {}, ["job"]),
        (("4:cpu:/job\n", MOUNT_V1), {}, []),
        (("", ""), {}, []),
    ],
)
def test_groups_are_made_where_controller_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: tuple[str, str],
    controllers: dict[str, str],
    tried: list[str],
) -> None:
    own, mounts = host
    hierarchy = tmp_path / "cgroup"
    for name, text in controllers.items():
        (hierarchy / name).mkdir(parents=True, exist_ok=True)
        (hierarchy / name / "cgroup.subtree_control").write_text(text)
    process = tmp_path / "process"
    process.mkdir()
    (process / "cgroup").write_text(own)
    (process / "mountinfo").write_text(mounts.format(folder=hierarchy))
    seen = []

    def refuse(_process: Path, _kind: str, parent: Path) -> None:
        seen.append(parent)
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("kernel_matrix.sandboxes.memory_groups._try", refuse)
    reason = find_memory_groups(process)
    assert seen == [hierarchy / name for name in tried]
    assert reason == ("; ".join(f"{place}: Read-only file system" for place in seen) or NO_CONTROLLER)


NO_CONTROLLER = "no control group with the memory controller is mounted"


def test_group_that_cannot_be_joined_weakens_level(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    groups = MemoryGroups(tmp_path / "absent", {}, "memory.events")
    monkeypatch.setattr("kernel_matrix.sandboxes.process.find_memory_groups", lambda: groups)
    level = ProcessSandbox().confinement
    assert level.groups is None
    assert "cannot make a control group" in level.ungrouped
    assert not level.unfiltered


def test_groups_of_dead_runners_are_swept() -> None:
    groups = find_memory_groups()
    if isinstance(groups, str):
        pytest.skip(f"no control groups here: {groups}")
    dead = groups.parent / "kernel-matrix-role-1.1.00000000.dead"
    dead.mkdir()
    with groups.new_group(1 << 20, 10) as alive:
        assert any(str(dead) in line for line in ProcessSandbox().leftovers())
        assert any(str(dead) in line for line in ProcessSandbox().sweep())
        assert alive.folder.exists()
    assert not dead.exists()
    assert not alive.folder.exists()
