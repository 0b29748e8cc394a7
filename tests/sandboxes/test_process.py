"""What is the process sandbox's own: weaker confinement, translation of paths, its launcher, its leftovers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel_matrix.errors import SandboxError
from kernel_matrix.hosts.process_token import own_folder
from kernel_matrix.inside import confine
from kernel_matrix.model.enums import Role
from kernel_matrix.sandboxes import PACKAGE_TARGET, Mount, RoleSpec
from kernel_matrix.sandboxes.process import Confinement, ProcessSandbox
from kernel_matrix.sandboxes.supervised_process import SupervisedProcess, give_way
from tests.baddays.field import CONTROL_GROUPS
from tests.sandboxes.observe import answer, soon, survivors

MakeSpec = Callable[..., RoleSpec]
REPOSITORY = Path(__file__).parents[2] / "runner"


class WithoutNamespaces(ProcessSandbox):
    """A process sandbox on a kernel that refuses namespaces."""

    confinement = Confinement(
        confine.NONE, other_user=False, refused=("namespaces could not be had",), unfiltered="no", unrestricted="no"
    )


@pytest.fixture
def sandbox() -> ProcessSandbox:
    return ProcessSandbox()


def test_judge_is_confined_like_a_candidate(sandbox: ProcessSandbox, spec: MakeSpec, probes: Path) -> None:
    judge = spec(sandbox, "look_inward", role=Role.JUDGE, uid=65533)
    with sandbox.launch(judge) as running:
        end = running.wait(30)
    assert end is not None
    found = answer(end)
    level = sandbox.confinement
    own = level.other_user or level.namespaces == confine.USER
    assert found["uids"] == [65533 if own else os.geteuid()] * 3
    assert found["package"] == ["__init__.py", "inside", "model", "platforms"], "no module of the host side"
    assert sandbox.isolation(judge) == sandbox.isolation(spec(sandbox, "look_inward"))


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel has no priorities of sessions")
@pytest.mark.parametrize("priority", [0, 10])
def test_sessions_that_give_way_have_a_low_priority(priority: int, sandbox: ProcessSandbox, spec: MakeSpec) -> None:
    with sandbox.launch(spec(sandbox, "hang", role=Role.BUILDER, gives_way=priority > 0)) as running:
        leader = running.root_pid()
        assert Path(f"/proc/{leader}/autogroup").read_text().endswith(f"nice {priority}\n")


def test_busy_priorities_are_tried_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    answers = iter([BlockingIOError, BlockingIOError, None])

    def write(path: Path, text: str, **_options: str) -> None:
        assert (str(path), text) == ("/proc/17/autogroup", "10")
        if (problem := next(answers)) is not None:
            raise problem

    monkeypatch.setattr(Path, "write_text", write)
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    give_way(17)
    assert next(answers, "all used") == "all used"
    assert not caplog.records


def test_installed_package_is_hidden_from_candidates(
    sandbox: ProcessSandbox, spec: MakeSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sandbox.confinement.namespaces == confine.NONE:
        pytest.skip(f"this machine allows limits only: {sandbox.confinement.refused}")
    packages = tmp_path / "site-packages"
    (packages / "kernel_matrix" / "_problems").mkdir(parents=True)
    (packages / "other").mkdir()
    for folder in (packages, *packages.parents):
        if folder.owner() == Path.home().owner() and folder.is_relative_to(tempfile.gettempdir()):
            folder.chmod(0o755)
    monkeypatch.syspath_prepend(str(packages))
    for folder, seen in ((packages, ["kernel_matrix", "other"]), (packages / "kernel_matrix", [])):
        with sandbox.launch(spec(sandbox, "list_folder", str(folder))) as running:
            end = running.wait(30)
        assert end is not None
        assert answer(end) == seen


def test_paths_are_translated_where_there_are_no_mounts(spec: MakeSpec, tmp_path: Path) -> None:
    mounts = (Mount(source=tmp_path, target="/job"), Mount(source=tmp_path / "deeper", target="/job/inner"))
    env = {"PYTHONPATH": f"/job/a:{PACKAGE_TARGET}", "PLAIN": "/jobs"}
    args = ("/job/spec.json", "/job/inner", "/jobs", "--x=/job")
    role = spec(WithoutNamespaces(), *args, mounts=mounts, env=env)
    orders = WithoutNamespaces().describe(role)["orders"]
    assert orders["argv"][5:] == [f"{tmp_path}/spec.json", f"{tmp_path}/deeper", "/jobs", "--x=/job"]
    assert orders["env"]["PYTHONPATH"] == f"{tmp_path}/a:{orders['cwd']}"
    assert orders["env"]["PLAIN"] == "/jobs"
    sandbox = ProcessSandbox()
    if sandbox.confinement.namespaces != confine.NONE:
        assert sandbox.describe(role)["orders"]["argv"][5:] == list(args)


def test_without_namespaces_the_record_says_so(spec: MakeSpec) -> None:
    sandbox = WithoutNamespaces()
    isolation = sandbox.isolation(spec(sandbox, "hang"))
    assert (isolation.user, isolation.network, isolation.filesystem) == ("shared", "host", "shared")
    assert "tmpfs_bytes" not in isolation.limits
    assert "namespaces could not be had" in isolation.notes


def test_without_namespaces_nothing_is_left_either(spec: MakeSpec) -> None:
    sandbox = WithoutNamespaces()
    with sandbox.launch(spec(sandbox, "leave_daemons", "token-bare")) as running:
        end = running.wait(30)
    assert end is not None
    assert end.code == 0
    assert survivors("token-bare") == []


def test_a_launcher_that_vanishes_is_a_lost_process(spec: MakeSpec, sandbox: ProcessSandbox) -> None:
    with sandbox.launch(spec(sandbox, "hang", "token-lost")) as running:
        assert isinstance(running, SupervisedProcess)
        os.kill(running.root_pid(), signal.SIGKILL)
        end = running.wait(20)
    assert end is not None
    assert end.lost
    assert not end.killed
    assert soon(lambda: survivors("token-lost") == []), "what it started ends with it"


def test_orders_that_the_kernel_refuses_are_told(spec: MakeSpec, sandbox: ProcessSandbox) -> None:
    if sandbox.confinement.namespaces == confine.NONE:
        pytest.skip("a role that sees the host's files has no mounts")
    absent = spec(sandbox, "hang", mounts=(Mount(source=Path("/absent"), target="/x"),))
    with pytest.raises(SandboxError, match="No such file") as caught, sandbox.launch(absent):
        pytest.fail("started")
    assert caught.value.next_step


def test_no_private_folder_stays(sandbox: ProcessSandbox, spec: MakeSpec, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with sandbox.launch(spec(sandbox, "exit_with", "0")) as running:
        assert len(list(tmp_path.iterdir())) == 1
        running.wait(20)
    assert list(tmp_path.iterdir()) == []


def test_folders_of_dead_runners_are_swept(sandbox: ProcessSandbox, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = tmp_path / "kernel-matrix-process-1.1.00000000.dead"
    dead.mkdir()
    with own_folder("kernel-matrix-process-") as alive:
        told = [line for line in sandbox.sweep() if CONTROL_GROUPS not in line]  # those may be of other tests
        assert told == [f"folder {dead} of a runner that is gone"]
        assert list(tmp_path.iterdir()) == [alive]


RUNNER = """
import sys
sys.path.insert(0, {repo!r})
from pathlib import Path
from kernel_matrix.model.enums import Role
from kernel_matrix.sandboxes import ProcessLabels, Mount, RoleSpec, open_sandbox
from kernel_matrix.hosts.process_token import owner_token
labels = ProcessLabels(run_id={token!r}, cell_id="c" * 16, session=0, gpu_uuid="cpu", owner=owner_token())
spec = RoleSpec(
    role=Role({role!r}), labels=labels, image=None, module="act", args=({probe!r}, {token!r}),
    mounts=(Mount(source=Path({probes!r}), target="/probes"),), env={{"PYTHONPATH": "/probes"}},
)
sandbox = open_sandbox("process")
with sandbox.launch(spec) as running:
    print("up", flush=True)
    end = running.wait(60)
    print(end.log_tail, sandbox.isolation(spec).processes, sandbox.isolation(spec).user, sep="\\n")
"""


def program(folder: Path, probe: str, token: str, probes: Path, *, role: str = "candidate") -> Path:
    """A runner of its own that starts one probe."""
    file = folder / "a_runner.py"
    file.write_text(RUNNER.format(repo=str(REPOSITORY), token=token, role=role, probe=probe, probes=str(probes)))
    return file


STAGES = Path(tempfile.gettempdir())


@pytest.mark.parametrize("role", ["judge", "candidate"])
def test_roles_end_with_a_killed_runner(probes: Path, role: str, tmp_path: Path) -> None:
    token = f"token-orphan-{role}"
    file = program(tmp_path, "hang", token, probes, role=role)
    with subprocess.Popen((sys.executable, str(file)), stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == b"up\n"
        assert survivors(token)
        left = list(STAGES.glob(f"kernel-matrix-process-{runner.pid}.*"))
        assert left
        runner.kill()
    assert soon(lambda: survivors(token) == [])
    ProcessSandbox().sweep()
    assert not any(folder.exists() for folder in left)


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user may read; pytest's own ones are closed to others."""
    with tempfile.TemporaryDirectory(prefix="km-test-") as folder:
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="the other tests show this when not run as root")
def test_a_user_without_rights_gets_a_user_namespace(probes: Path, public: Path) -> None:
    system_python = "/usr/bin/python3"
    if shutil.which(system_python) is None or shutil.which("setpriv") is None:
        pytest.skip("needs a Python outside of root's home, and setpriv")
    runner = Path(shutil.copytree(REPOSITORY, public / "runner"))
    file = program(public, "look_inward", "token-user", shutil.copytree(probes, public / "probes"))
    file.write_text(file.read_text().replace(str(REPOSITORY), str(runner)))
    # A checkout may be closed to others, and its copy with it.
    subprocess.run(("chmod", "-R", "a+rX", str(public)), check=True)
    argv = ("setpriv", "--reuid=4244", "--regid=4244", "--clear-groups", system_python, "-B", str(file))
    done = subprocess.run(argv, check=False, capture_output=True, text=True, cwd="/")
    if "shared" in done.stdout.splitlines()[-2:-1]:
        pytest.skip("this kernel gives no user namespaces to plain users")
    assert done.returncode == 0, done.stderr
    _, said, _, processes, user = done.stdout.splitlines()
    found = json.loads(said)
    assert (processes, user) == ("private", "shared")
    assert found["uids"] == [65534] * 3
    assert found["capabilities"] == [0, 0, 0, 0]
