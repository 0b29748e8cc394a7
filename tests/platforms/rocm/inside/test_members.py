"""Members of the inside half of AMD GPUs, with as much of torch's build for ROCm as they ask."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.platform import load_platform
from kernel_matrix.platforms.rocm import inside
from kernel_matrix.platforms.rocm.inside.caches import SIZES_MIB

pytestmark = pytest.mark.torch

MIB, GIB = 1 << 20, 1 << 30


@pytest.fixture
def device(monkeypatch):
    """Makes torch know a device of an architecture."""

    def made(architecture, *, l2_bytes=4 * MIB, memory=192 * GIB):
        properties = SimpleNamespace(gcnArchName=architecture, L2_cache_size=l2_bytes, total_memory=memory)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _index: properties)
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda _index: "AMD Instinct MI300X")

    return made


def test_rocm_platform_has_every_member():
    assert load_platform("rocm") is inside
    assert (inside.TORCH_DEVICE, inside.IS_ACCELERATOR) == ("cuda", True)


@pytest.mark.parametrize(
    ("architecture", "mib"),
    [("gfx942:sramecc+:xnack-", 288), ("gfx90a", 8), ("gfx1100", 102), ("gfx1299", 4 + 256)],
)
def test_cache_bytes_have_the_infinity_cache(architecture, mib, device):
    device(architecture)
    assert inside.cache_bytes() == mib * MIB


def test_no_known_cache_is_beyond_what_is_assumed_for_others():
    assert max(infinity for _, infinity in SIZES_MIB.values()) == 256


def test_buffer_is_larger_than_every_cache(device):
    device("gfx942")
    assert inside.buffer_bytes() == 4 * 288 * MIB
    device("gfx1102", memory=8 * GIB)
    assert inside.buffer_bytes() == GIB


def test_description_has_name_and_architecture(device):
    device("gfx942:sramecc+:xnack-")
    assert inside.describe() == {"device_name": "AMD Instinct MI300X", "compute_capability": "gfx942"}


def test_nothing_is_recorded_without_a_device():
    assert list(inside.record_activity()()) == []


def test_outputs_are_copied_because_there_are_no_pools():
    assert inside.pool_bytes((512,), 3) == 0
    assert inside.open_pool(SimpleNamespace()) is None
