"""CUPTI's records, read from a simulated CUPTI that writes them as the real one does."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_matrix.platforms.cuda.inside.cupti import ActivityRecorder, CuptiError, loaded_library, recorder
from tests.sim import nvml

SOURCE = Path(__file__).with_name("cupti.c")
MEMCPY, MEMSET, MARKER, KERNEL = 1, 2, 5, 10
RELU = "_ZN2at6native29vectorized_elementwise_kernelILi4EfEEvPT0_"


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The simulated CUPTI, compiled once."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to compile the simulated CUPTI with")
    return nvml.compile_library(tmp_path_factory.mktemp("cupti"), SOURCE, "libcupti.so.13")


@pytest.fixture
def library(path: Path) -> Iterator[ctypes.CDLL]:
    """The library, in which nothing fails."""
    loaded = ctypes.CDLL(str(path))
    loaded.sim_set(1000, -1, 0)
    yield loaded
    assert loaded.sim_enabled() == 0


def runs(library: ctypes.CDLL, kind: int, start_ns: int, end_ns: int, name: str = "", *, copy: int = 0) -> None:
    """Something runs on the device. A name has to outlive its record."""
    text = ctypes.c_char_p(NAMES.setdefault(name, name.encode()))
    code = library.sim_run(
        ctypes.c_uint32(kind), ctypes.c_uint8(copy), ctypes.c_uint64(start_ns), ctypes.c_uint64(end_ns), text
    )
    assert code == 0


NAMES: dict[str, bytes] = {}


def test_kernels_copies_and_fills_have_names_and_times(library):
    made = ActivityRecorder(library)
    made.start()
    runs(library, KERNEL, 10**15, 10**15 + 33_920, "softmax_kernel")
    runs(library, MEMCPY, 5, 12, copy=8)
    runs(library, MEMCPY, 5, 6, copy=99)
    runs(library, MEMSET, 1, 3)
    runs(library, KERNEL, 0, 7, RELU)
    assert made.stop() == [
        ("softmax_kernel", 33_920),
        ("Memcpy DtoD", 7),
        ("Memcpy", 1),
        ("Memset", 2),
        ("void at::native::vectorized_elementwise_kernel<4, float>(float*)", 7),
    ]


def test_nothing_is_recorded_before_the_start_and_after_the_end(library):
    made = ActivityRecorder(library)
    runs(library, KERNEL, 0, 1, "before")
    for name in ("first", "second"):
        made.start()
        runs(library, KERNEL, 0, 1, name)
        assert made.stop() == [(name, 1)]
    runs(library, KERNEL, 0, 1, "after")
    made.start()
    assert made.stop() == []


def test_records_of_other_kinds_are_passed_over(library):
    made = ActivityRecorder(library)
    made.start()
    runs(library, MARKER, 0, 1)
    runs(library, KERNEL, 0, 1, "mine")
    assert made.stop() == [("mine", 1)]


def test_records_in_many_buffers_are_complete_and_buffers_freed(library):
    library.sim_set(3, -1, 0)
    made = ActivityRecorder(library)
    made.start()
    for number in range(10):
        runs(library, KERNEL, 0, number, f"kernel_{number}")
    assert made.stop() == [(f"kernel_{number}", number) for number in range(10)]
    assert made._buffers == {}


def test_a_kind_that_cannot_be_recorded_leaves_none_enabled(library):
    library.sim_set(1000, MEMSET, 0)
    with pytest.raises(CuptiError, match="cuptiActivityEnable failed with CUPTI error 1"):
        ActivityRecorder(library).start()
    assert library.sim_enabled() == 0


def test_failed_flush_of_records_is_an_error_and_ends_recording(library):
    library.sim_set(1000, -1, 1)
    made = ActivityRecorder(library)
    made.start()
    with pytest.raises(CuptiError, match="cuptiActivityFlushAll"):
        made.stop()
    assert library.sim_enabled() == 0


def test_a_library_without_a_function_says_which():
    with pytest.raises(CuptiError, match="has no cuptiActivityRegisterCallbacks"):
        ActivityRecorder(ctypes.CDLL(None)).start()


def test_there_is_one_recorder_of_a_library(path):
    assert recorder(path) is recorder(path)


LOADED = """
import ctypes, sys
from kernel_matrix.platforms.cuda.inside.cupti import loaded_library
before = loaded_library()
ctypes.CDLL(sys.argv[1])
print(before, loaded_library())
"""


@pytest.mark.parametrize("name", ["libcupti.so.13", "libcupti-6a3c3a35.so.11.8"])
def test_the_library_is_the_one_that_the_process_has_loaded(name, path, tmp_path):
    copied = shutil.copy(path, tmp_path / name)
    program = (sys.executable, "-c", LOADED, str(copied))
    said = subprocess.run(program, cwd=Path(__file__).parents[4], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["None", str(copied)]


def test_other_libraries_of_that_folder_are_not_it(monkeypatch, tmp_path):
    maps = tmp_path / "maps"
    maps.write_text("7f00-7f01 r-xp 00000000 08:01 12  /opt/cupti/lib/libnvperf_host.so\n7ffc-7ffd rw-p [stack]\n")
    monkeypatch.setattr("kernel_matrix.inside.loaded_libraries._MAPS", maps)
    assert loaded_library() is None
