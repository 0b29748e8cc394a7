"""The CUDA driver through ctypes: what is opened is closed, what fails is named, and PTX that every ptxas takes."""

import importlib.util
import subprocess
from pathlib import Path

import pytest

from kernel_matrix.inside.platform import DeviceError
from kernel_matrix.platforms.cuda.inside import anchor, clock_probe, device_health, libcuda
from tests.inside.cuda import UNDONE

LAUNCH = """
import ctypes, json
from kernel_matrix.inside.platform import DeviceError
from kernel_matrix.platforms.cuda.inside.device_health import PTX
from kernel_matrix.platforms.cuda.inside.libcuda import opened
told = {}
try:
    with opened() as device, device.module(PTX) as module, device.memory(4096) as memory:
        told["zeros"] = device.read(memory, 4096) == bytes(4096)
        module.launch(%r, 4, 256, memory, ctypes.c_uint32(1024), ctypes.c_uint32(0))
        told["third"] = int.from_bytes(device.read(memory, 12)[8:], "little")
except DeviceError as error:
    told["error"], told["code"] = str(error), error.code
print(json.dumps(told))
"""


def test_a_kernel_runs_on_memory_that_was_zero_and_all_is_undone(cuda):
    assert cuda.ask(LAUNCH % "write_pattern") == {"zeros": True, "third": 2}
    assert cuda.calls()["cuCtxPushCurrent_v2"] == 1
    assert cuda.left_over() == {}


FAILING = (
    "cuInit",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent_v2",
    "cuStreamCreate",
    "cuModuleLoadData",
    "cuMemAlloc_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuLaunchKernel",
    "cuMemcpyDtoHAsync_v2",
    "cuStreamSynchronize",
)


@pytest.mark.parametrize("function", FAILING)
def test_failed_call_is_named_and_earlier_calls_are_undone(function, cuda):
    told = cuda.ask(LAUNCH % "write_pattern", wrong=f"{function}=719")
    assert told["error"] == f"{function} failed with CUDA_ERROR_LAUNCH_FAILED (719)"
    assert told["code"] == 719
    assert cuda.left_over() == ({function: 1} if function in UNDONE else {}), "the call that failed did nothing"


def test_an_error_without_a_name_keeps_its_number(cuda):
    assert cuda.ask(LAUNCH % "write_pattern", wrong="cuInit=31999")["error"].endswith("an unknown CUDA error (31999)")


def test_a_kernel_that_is_not_there_is_an_error(cuda):
    assert "cuModuleGetFunction failed" in cuda.ask(LAUNCH % "no_such_kernel")["error"]
    assert cuda.left_over() == {}


def test_a_function_that_an_old_driver_lacks_is_named(cuda):
    program = "from kernel_matrix.inside.platform import DeviceError\n"
    program += "from kernel_matrix.platforms.cuda.inside.libcuda import call\nimport json\n"
    program += "try: call('cuTomorrow')\nexcept DeviceError as error: print(json.dumps(str(error)))"
    assert cuda.ask(program) == "this CUDA driver has no cuTomorrow"


def test_a_driver_that_is_not_there_is_an_error(monkeypatch):
    monkeypatch.setattr(libcuda, "LIBRARY", "libcuda-of-another-world.so.1")
    libcuda.library.cache_clear()
    with pytest.raises(DeviceError, match="the CUDA driver cannot be loaded: libcuda-of-another-world"):
        libcuda.call("cuInit")


def ptxas():
    found = importlib.util.find_spec("triton")
    folder = Path(found.origin).parent / "backends" / "nvidia" / "bin" if found and found.origin else Path()
    return [tool for tool in (folder / "ptxas", folder / "ptxas-blackwell") if tool.is_file()]


@pytest.mark.parametrize(
    "ptx", [anchor.PTX, clock_probe.PTX, device_health.PTX], ids=["anchor", "clockprobe", "health"]
)
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90a", "sm_100", "sm_120"])
def test_the_kernels_compile_for_every_architecture(architecture, ptx, tmp_path):
    if not ptxas():
        pytest.skip("no ptxas beside the tests (the `local` extra brings Triton's)")
    source = tmp_path / "kernels.ptx"
    source.write_text(ptx)
    for tool in ptxas():
        subprocess.run((tool, f"-arch={architecture}", source, "-o", tmp_path / "kernels.cubin"), check=True)
