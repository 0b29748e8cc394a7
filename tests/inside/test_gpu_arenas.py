"""Arenas on a GPU's memory, over the simulated driver of each vendor, whose device memory is the host's."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import ctypes
import gc
import os
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside import torch_gpu
from kernel_matrix.inside.gpu_arenas import AccessDescription, AllocationProperties, GpuArenas
from kernel_matrix.inside.platform import STAGED_VARIABLE, DeviceError
from kernel_matrix.platforms.cuda.inside import libcuda
from kernel_matrix.platforms.rocm.inside import arenas as rocm_arenas
from kernel_matrix.platforms.rocm.inside.rocm_libraries import load_library

pytestmark = pytest.mark.torch


@dataclass
class Driver:
    """A simulated driver in this process."""

    arenas: Any
    variable: str
    log: Path
    patch: pytest.MonkeyPatch

    def fail(self, wrong):
        """Say what goes wrong from now on, with the generic names of the driver's functions in braces."""
        self.patch.setenv(self.variable, wrong.format(**vars(self.arenas.driver.names)))

    def left_over(self):
        """Return how many reserved addresses, mappings, handles and registered buffers were not given back."""
        calls, names = Counter(self.log.read_text().split()), self.arenas.driver.names
        handles = calls[names.create_memory] + calls[names.import_memory] - calls[names.release_memory]
        return (
            calls[names.reserve_addresses] - calls[names.free_addresses],
            calls[names.map_memory] - calls[names.unmap_memory],
            handles,
            calls[names.register_host] - calls[names.unregister_host],
        )


NOTHING = (0, 0, 0, 0)


def of_addresses(memory, device):
    """Return the memory that torch would find behind ``memory`` on a device."""
    assert device == "cpu"
    (count,), (address, _) = memory.__cuda_array_interface__["shape"], memory.__cuda_array_interface__["data"]
    view = (ctypes.c_ubyte * count).from_address(address)
    view.owner = memory
    return torch.frombuffer(view, dtype=torch.uint8)


@pytest.fixture(params=["cuda", "rocm"])
def vendor(request):
    return request.param


@pytest.fixture
def driver(vendor, request, tmp_path, monkeypatch):
    """A simulated driver, with a torch that finds its memory."""
    library = request.getfixturevalue({"cuda": "simulated_libcuda", "rocm": "simulated_libamdhip"}[vendor])
    monkeypatch.setattr(libcuda, "LIBRARY", str(library))
    monkeypatch.setattr("kernel_matrix.platforms.rocm.inside.rocm_libraries._places", lambda _stem: [str(library)])
    for cached in (libcuda.library, load_library):
        cached.cache_clear()
    monkeypatch.setattr(torch_gpu, "TORCH_DEVICE", "cpu")
    for name in ("open_device", "synchronize"):
        monkeypatch.setattr(torch_gpu, name, lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch, "as_tensor", of_addresses)
    monkeypatch.delenv(STAGED_VARIABLE, raising=False)
    variable = {"cuda": "KERNEL_MATRIX_SIM_CUDA", "rocm": "KERNEL_MATRIX_SIM_HIP"}[vendor]
    (tmp_path / "calls").touch()
    monkeypatch.setenv(f"{variable}_LOG", str(tmp_path / "calls"))
    arenas = {"cuda": GpuArenas(libcuda.DRIVER, "cuda"), "rocm": rocm_arenas.HipArenas()}[vendor]
    yield Driver(arenas, variable, tmp_path / "calls", monkeypatch)
    for cached in (libcuda.library, load_library):
        cached.cache_clear()


def descriptors():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def lent(arena):
    """Return a descriptor as a worker gets it."""
    return os.dup(arena.descriptor)


def test_arena_is_the_same_memory_on_both_sides(driver, vendor):
    arenas = driver.arenas
    with closing(arenas.create(5000)) as ours, closing(arenas.open(lent(ours), 5000)) as theirs:
        ours.tensor.fill_(7)
        assert theirs.tensor.tolist() == [7] * 5000
        theirs.tensor[4999] = 8
        assert int(ours.tensor[-1]) == 8
    assert arenas.transport() == f"{vendor}-vmm"


def test_arena_gives_everything_back_after_its_last_view(driver):
    before = descriptors()
    ours = driver.arenas.create(5000)
    theirs = driver.arenas.open(lent(ours), 5000)
    view = theirs.tensor[:4]
    ours.close()
    theirs.close()
    assert driver.left_over() == (1, 1, 1, 0)
    assert driver.arenas.mapped_bytes == {0: 65536}
    assert view.tolist() == [0] * 4
    del view
    assert driver.left_over() == NOTHING
    assert not any(driver.arenas.mapped_bytes.values())
    assert descriptors() == before


def test_arena_that_cannot_be_mapped_leaves_nothing(driver):
    with closing(driver.arenas.create(16)) as ours:
        driver.fail("{set_access}=2")
        with closing(os.fdopen(lent(ours))) as file, pytest.raises(DeviceError, match="MemSetAccess failed"):
            driver.arenas.open(file.fileno(), 16)
    del ours
    gc.collect()  # the error has held the frames
    assert driver.left_over() == NOTHING


def test_arena_beyond_the_memory_is_out_of_memory(driver, monkeypatch):
    emptied = []
    monkeypatch.setattr(torch_gpu, "release_memory", lambda: emptied.append(1))
    driver.fail("{create_memory}=2")
    with pytest.raises(torch.cuda.OutOfMemoryError, match="no 65536 bytes left on the device for an arena"):
        driver.arenas.create(16)
    assert emptied == [1], "torch's cache is emptied before it is tried again"


def check_staged(driver):
    before = descriptors()  # the driver's memory among them
    ours = driver.arenas.create(5000)
    ours.tensor.fill_(7)
    ours.publish()
    theirs = driver.arenas.open(lent(ours), 5000)
    assert theirs.tensor.tolist() == [7] * 5000
    theirs.tensor.fill_(8)
    assert ours.tensor.tolist() == [7] * 5000
    theirs.publish()
    ours.fetch()
    assert ours.tensor.tolist() == [8] * 5000
    assert driver.left_over()[3] == 2
    theirs.close()
    ours.close()
    assert driver.left_over()[3] == 0
    assert descriptors() == before


def test_staged_arena_copies_through_pinned_memory(driver, vendor, monkeypatch):
    monkeypatch.setenv(STAGED_VARIABLE, "staged")
    check_staged(driver)
    assert driver.arenas.transport() == f"{vendor}-staged"
    assert driver.left_over() == NOTHING


def test_structures_have_the_sizes_of_both_drivers(simulated_libamdhip):
    class Entry(ctypes.Structure):
        _fields_ = (("name", ctypes.c_char_p), ("size", ctypes.c_uint64))

    told = (Entry * 2).in_dll(ctypes.CDLL(str(simulated_libamdhip)), "simulated_sizes")
    assert {entry.name.decode(): entry.size for entry in told} == {
        kind.__name__: ctypes.sizeof(kind) for kind in (AllocationProperties, AccessDescription)
    }


REFUSALS = {
    "an import that maps other memory": ("wrong=1", "rocm-staged-wrong-memory"),
    "a device that exports nothing": ("{export_memory}=801", "rocm-staged-refused-801"),
    "a runtime without such memory": ("{create_memory}=801", "rocm-staged-refused-801"),
    "an import that is refused": ("{import_memory}=1", "rocm-staged-refused-1"),
}


@pytest.mark.parametrize("vendor", ["rocm"])
@pytest.mark.parametrize("name", REFUSALS)
def test_rocm_arena_without_proof_goes_through_the_host(name, driver):
    wrong, transport = REFUSALS[name]
    driver.fail(wrong)
    check_staged(driver)
    assert driver.arenas.transport() == transport
    assert not any(driver.arenas.mapped_bytes.values())


@pytest.mark.parametrize("vendor", ["rocm"])
def test_rocm_worker_refuses_memory_without_the_stamp(driver):
    with closing(driver.arenas.create(100)) as ours, closing(os.fdopen(lent(ours))) as file:
        driver.fail("wrong=1")
        with pytest.raises(rocm_arenas.WrongMemoryError, match="other memory than the judge exported"):
            driver.arenas.open(file.fileno(), 100)


@pytest.mark.parametrize("vendor", ["rocm"])
def test_rocm_stamp_of_another_arena_is_no_proof(driver):
    with closing(driver.arenas.create(100)) as one, closing(driver.arenas.create(100)) as other:
        number = bytes(rocm_arenas._NUMBER_BYTES)
        assert rocm_arenas._stamp(one.descriptor, number) != rocm_arenas._stamp(other.descriptor, number)
        again = lent(one)
        assert rocm_arenas._stamp(one.descriptor, number) == rocm_arenas._stamp(again, number)
        os.close(again)


@pytest.mark.parametrize("vendor", ["rocm"])
@pytest.mark.parametrize("version", [60443000, 70051831, 70100000])
def test_rocm_runtime_is_told_a_descriptor_as_it_expects(version, driver):
    driver.fail(f"version={version}")
    with closing(driver.arenas.create(100)):
        assert driver.arenas.transport() == "rocm-vmm"


@pytest.mark.parametrize("vendor", ["rocm"])
def test_rocm_worker_opens_what_the_judge_has_staged(driver):
    driver.fail("wrong=1")
    with closing(driver.arenas.create(100)) as ours:
        driver.fail("")
        ours.tensor.fill_(5)
        ours.publish()
        with closing(rocm_arenas.HipArenas().open(lent(ours), 100)) as theirs:
            assert theirs.tensor.tolist() == [5] * 100
