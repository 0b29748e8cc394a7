"""Whose a process is: real processes in real namespaces and control groups."""

import json
import os
import secrets
import subprocess
import sys
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.lease.gpu_processes import Ownership, OwnProcesses, named
from kernel_matrix.model.enums import Role
from kernel_matrix.sandboxes import Mount, ProcessLabels, ResourceLimits, RoleSpec, open_sandbox
from tests.lease.conftest import IN_A_NAMESPACE, children, end, needs_namespaces
from tests.sandboxes.observe import soon, survivors

CGROUPS = Path("/sys/fs/cgroup/pids") if Path("/sys/fs/cgroup/pids").is_dir() else Path("/sys/fs/cgroup")
NO_PROCESS = 4_194_304  # one more than the kernel ever gives

# Both print the PID of a grandchild, as the first line, when it runs: one whose parent lives, one whose parent ended.
GRANDCHILD = "sh -c 'sleep 600 >&- & echo $!; wait' & wait"
ADOPTED = """
import ctypes, subprocess, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
shell = subprocess.run(("sh", "-c", "sleep 600 >/dev/null & echo $!"), stdout=subprocess.PIPE, text=True)
print(shell.stdout, end="", flush=True)
time.sleep(600)
"""


@pytest.fixture
def tenants():
    with closing(OwnProcesses()) as made:
        yield made


@contextmanager
def group(name):
    """A control group called so, below a folder of our own."""
    top = CGROUPS / f"kernel-matrix-test-{secrets.token_hex(4)}"
    try:
        (top / name).mkdir(parents=True)
        (CGROUPS / "cgroup.procs").read_text()
    except OSError as error:
        pytest.skip(f"no control group can be made: {error}")
    try:
        yield top / name
    finally:
        for folder in (*sorted(top.rglob("*/"), reverse=True), top):
            if folder.is_dir():
                folder.rmdir()


def enter(folder, *pids):
    for pid in pids:
        (folder / "cgroup.procs").write_text(str(pid))


def test_nobody_is_ours_before_he_is_admitted(tenants, tenant):
    assert tenants.owner_of(tenant().pid) is Ownership.FOREIGN
    assert tenants.owner_of(1) is Ownership.FOREIGN
    assert tenants.owner_of(NO_PROCESS) is Ownership.GONE


def test_the_runner_itself_is_ours_but_not_all_that_it_starts(tenants, tenant):
    assert tenants.owner_of(os.getpid()) is Ownership.OURS
    assert tenants.owner_of(tenant().pid) is Ownership.FOREIGN  # it may be of another lane, on another device


def test_what_descends_from_an_admitted_process_is_ours(tenants, tenant):
    root = tenant("sh", "-c", GRANDCHILD)
    grandchild = int(root.stdout.readline())
    tenants.admit(root.pid)
    assert tenants.owner_of(root.pid) is Ownership.OURS
    assert tenants.owner_of(grandchild) is Ownership.OURS
    assert tenants.owner_of(tenant().pid) is Ownership.FOREIGN


def test_an_orphan_that_an_admitted_process_adopts_is_ours(tenants, tenant):
    root = tenant(sys.executable, "-c", ADOPTED)
    orphan = int(root.stdout.readline())
    tenants.admit(root.pid)
    assert tenants.owner_of(orphan) is Ownership.OURS


@needs_namespaces
def test_who_shares_the_namespace_of_an_admitted_process_is_ours(tenants, tenant):
    inside = tenant(*IN_A_NAMESPACE, "sh", "-c", "echo; sleep 600")
    inside.stdout.readline()
    (first,) = children(inside.pid)
    tenants.admit(first)
    # It enters from outside, and descends from nobody in there.
    guest = tenant("nsenter", "--pid", f"--target={first}", "sh", "-c", "echo; sleep 600")
    guest.stdout.readline()
    (entered,) = children(guest.pid)
    assert tenants.owner_of(entered) is Ownership.OURS
    assert tenants.owner_of(guest.pid) is Ownership.FOREIGN
    stranger = tenant(*IN_A_NAMESPACE, "sh", "-c", "echo; sleep 600")
    stranger.stdout.readline()
    assert tenants.owner_of(children(stranger.pid)[0]) is Ownership.FOREIGN


@needs_namespaces
def test_launcher_outside_its_namespace_admits_those_inside(tenants, tenant):
    launcher = tenant(*IN_A_NAMESPACE, "sh", "-c", "echo; sleep 600")
    launcher.stdout.readline()
    tenants.admit(launcher.pid)
    (first,) = children(launcher.pid)
    guest = tenant("nsenter", "--pid", f"--target={first}", "sh", "-c", "echo; sleep 600")
    guest.stdout.readline()
    assert tenants.owner_of(first) is Ownership.OURS
    assert tenants.owner_of(children(guest.pid)[0]) is Ownership.OURS


@needs_namespaces
def test_number_of_an_ended_namespace_is_not_reused(tenants, tenant):
    """The kernel gives a freed number to the next namespace: without the pin one of these would be taken for ours."""
    inside = tenant(*IN_A_NAMESPACE, "sh", "-c", "echo; sleep 600")
    inside.stdout.readline()
    tenants.admit(children(inside.pid)[0])
    end(inside)
    for _ in range(8):
        stranger = tenant(*IN_A_NAMESPACE, "sh", "-c", "echo; sleep 600")
        stranger.stdout.readline()
        assert tenants.owner_of(children(stranger.pid)[0]) is Ownership.FOREIGN
        end(stranger)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups")
@pytest.mark.parametrize("form", ["docker/{}", "docker-{}.scope", "kubepods/pod12/{}"])
def test_who_shares_the_container_of_an_admitted_process_is_ours(tenant, form):
    ours, other = (form.format(secrets.token_hex(32)) for _ in range(2))
    with group(ours) as folder, group(other) as others, closing(OwnProcesses()) as tenants:
        root, member, nested, stranger = (tenant() for _ in range(4))
        (folder / "below").mkdir()
        enter(folder, root.pid, member.pid)
        enter(folder / "below", nested.pid)
        enter(others, stranger.pid)
        tenants.admit(root.pid)
        standing = [tenants.owner_of(process.pid) for process in (member, nested, stranger)]
        for process in (root, member, nested, stranger):
            end(process)
    assert standing == [Ownership.OURS, Ownership.OURS, Ownership.FOREIGN]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups")
def test_outer_container_of_an_admitted_process_is_foreign(tenant):
    outer, inner = secrets.token_hex(32), secrets.token_hex(32)
    with group(f"docker/{outer}/docker/{inner}") as folder, closing(OwnProcesses()) as tenants:
        root, neighbour = tenant(), tenant()
        enter(folder, root.pid)
        enter(folder.parents[1], neighbour.pid)
        tenants.admit(root.pid)
        standing = tenants.owner_of(neighbour.pid)
        for process in (root, neighbour):
            end(process)
    assert standing is Ownership.FOREIGN


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups")
def test_the_runners_own_container_makes_nobody_ours(tenant):
    """A runner in a container, with the host's PIDs, shares it with others; its roles may be in containers in there."""
    outer, inner = secrets.token_hex(32), secrets.token_hex(32)
    with group(f"docker/{outer}/docker/{inner}") as folder:
        program = f"""
import os, sys
from pathlib import Path
Path({str(folder.parents[1])!r}, "cgroup.procs").write_text(str(os.getpid()))
from kernel_matrix.lease.gpu_processes import OwnProcesses
tenants = OwnProcesses()
for line in sys.stdin:
    word, pid = line.split()
    print(tenants.admit(int(pid)) if word == "admit" else tenants.owner_of(int(pid)).value, flush=True)
"""
        runner = tenant(sys.executable, "-c", program)
        root, neighbour, role = tenant(), tenant(), tenant()
        enter(folder.parents[1], root.pid, neighbour.pid)
        enter(folder, role.pid)

        def ask(word, pid):
            runner.stdin.write(f"{word} {pid}\n")
            runner.stdin.flush()
            return runner.stdout.readline().strip()

        ask("admit", root.pid)
        assert [ask("standing", neighbour.pid), ask("standing", role.pid)] == ["foreign", "foreign"]
        member = tenant()
        enter(folder, member.pid)
        ask("admit", role.pid)
        assert [ask("standing", member.pid), ask("standing", neighbour.pid)] == ["ours", "foreign"]
        for process in (runner, root, neighbour, role, member):
            end(process)


FAMILY = """
import os, time
parent = os.fork()
if parent == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
os.waitpid(parent, 0)
for _ in range(2):
    if os.fork() == 0:
        break
time.sleep(600)
"""


@pytest.mark.parametrize("role", [Role.JUDGE, Role.CANDIDATE])
@pytest.mark.parametrize("name", [pytest.param("docker", marks=pytest.mark.docker), "process"])
def test_whatever_a_role_starts_is_ours_on_every_sandbox(name, role, tenants, tmp_path, request):
    token = secrets.token_hex(8)
    size = 6 if name == "docker" else 4  # a container's first process and its guard carry the same words
    (tmp_path / "family.py").write_text(FAMILY)
    tmp_path.chmod(0o755)
    with _role(name, role, f"a-{token}", tmp_path, request) as ours, _role(name, role, f"b-{token}", tmp_path, request):
        tenants.admit(ours.root_pid())
        assert soon(lambda: len(survivors(token)) == 2 * size)
        standing = [{tenants.owner_of(int(pid)) for pid in survivors(f"{which}-{token}")} for which in "ab"]
    assert standing == [{Ownership.OURS}, {Ownership.FOREIGN}]


def _role(name, role, token, folder, request):
    """A running role: a process, two children, and a grandchild that has lost its parent (``family.py``)."""
    labels = ProcessLabels(run_id=f"test-{token}", cell_id="c" * 16, session=0, gpu_uuid="cpu", owner=owner_token())
    spec = RoleSpec(
        role=role,
        labels=labels,
        image=_cpu_image(request) if name == "docker" else None,
        module="family",
        args=(token,),
        mounts=(Mount(source=folder, target="/family"),),
        env={"PYTHONPATH": "/family"},
        limits=ResourceLimits(memory_bytes=1 << 30, pids=64, tmpfs_bytes=16 << 20),
    )
    return open_sandbox(name).launch(spec)


def _cpu_image(request):
    return json.loads(request.getfixturevalue("cpu_lock").read_text())["images"]["cpu"]["config_digest"]


def test_a_process_of_ours_that_has_just_ended_is_still_ours(tenants, tenant):
    root = tenant()
    tenants.admit(root.pid)
    assert tenants.owner_of(root.pid) is Ownership.OURS
    assert tenants.owner_of(end(root)) is Ownership.OURS


def test_an_admitted_process_that_ended_unseen_is_ours(tenants, tenant):
    root = tenant()
    tenants.admit(root.pid)
    assert tenants.owner_of(end(root)) is Ownership.OURS


def test_a_process_that_ended_before_anybody_knew_it_is_gone(tenants, tenant):
    assert tenants.owner_of(end(tenant())) is Ownership.GONE


def test_a_process_that_ends_while_it_is_asked_about_is_gone(tenants, tenant, monkeypatch):
    """Its namespace and its control group could no longer be read, and do not make it foreign."""
    root, child = tenant(), tenant()
    tenants.admit(root.pid)
    whose = tenants._belongs
    monkeypatch.setattr(tenants, "_belongs", lambda pid: whose(end(child)))
    assert tenants.owner_of(child.pid) is Ownership.GONE


def test_who_is_admitted_after_his_end_admits_nobody(tenants, tenant):
    tenants.admit(end(tenant()))
    assert tenants.owner_of(tenant().pid) is Ownership.FOREIGN


def test_a_pid_of_ours_that_another_process_has_now_is_foreign(tenants, tenant):
    root = tenant()
    tenants.admit(root.pid)
    assert tenants.owner_of(root.pid) is Ownership.OURS
    began = started(root.pid)
    _take(end(root), began, tenant)
    assert tenants.owner_of(root.pid) is Ownership.FOREIGN


def started(pid):
    return owner_token(pid).split(":")[1]


def _take(pid, not_at, tenant):
    """A process that has ``pid``, and began at another clock tick than ``not_at``."""
    last_pid = Path("/proc/sys/kernel/ns_last_pid")
    if os.geteuid() != 0 or not last_pid.exists():
        pytest.skip("only root can ask for a PID")
    for _ in range(1000):
        last_pid.write_text(str(pid - 1))
        successor = tenant()
        if successor.pid == pid and started(pid) != not_at:
            return successor
        end(successor)
    pytest.skip("others are quicker")


@pytest.mark.parametrize(("allowed", "standing"), [(True, Ownership.TOLERATED), (False, Ownership.FOREIGN)])
def test_an_mps_server_is_tolerated_where_that_is_allowed(tenant, tmp_path, allowed, standing):
    server = tmp_path / "nvidia-cuda-mps-server"
    server.symlink_to("/bin/sleep")
    process = tenant(str(server), "600")
    with closing(OwnProcesses(mps_allowed=allowed)) as tenants:
        assert tenants.owner_of(process.pid) is standing
        assert tenants.owner_of(tenant().pid) is Ownership.FOREIGN


def test_foreign_processes_keep_the_name_they_were_seen_with(tenants, tenant):
    process = tenant()
    assert tenants.owner_of(process.pid) is Ownership.FOREIGN
    end(process)
    assert named((process.pid,)) == f"{process.pid} (name not readable)"
    assert tenants.named((process.pid, NO_PROCESS)) == f"{process.pid} (sleep), {NO_PROCESS} (name not readable)"


def open_files():
    return list(Path("/proc/self/fd").iterdir())


@needs_namespaces
def test_nothing_stays_open(tenant):
    before = open_files()
    root = tenant(*IN_A_NAMESPACE, "sh", "-c", "echo; sleep 600")
    root.stdout.readline()
    held = open_files()
    with closing(OwnProcesses()) as tenants:
        tenants.admit(root.pid)
        tenants.admit(root.pid)
        assert len(open_files()) == len(held) + 1
    assert len(open_files()) == len(held) > len(before)


SEES = "from kernel_matrix.lease.gpu_processes import sees_driver_pids; print(sees_driver_pids())"


@needs_namespaces
@pytest.mark.parametrize("option", [("--mount-proc",), ()], ids=["its own /proc", "the host's /proc"])
def test_in_a_pid_namespace_the_drivers_pids_mean_nothing(option):
    argv = ("unshare", "--pid", "--fork", *option, sys.executable, "-c", SEES)
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == "False\n"


@needs_namespaces
def test_with_the_proc_of_another_namespace_pids_mean_nothing():
    """The runner is in the first namespace, but sees the PIDs of another: as in a container started half right."""
    script = 'unshare --pid --fork mount -t proc proc /proc; exec "$0" -c "$1"'
    argv = ("unshare", "--mount", "sh", "-c", script, sys.executable, SEES)
    assert subprocess.run(argv, check=True, capture_output=True, text=True).stdout == "False\n"
