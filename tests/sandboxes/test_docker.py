"""What is the Docker engine's own: what it asks of the daemon, and the daemon's bad days."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import docker
import pytest
import requests
from docker.errors import APIError, NotFound

from kernel_matrix.container_daemon import connect
from kernel_matrix.errors import ImageError, SandboxError
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.inside.end_with_runner import RUNNER_FOLDER
from kernel_matrix.model.enums import Role
from kernel_matrix.platforms.versions import is_older
from kernel_matrix.sandboxes import ProcessExit, ResourceLimits, RoleSpec
from kernel_matrix.sandboxes.docker import DockerSandbox, _names_clash, exit_of
from kernel_matrix.sandboxes.docker_request import LABEL, OWNER_LABEL, DaemonInfo
from kernel_matrix.sandboxes.freezer import find_freezer
from tests.sandboxes.conftest import ENGINES
from tests.sandboxes.observe import answer, soon

MakeSpec = Callable[..., RoleSpec]
REPOSITORY = Path(__file__).parents[2] / "runner"
PROMISED = {
    "Privileged": False,
    "CapAdd": None,
    "CapDrop": ["ALL"],
    "SecurityOpt": ["no-new-privileges:true"],
    "NetworkMode": "none",
    "ReadonlyRootfs": True,
    "IpcMode": "private",
    "PidMode": "",
    "Init": None,
}
# The SDK leaves the socket of a failed connection to the garbage collector.
leaves_a_socket = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="session", params=ENGINES)
def sandbox(request: pytest.FixtureRequest) -> DockerSandbox:
    return DockerSandbox(request.getfixturevalue("podman") if request.param == "podman" else "")


@pytest.fixture
def fresh_sandbox(sandbox: DockerSandbox) -> Iterator[DockerSandbox]:
    """A sandbox that may be broken."""
    with breakable(DockerSandbox(sandbox.url)) as fresh:
        yield fresh


@contextmanager
def breakable(sandbox: DockerSandbox) -> Iterator[DockerSandbox]:
    yield sandbox
    if "_client" in vars(sandbox):
        sandbox._client.close()
    gc.collect()  # what a failed connection left must not surface in another test


@pytest.fixture(scope="session")
def daemon(sandbox: DockerSandbox) -> Iterator[docker.DockerClient]:
    with closing(connect(sandbox.url, timeout_s=60)) as client:
        yield client


def in_words_of_podman(asked: dict[str, Any], version: str) -> dict[str, Any]:
    """The settings that Podman reports in another form than they were requested in."""
    limits = [{**limit, "Name": f"RLIMIT_{limit['Name'].upper()}"} for limit in asked["Ulimits"]]
    return {
        "CapAdd": [],
        "CapDrop": ANY,  # each of its defaults by name; what is left is shown in test_confinement.py
        "SecurityOpt": ["no-new-privileges"],
        # Before version 5 a root user of Podman may let another container join it.
        "IpcMode": "shareable" if is_older(version, "5") else "private",
        "PidMode": "private",
        "Ulimits": limits,
        "LogConfig": {"Type": "json-file", "Config": None},  # the size is told elsewhere
        "Tmpfs": {place: f"{options},rprivate,tmpcopyup" for place, options in asked["Tmpfs"].items()},
        "Mounts": None,  # told beside the settings
    }


def exists(daemon: docker.DockerClient, name: str) -> bool:
    try:
        daemon.containers.get(name)
    except NotFound:
        return False
    return True


def own_folder_of(found: dict[str, Any]) -> str:
    """The folder of the runner's socket, which has another name for each container."""
    (source,) = [mount["Source"] for mount in found["Mounts"] if mount["Destination"] == RUNNER_FOLDER]
    return str(source)


def test_the_container_is_what_was_described(
    sandbox: DockerSandbox, spec: MakeSpec, daemon: docker.DockerClient
) -> None:
    asked = spec(sandbox, "hang")
    described = sandbox.describe(asked)["create"]
    with sandbox.launch(asked):
        found = daemon.api.inspect_container(asked.name)
    described["HostConfig"]["Mounts"][-1]["Source"] = own_folder_of(found)
    told = in_words_of_podman(described["HostConfig"], sandbox.status().version) if sandbox.url else {}
    expected = {**described["HostConfig"], **PROMISED, **told}
    for settings in (found["HostConfig"], expected):
        settings["Ulimits"].sort(key=itemgetter("Name"))  # Podman has an order of its own
    for key, value in expected.items():
        assert found["HostConfig"].get(key) == value, key
    mounts = {(mount["Source"], mount["Destination"]) for mount in found["Mounts"] if not mount["RW"]}
    assert mounts == {(mount["Source"], mount["Target"]) for mount in described["HostConfig"]["Mounts"]}
    assert found["Config"]["Labels"] == {
        f"{LABEL}.run": asked.labels.run_id,
        f"{LABEL}.cell": asked.labels.cell_id,
        f"{LABEL}.session": "0",
        f"{LABEL}.gpu": "cpu",
        OWNER_LABEL: owner_token(),
        f"{LABEL}.role": "candidate",
    }
    assert not exists(daemon, asked.name)


@pytest.mark.parametrize("sandbox", ENGINES[:1], indirect=True)  # root's Podman has defaults that it may not set
def test_limits_that_rootless_podman_drops_are_set_inside(
    run: Callable[..., ProcessExit], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DaemonInfo, "rootless", True)
    limits = ResourceLimits(memory_bytes=1 << 30, file_bytes=1 << 20)
    assert answer(run("write_one_file", str(2 << 20), limits=limits)) == {"error": "EFBIG"}


def test_builder_stays_on_the_cores_of_the_thread_that_starts_it(
    sandbox: DockerSandbox, spec: MakeSpec, daemon: docker.DockerClient
) -> None:
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("this machine has one core")
    asked = spec(sandbox, "hang", role=Role.BUILDER, gives_way=True)
    os.sched_setaffinity(0, {max(cores)})
    try:
        with sandbox.launch(asked):
            found = daemon.api.inspect_container(asked.name)
    finally:
        os.sched_setaffinity(0, cores)
    assert found["HostConfig"]["CpusetCpus"] == str(max(cores))


def test_a_missing_image_is_an_image_error(sandbox: DockerSandbox, spec: MakeSpec, daemon: docker.DockerClient) -> None:
    asked = spec(sandbox, "hang", image="kernel-matrix-test/absent@sha256:" + "0" * 64)
    with pytest.raises(ImageError, match="no image") as caught, sandbox.launch(asked):
        pytest.fail("started")
    assert "images pull" in caught.value.next_step
    assert not exists(daemon, asked.name)


def test_a_container_removed_by_somebody_else_is_lost(
    sandbox: DockerSandbox, spec: MakeSpec, daemon: docker.DockerClient
) -> None:
    asked = spec(sandbox, "hang")
    with sandbox.launch(asked) as running:
        daemon.api.remove_container(asked.name, force=True)
        end = running.wait(30)
        running.kill()
    assert end is not None
    assert end.lost
    assert not end.killed


@pytest.mark.parametrize("by_daemon", [True, False])
def test_is_paused_without_the_daemon_where_that_works(
    *,
    by_daemon: bool,
    sandbox: DockerSandbox,
    spec: MakeSpec,
    daemon: docker.DockerClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = spec(sandbox, "hang")
    with sandbox.launch(asked) as running:
        found = daemon.api.inspect_container(asked.name)
        freezer = find_freezer(found["State"]["Pid"], found["Id"])
        if freezer is None:
            pytest.skip("this user cannot write to the container's control group")
        if by_daemon:
            monkeypatch.setattr("kernel_matrix.sandboxes.docker.find_freezer", lambda *_: None)
        requests_to_pause = []
        pause = docker.APIClient.pause

        def count(client: docker.APIClient, name: str) -> None:
            requests_to_pause.append(name)
            pause(client, name)

        monkeypatch.setattr(docker.APIClient, "pause", count)
        monkeypatch.setattr("kernel_matrix.sandboxes.freezer._FREEZE_S", 60.0)  # a busy machine may take that long
        running.pause()
        assert bool(requests_to_pause) is by_daemon
        assert freezer.is_frozen in freezer.state.read_text().splitlines()
        running.resume()
        # The daemon itself may say for a moment that it is still paused.
        assert freezer.is_frozen not in freezer.state.read_text().splitlines()


@pytest.mark.parametrize(
    ("change", "too_early", "too_late"), [("pause", "pause", "unpause"), ("resume", "unpause", "pause")]
)
def test_waits_for_a_daemon_that_knows_its_state_late(
    *,
    change: str,
    too_early: str,
    too_late: str,
    sandbox: DockerSandbox,
    spec: MakeSpec,
    daemon: docker.DockerClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = spec(sandbox, "hang")
    monkeypatch.setattr("kernel_matrix.sandboxes.docker.find_freezer", lambda *_: None)
    with sandbox.launch(asked) as running:
        if change == "resume":
            running.pause()

        def pauses_s() -> Iterator[float]:
            yield 0.0
            getattr(daemon.api, too_late)(asked.name)
            yield 0.0

        getattr(daemon.api, too_early)(asked.name)
        monkeypatch.setattr("kernel_matrix.sandboxes.docker._CHANGE_PAUSES_S", pauses_s())
        getattr(running, change)()


def test_the_name_of_a_living_runner_is_respected(
    sandbox: DockerSandbox, spec: MakeSpec, daemon: docker.DockerClient
) -> None:
    asked = spec(sandbox, "hang")
    with sandbox.launch(asked):
        with pytest.raises(SandboxError, match="in use"), sandbox.launch(asked):
            pytest.fail("started twice")
        assert exists(daemon, asked.name), "the other one is left alone"


@pytest.mark.alone("docker")  # any other run would remove the container
def test_the_name_of_a_dead_runner_is_taken_over(
    sandbox: DockerSandbox, spec: MakeSpec, daemon: docker.DockerClient
) -> None:
    asked = spec(sandbox, "exit_with", "0")
    leftover = sandbox.describe(replace(asked, labels=replace(asked.labels, owner="1:0:another-boot")))["create"]
    leftover["HostConfig"]["Mounts"].pop()  # the folder of the runner's socket, which went with the runner
    daemon.api.create_container_from_config(leftover, asked.name)
    with sandbox.launch(asked) as running:
        end = running.wait(30)
    assert end is not None
    assert end.code == 0


def test_a_refused_start_leaves_nothing(sandbox: DockerSandbox, spec: MakeSpec, daemon: docker.DockerClient) -> None:
    asked = spec(sandbox, "hang")
    broken = replace(asked, mounts=(replace(asked.mounts[0], target="/proc/self/x"),))
    with pytest.raises(SandboxError, match="refused to start"), sandbox.launch(broken):
        pytest.fail("started")
    assert not exists(daemon, asked.name)


RUNNER = """
import sys
sys.path.insert(0, {repo!r})
from pathlib import Path
from kernel_matrix.model.enums import Role
from kernel_matrix.sandboxes import ProcessLabels, Mount, RoleSpec
from kernel_matrix.sandboxes.docker import DockerSandbox
from kernel_matrix.hosts.process_token import owner_token
labels = ProcessLabels(run_id={run_id!r}, cell_id="c" * 16, session=0, gpu_uuid="cpu", owner=owner_token())
spec = RoleSpec(role=Role.CANDIDATE, labels=labels, image={image!r}, module="act", args=({probe!r},),
                mounts=(Mount(source=Path({probes!r}), target="/probes"),), env={{"PYTHONPATH": "/probes"}})
with DockerSandbox(sys.argv[1]).launch(spec) as running:
    print("up", flush=True)
    sys.stdin.readline()
    running.pause()
    print("paused", flush=True)
    running.wait(60)
"""


@contextmanager
def another_runner(asked: RoleSpec, url: str, probes: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs the probe of ``asked`` in a container of its own, and pauses it when told to."""
    source = RUNNER.format(
        repo=str(REPOSITORY),
        run_id=asked.labels.run_id,
        image=asked.image,
        probe=asked.args[0],
        probes=str(probes),
    )
    argv = (sys.executable, "-c", source, url)
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == b"up\n"
        yield runner


@pytest.mark.alone("docker")  # any other run would remove the container
@pytest.mark.parametrize("probe", ["hang", "refuse_to_end"])
def test_a_container_ends_with_its_runner(
    probe: str, sandbox: DockerSandbox, spec: MakeSpec, daemon: docker.DockerClient, probes: Path
) -> None:
    asked = spec(sandbox, probe)
    with another_runner(asked, sandbox.url, probes) as runner:
        if probe == "refuse_to_end":
            assert soon(lambda: b"refuses" in daemon.containers.get(asked.name).logs())
        runner.kill()
        runner.wait()
    assert soon(lambda: daemon.containers.get(asked.name).status == "exited")
    swept = [line for line in sandbox.sweep() if str(runner.pid) in line or asked.labels.run_id in line]
    assert len(swept) == 2, "its container and the folder of its socket"
    assert not exists(daemon, asked.name)


def test_a_container_whose_runner_is_gone_does_not_start(
    sandbox: DockerSandbox, spec: MakeSpec, daemon: docker.DockerClient, tmp_path: Path
) -> None:
    tmp_path.chmod(0o755)
    request = sandbox.describe(spec(sandbox, "hang"))["create"]
    request["HostConfig"]["Mounts"][-1]["Source"] = str(tmp_path)
    name = f"km-test-{tmp_path.name}"
    daemon.api.create_container_from_config(request, name)
    try:
        daemon.api.start(name)
        assert daemon.api.wait(name, timeout=60)["StatusCode"] == 1
        assert b"the runner has ended: [Errno 2]" in daemon.api.logs(name)
    finally:
        daemon.api.remove_container(name, force=True)


@pytest.mark.alone("docker")  # any other run would remove the container
def test_containers_of_dead_runners_are_swept(
    sandbox: DockerSandbox, spec: MakeSpec, daemon: docker.DockerClient, probes: Path
) -> None:
    mine = spec(sandbox, "hang")
    run_id = mine.labels.run_id + "-dead"
    of_another = replace(mine, labels=replace(mine.labels, run_id=run_id))
    theirs = of_another.name
    with sandbox.launch(mine), another_runner(of_another, sandbox.url, probes) as runner:
        assert runner.stdin is not None
        assert runner.stdout is not None
        runner.stdin.write(b"\n")
        runner.stdin.flush()
        assert runner.stdout.readline() == b"paused\n"
        assert not any(run_id in line for line in sandbox.sweep()), "its runner lives"
        runner.kill()
        runner.wait()
        assert exists(daemon, theirs), "Docker keeps it"
        assert [line for line in sandbox.sweep() if run_id in line] == [
            f"container {theirs} of run {run_id}, whose runner is gone"
        ]
        assert not exists(daemon, theirs)
        assert exists(daemon, mine.name)


class Relay:
    """A socket that passes everything on to the real daemon until it is cut."""

    def __init__(self, path: Path, real: str) -> None:
        self.url = f"unix://{path}"
        self._path = path
        self._real = real
        self._open: list[socket.socket] = []
        self._is_cut = False
        self._changing = threading.Lock()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(path))
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """From now on there is no daemon."""
        self._path.unlink(missing_ok=True)
        with self._changing:
            self._is_cut = True
            for one in (self._listening, *self._open):
                _hang_up(one)

    def _accept(self) -> None:
        with _ignored():
            while True:
                near, _ = self._listening.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._real)
                with self._changing:
                    self._open += [near, far]
                    if self._is_cut:  # while this one was being accepted
                        _hang_up(near)
                        _hang_up(far)
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with _ignored():
            while chunk := source.recv(1 << 16):
                sink.sendall(chunk)
            sink.shutdown(socket.SHUT_WR)


def _hang_up(one: socket.socket) -> None:
    with _ignored():
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextmanager
def _ignored() -> Iterator[None]:
    try:
        yield
    except OSError:
        return


@pytest.fixture
def relay(sandbox: DockerSandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    real = sandbox.url or os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    if not real.startswith("unix://"):
        pytest.skip("the daemon is not behind a socket of this machine")
    relay = Relay(tmp_path / "relay.sock", real.removeprefix("unix://"))
    monkeypatch.setattr("kernel_matrix.sandboxes.docker._REMOVAL_PAUSES_S", (0.0, 0.1))
    yield relay
    relay.cut()


@pytest.fixture
def relayed_sandbox(relay: Relay) -> Iterator[DockerSandbox]:
    with breakable(DockerSandbox(relay.url)) as sandbox:
        yield sandbox


def test_dropped_limits_are_refused_before_the_start(
    fresh_sandbox: DockerSandbox, spec: MakeSpec, daemon: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fresh_sandbox._daemon.is_podman:
        pytest.skip("Docker refuses what it cannot set")
    asked = spec(fresh_sandbox, "hang")
    create = fresh_sandbox._client.create_container_from_config

    def create_without_limit(request: dict[str, Any], name: str) -> Any:
        return create({**request, "HostConfig": {**request["HostConfig"], "Memory": 0, "MemorySwap": 0}}, name)

    monkeypatch.setattr(fresh_sandbox._client, "create_container_from_config", create_without_limit)
    with pytest.raises(SandboxError, match=r"does not set .*memory_bytes"), fresh_sandbox.launch(asked):
        pytest.fail("started")
    assert not exists(daemon, asked.name)


@pytest.fixture
def hanging(sandbox: DockerSandbox, spec: MakeSpec) -> RoleSpec:
    return spec(sandbox, "hang")


@leaves_a_socket
def test_a_daemon_that_dies_mid_run_is_a_lost_container(
    relay: Relay,
    relayed_sandbox: DockerSandbox,
    hanging: RoleSpec,
    daemon: docker.DockerClient,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING), relayed_sandbox.launch(hanging) as running:
        relay.cut()
        end = running.wait(30)
    assert end == ProcessExit(role=Role.CANDIDATE, code=None, lost=True)
    assert "could not be removed" in caplog.text
    caplog.clear()  # its records hold the failed connection
    assert soon(lambda: daemon.containers.get(hanging.name).status == "exited"), "it ends without the daemon"
    daemon.api.remove_container(hanging.name)


@leaves_a_socket
def test_an_absent_daemon_is_said_not_raised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    with breakable(DockerSandbox()) as sandbox:
        status = sandbox.status()
        assert not status.available
        assert "no Docker daemon answers" in status.reason
        assert "process sandbox" in status.reason
        with pytest.raises(SandboxError, match="no Docker daemon answers"):
            sandbox.sweep()


def test_a_daemon_that_answers_says_what_it_can(sandbox: DockerSandbox) -> None:
    status = sandbox.status()
    assert status.available, status.reason
    assert re.match(r"\d+\.\d+", status.version)
    assert status.details["daemon"] == ("Podman" if sandbox.url else "Docker")
    assert {"storage_driver", "cgroup_version", "image_store", "seccomp", "gpu_access"} <= set(status.details)


def test_memlock_is_asked_for_once_only_where_it_is_refused(
    fresh_sandbox: DockerSandbox, spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = spec(fresh_sandbox, "exit_with", "0")
    start = fresh_sandbox._client.start
    refusals = []

    def refuse_once(container: str) -> Any:
        if not refusals:
            refusals.append(container)
            raise APIError("500", explanation="error setting rlimits: error setting rlimit type 8: not permitted")
        return start(container)

    monkeypatch.setattr(fresh_sandbox._client, "start", refuse_once)
    with fresh_sandbox.launch(asked) as running:
        end = running.wait(30)
    assert end is not None
    assert end.code == 0
    assert fresh_sandbox._unlimited_memlock is False


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"ExitCode": 0}, ProcessExit(role=Role.JUDGE, code=0)),
        ({"ExitCode": 127}, ProcessExit(role=Role.JUDGE, code=127)),
        ({"ExitCode": 139}, ProcessExit(role=Role.JUDGE, code=None, signal=signal.SIGSEGV)),
        ({"ExitCode": 255}, ProcessExit(role=Role.JUDGE, code=255)),
        ({"ExitCode": 137, "OOMKilled": True}, ProcessExit(role=Role.JUDGE, code=None, signal=9, oom_killed=True)),
        ({"ExitCode": 137, "Status": "removing"}, ProcessExit(role=Role.JUDGE, code=None, lost=True)),
    ],
)
def test_exit_codes_above_128_are_signals(state: dict[str, Any], expected: ProcessExit) -> None:
    assert exit_of(Role.JUDGE, state, "", killed=False) == expected


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ('could not select device driver "" with capabilities: [[gpu]]', "nvidia-ctk runtime configure"),
        ('could not select device driver "cdi" with capabilities: []', "features.cdi"),
        ("CDI device injection failed: unresolvable CDI devices", "cdi generate"),
        ("setting up CDI devices: unresolvable CDI devices", "cdi generate"),
        ("something new", "daemon's log"),
    ],
)
def test_refusals_say_what_to_do(
    fresh_sandbox: DockerSandbox, spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, said: str, advice: str
) -> None:
    def refuse(_container: str) -> None:
        raise APIError("500", explanation=said)

    monkeypatch.setattr(fresh_sandbox._client, "start", refuse)
    asked = spec(fresh_sandbox, "hang")
    with pytest.raises(SandboxError, match=re.escape(said)) as caught, fresh_sandbox.launch(asked):
        pytest.fail("started")
    assert advice in caught.value.next_step


@pytest.mark.parametrize(
    ("status", "words", "clash"),
    [
        (409, "Conflict", True),
        (500, 'creating container storage: the container name "km-1" is already in use by 4e1f', True),
        (500, "no space left on device", False),
    ],
)
def test_a_name_in_use_is_known_by_status_or_words(status: int, words: str, *, clash: bool) -> None:
    answer = requests.Response()
    answer.status_code = status
    assert _names_clash(APIError("refused", answer, words)) is clash
