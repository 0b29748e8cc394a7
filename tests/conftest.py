"""What tests may need of the machine: each marker either holds, or the test is skipped with the reason in words."""

from __future__ import annotations

import fcntl
import functools
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kernel_matrix.environments.unpacked_images import FOLDER_VARIABLE
from kernel_matrix.platforms.registry import get_platform

# Threads of torch that wait by turning in circles take the cores from tests that run beside this one.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is imported
sys.path.insert(0, str(Path(__file__).parent))  # for tests/sim: pytest's importlib mode adds no folder by itself
from sim.amd_smi import SimulatedAmdDriver, compile_amd_library
from sim.board import Board, amd_board, nvidia_board
from sim.nvml import SimulatedDriver, compile_library

if TYPE_CHECKING:
    from tests.attempt.stage import PlaySandbox
    from tests.baddays.field import Field
    from tests.baddays.gpu_field import GpuField
    from tests.hosts.doctor.clinic import Clinic

ROOT = Path(__file__).resolve().parents[1]
REQUIRE_DOCKER = "KERNEL_MATRIX_REQUIRE_DOCKER"
REQUIRED = {"docker": REQUIRE_DOCKER, "podman": "KERNEL_MATRIX_REQUIRE_PODMAN"}
"""Marker → variable that makes its absence a failure."""
WAITING = {"baddays", "cheats", "docs", "executors"}
"""Folders whose tests mostly wait for daemons and other processes."""
TURNS = "KERNEL_MATRIX_TEST_TURNS"
"""Variable with the folder of locks that the processes of one test run share."""

# What is started from here must meet signals as it would in a terminal, also where these tests run in the background.
for _signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(_signum) is signal.SIG_IGN:
        signal.signal(_signum, lambda *_: None)


@functools.cache
def _docker_lacks() -> str:
    """Why no Docker daemon can be used, or nothing."""
    # In a process of its own: a client whose daemon is absent leaves an open socket behind, and warnings are errors.
    program = "import docker; docker.from_env(timeout=10).ping()"
    asked = subprocess.run((sys.executable, "-W", "ignore", "-c", program), check=False, capture_output=True, text=True)
    last = (asked.stderr.strip().splitlines() or ["it ended without a word"])[-1]
    return f"no Docker daemon answers: {last}" if asked.returncode else ""


@functools.cache
def _podman_lacks() -> str:
    if os.geteuid() != 0:
        return "these tests start a service of Podman as root"
    missing = [program for program in ("podman", "conmon") if shutil.which(program) is None]
    return f"{', '.join(missing)} not installed" if missing else ""


@functools.cache
def _torch_lacks() -> str:
    return "" if importlib.util.find_spec("torch") else "torch is not installed (pip install -e '.[local]')"


@functools.cache
def _gpu_lacks() -> str:
    found = get_platform("cuda").inventory()
    return "" if found.gpus else f"no NVIDIA GPU: {found.reason}"


_NEEDS: dict[str, Callable[[], str]] = {
    "docker": _docker_lacks,
    "podman": _podman_lacks,
    "torch": _torch_lacks,
    "gpu": _gpu_lacks,
}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this machine cannot run; where Docker or Podman is required, its absence is a failure."""
    for marker, lacks in _NEEDS.items():
        reason = lacks() if item.get_closest_marker(marker) else ""
        required = REQUIRED.get(marker, "")
        if reason and os.environ.get(required) == "1":
            pytest.fail(f"{required}=1, but {reason}", pytrace=False)
        if reason:
            pytest.skip(reason)


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder of locks, in the process that starts the others."""
    if TURNS not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="km-turns-")
        os.environ[TURNS] = folder.name
        os.environ[FOLDER_VARIABLE] = f"{folder.name}/unpacked"  # not the images that this user has
        config.add_cleanup(lambda: (os.environ.pop(TURNS), folder.cleanup()))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mix the files that wait with those that compute, where several workers share the cores."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _place(item.path.relative_to(ROOT / "tests")))


def _place(file: Path) -> float:
    """Return a number from 0 to 1 that scatters files; those that wait are not among the last, as they take longest."""
    place = zlib.crc32(str(file).encode()) / 2**32
    return place * 0.6 if file.parts[0] in WAITING else place


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Wait, before the test's time begins, until nothing runs beside it that it, or the other, cannot bear."""
    alone = {str(name) for marker in item.iter_markers("alone") for name in marker.args or ("machine",)}
    shared = {"machine", *(("docker",) if item.get_closest_marker("docker") else ())}
    with ExitStack() as stack:
        for name in sorted(alone | shared):
            stack.enter_context(_turn(Path(os.environ[TURNS], name), alone=name in alone))
        return (yield)


@contextmanager
def _turn(path: Path, *, alone: bool) -> Iterator[None]:
    """Share a lock with all tests, or have it alone.

    One that waits to be alone holds the queue: tests that came later wait behind it.
    """
    with path.open("a") as lock:
        with path.with_suffix(".queue").open("a") as queue:
            fcntl.flock(queue, fcntl.LOCK_EX)
            fcntl.flock(lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@pytest.fixture(scope="session")
def simulated_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated ``libnvidia-ml.so.1``, compiled once."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to compile the simulated driver with")
    return compile_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(simulated_library: Path, tmp_path: Path) -> SimulatedDriver:
    """A simulated driver with a world of its own."""
    return SimulatedDriver(simulated_library, tmp_path / "world")


@pytest.fixture(scope="session")
def simulated_amd_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated ``libamd_smi.so``, compiled once."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to compile the simulated driver with")
    return compile_amd_library(tmp_path_factory.mktemp("amd_smi"))


@pytest.fixture
def amd_driver(simulated_amd_library: Path, tmp_path: Path) -> SimulatedAmdDriver:
    """A simulated AMD driver with a world of its own."""
    return SimulatedAmdDriver(simulated_amd_library, tmp_path / "amd-world")


_BOARDS = {"nvidia": (nvidia_board, "simulated_library"), "amd": (amd_board, "simulated_amd_library")}


@pytest.fixture(params=_BOARDS)
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Board:
    """A simulated GPU of each vendor in turn."""
    make, library = _BOARDS[request.param]
    return make(request.getfixturevalue(library), tmp_path)


@pytest.fixture
def nvidia(simulated_library: Path, tmp_path: Path) -> Board:
    """A simulated NVIDIA GPU, for what only these have."""
    return nvidia_board(simulated_library, tmp_path)


@pytest.fixture(scope="session")
def cpu_lock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lock whose CPU image the daemon has; where it has not, the image is built first (minutes)."""
    from kernel_matrix.errors import ImageError  # noqa: PLC0415  # most tests need no image
    from kernel_matrix.images.image_build import ensure_local  # noqa: PLC0415  # same

    lock = tmp_path_factory.mktemp("cpu-lock") / "images.lock"
    shutil.copyfile(ROOT / "images" / "images.lock", lock)
    try:
        with _turn(Path(os.environ[TURNS], "image"), alone=True):  # one process builds it, the others find it
            ensure_local("cpu", images_dir=ROOT / "images", lock_path=lock, say=print)
    except ImageError as error:
        missing = f"the CPU image can be neither found nor built: {error}"
        if os.environ.get(REQUIRE_DOCKER) == "1":
            pytest.fail(missing, pytrace=False)
        pytest.skip(missing)
    return lock


@pytest.fixture(scope="session")
def unpacked_cpu(cpu_lock: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables with which the image of that lock is unpacked as well, from what the daemon saves (a minute)."""
    from kernel_matrix.images.image_store import connect  # noqa: PLC0415  # see cpu_lock
    from kernel_matrix.images.lock import load_lock  # noqa: PLC0415  # same
    from kernel_matrix.images.resolve import ImagePresence, image_status  # noqa: PLC0415  # same
    from kernel_matrix.images.unpacked_store import UnpackedStore  # noqa: PLC0415  # same

    entry, store = load_lock(cpu_lock)["cpu"], UnpackedStore()
    saved = tmp_path_factory.mktemp("saved") / "cpu.tar"
    folder = f"{os.environ[TURNS]}/unpacked-cpu"
    with pytest.MonkeyPatch.context() as patch, _turn(Path(os.environ[TURNS], "unpacking"), alone=True):
        patch.setenv(FOLDER_VARIABLE, folder)
        if image_status(entry, store).presence is not ImagePresence.PRESENT:
            with connect() as client, saved.open("wb") as file:
                file.writelines(client.images.get(entry.reference).save(named=True))
            store.load(entry, saved, print)
            saved.unlink()
    return {FOLDER_VARIABLE: folder}


@pytest.fixture(scope="session")
def merged_example() -> Path:
    """Tables of ``results/example-h200.kmz`` without objections."""
    from kernel_matrix.results.merge import merge  # noqa: PLC0415  # most tests need none

    return _merged_example("merged", merge)


@pytest.fixture(scope="session")
def example_tables() -> Path:
    """Tables of ``results/example-h200.kmz``, with what the audit objects to."""
    from kernel_matrix import merge  # noqa: PLC0415  # most tests need none

    return _merged_example("audited", merge)


def _merged_example(name: str, merge: Callable[[Sequence[Path], Path], object]) -> Path:
    """Merge the 583 records of the example, which takes seconds, by one process for all."""
    folder = Path(os.environ[TURNS], name)
    with _turn(folder.with_suffix(".merging"), alone=True):
        if not folder.is_dir():
            merge([ROOT / "results" / "example-h200.kmz"], folder)
    return folder


@pytest.fixture(scope="session")
def fork_source() -> Iterator[None]:
    """The process that has torch and is forked from ends with the tests."""
    from tests.sim.preloaded import close_source  # noqa: PLC0415  # most tests need none

    yield
    close_source()


@pytest.fixture
def forked_roles(fork_source: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the judge and the workers of sessions that this process starts, from a process that has torch."""
    from kernel_matrix.sandboxes import process  # noqa: PLC0415  # most tests need none
    from tests.sim.preloaded import Fork  # noqa: PLC0415  # same

    monkeypatch.setattr(process, "SupervisedProcess", Fork)


@pytest.fixture
def field(tmp_path: Path) -> Iterator[Field]:
    """A small matrix of its own, and ``kernel-matrix`` to run on it."""
    from tests.baddays.field import PRELOADED, new_field  # noqa: PLC0415  # most tests need none

    with new_field(tmp_path, program=PRELOADED) as made:
        yield made


@pytest.fixture
def gpu_field(tmp_path: Path, board: Board) -> Iterator[GpuField]:
    """A field on a simulated GPU of each vendor in turn, its cells in processes that are forked."""
    from tests.baddays.gpu_field import new_gpu_field  # noqa: PLC0415  # most tests need none

    with new_gpu_field(tmp_path, board) as made:
        yield made


@pytest.fixture
def docker_gpu_field(tmp_path: Path, cpu_lock: Path, board: Board) -> Iterator[GpuField]:
    """The same, its cells in containers."""
    from tests.baddays.gpu_field import new_gpu_field  # noqa: PLC0415  # most tests need none

    with new_gpu_field(tmp_path, board, cpu_lock) as made:
        yield made


@pytest.fixture
def clinic(tmp_path: Path) -> Clinic:
    """A doctor's clinic on this host, without a daemon."""
    from tests.hosts.doctor.clinic import Clinic  # noqa: PLC0415  # most tests need none

    for name in ("scratch", "locks"):
        (tmp_path / name).mkdir()
    return Clinic(tmp_path)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlaySandbox:
    """A sandbox that plays, with locks and temporary folders of its own."""
    from tests.attempt.stage import PlaySandbox  # noqa: PLC0415  # most tests need none

    folders = {name: tmp_path / name for name in ("sources", "locks", "scratch", "cache")}
    for folder in folders.values():
        folder.mkdir()
    monkeypatch.setenv("KERNEL_MATRIX_LOCK_DIR", str(folders["locks"]))
    monkeypatch.setenv("KERNEL_MATRIX_CACHE_DIR", str(folders["cache"]))
    monkeypatch.setattr("tempfile.tempdir", str(folders["scratch"]))
    return PlaySandbox(folders["sources"], folders["scratch"])
