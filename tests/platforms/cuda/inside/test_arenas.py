"""Arenas on a GPU's memory, over the simulated driver, whose device memory is the host's."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import ctypes
import gc
import os
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside import torch_gpu
from kernel_matrix.inside.platform import STAGED_VARIABLE, DeviceError
from kernel_matrix.platforms.cuda.inside import libcuda
from kernel_matrix.platforms.cuda.inside.arenas import ARENAS

pytestmark = pytest.mark.torch


class Driver:
    """The simulated driver in this process."""

    def __init__(self, log):
        self._log = log

    def calls(self):
        return Counter(self._log.read_text().split())

    def left_over(self):
        """Return how many reserved addresses, mappings and handles were not given back."""
        calls = self.calls()
        handles = calls["cuMemCreate"] + calls["cuMemImportFromShareableHandle"] - calls["cuMemRelease"]
        mappings = calls["cuMemMap"] - calls["cuMemUnmap"]
        return calls["cuMemAddressReserve"] - calls["cuMemAddressFree"], mappings, handles


def of_addresses(memory, device):
    """Return the memory that torch would find behind ``memory`` on a device."""
    assert device == "cuda"
    (count,), (address, _) = memory.__cuda_array_interface__["shape"], memory.__cuda_array_interface__["data"]
    view = (ctypes.c_ubyte * count).from_address(address)
    view.owner = memory
    return torch.frombuffer(view, dtype=torch.uint8)


@pytest.fixture
def driver(simulated_libcuda, tmp_path, monkeypatch):
    """The simulated driver, with a torch that finds its memory."""
    monkeypatch.setattr(libcuda, "LIBRARY", str(simulated_libcuda))
    libcuda.library.cache_clear()
    monkeypatch.setattr(torch_gpu, "open_device", lambda: None)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch, "as_tensor", of_addresses)
    monkeypatch.delenv(STAGED_VARIABLE, raising=False)
    monkeypatch.setenv("KERNEL_MATRIX_SIM_CUDA_LOG", str(tmp_path / "calls"))
    (tmp_path / "calls").touch()
    yield Driver(tmp_path / "calls")
    libcuda.library.cache_clear()


def descriptors():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def lent(arena):
    """Return a descriptor as a worker gets it."""
    return os.dup(arena.descriptor)


def test_arena_is_the_same_memory_on_both_sides(driver):
    with closing(ARENAS.create(5000)) as ours, closing(ARENAS.open(lent(ours), 5000)) as theirs:
        ours.tensor.fill_(7)
        assert theirs.tensor.tolist() == [7] * 5000
        theirs.tensor[4999] = 8
        assert int(ours.tensor[-1]) == 8


def test_arena_gives_everything_back_after_its_last_view(driver):
    before = descriptors()
    ours = ARENAS.create(5000)
    theirs = ARENAS.open(lent(ours), 5000)
    view = theirs.tensor[:4]
    ours.close()
    theirs.close()
    assert driver.left_over() == (1, 1, 1)
    assert view.tolist() == [0] * 4
    del view
    assert driver.left_over() == (0, 0, 0)
    assert descriptors() == before


def test_arena_that_cannot_be_mapped_leaves_nothing(driver, monkeypatch):
    with closing(ARENAS.create(16)) as ours:
        monkeypatch.setenv("KERNEL_MATRIX_SIM_CUDA", "cuMemSetAccess=2")
        with closing(os.fdopen(lent(ours))) as file, pytest.raises(DeviceError, match="cuMemSetAccess"):
            ARENAS.open(file.fileno(), 16)
    del ours
    gc.collect()  # the error has held the frames
    assert driver.left_over() == (0, 0, 0)
