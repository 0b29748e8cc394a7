"""The HIP runtime and its compiler through ctypes: what is opened is closed, and what fails is named."""

import pytest

from kernel_matrix.inside.platform import DeviceError
from kernel_matrix.platforms.rocm.inside import rocm_libraries
from kernel_matrix.platforms.rocm.inside.rocm_libraries import load_library

LAUNCH = """
import ctypes, json
from kernel_matrix.inside.platform import DeviceError
from kernel_matrix.platforms.rocm.inside.device_health import TEXT
from kernel_matrix.platforms.rocm.inside.libamdhip import opened
told = {}
try:
    with opened() as device, device.module(%s) as module, device.memory(4096) as memory:
        told["zeros"] = device.read(memory, 4096) == bytes(4096)
        module.launch(%r, 4, 256, memory, ctypes.c_uint32(1024), ctypes.c_uint32(0))
        told["third"] = int.from_bytes(device.read(memory, 12)[8:], "little")
except DeviceError as error:
    told["error"], told["code"] = str(error), error.code
print(json.dumps(told))
"""
WRITE = LAUNCH % ("TEXT", "write_pattern")


def test_hip_kernel_runs_on_zeroed_memory_and_all_is_undone(hip):
    assert hip.ask(WRITE) == {"zeros": True, "third": 2}
    assert hip.left_over() == {}


FAILING = (
    "hipInit",
    "hipSetDevice",
    "hipStreamCreateWithFlags",
    "hipModuleLoadData",
    "hipMalloc",
    "hipMemsetD8Async",
    "hipModuleGetFunction",
    "hipModuleLaunchKernel",
    "hipMemcpyDtoHAsync",
    "hipStreamSynchronize",
)


@pytest.mark.parametrize("function", FAILING)
def test_failed_hip_call_is_named_and_the_rest_undone(function, hip):
    told = hip.ask(WRITE, wrong=f"{function}=719")
    assert told["error"] == f"{function} failed with hipErrorLaunchFailure (719)"
    assert told["code"] == 719
    assert hip.left_over() == ({function: 1} if function in hip.UNDONE else {}), "the call that failed did nothing"


def test_lost_device_is_named_at_the_first_call(hip):
    told = hip.ask(WRITE, wrong="lost=709")
    assert told == {"error": "hipInit failed with hipErrorContextIsDestroyed (709)", "code": 709}


def test_hip_error_without_a_name_keeps_its_number(hip):
    assert hip.ask(WRITE, wrong="hipInit=31999")["error"].endswith("an unknown HIP error (31999)")


def test_hip_kernel_that_is_not_there_is_an_error(hip):
    assert "hipModuleGetFunction failed" in hip.ask(LAUNCH % ("TEXT", "no_such_kernel"))["error"]
    assert hip.left_over() == {}


def test_text_that_does_not_compile_is_no_fault_of_the_device(hip):
    told = hip.ask(LAUNCH % ("'nonsense'", "write_pattern"))
    assert told == {"error": "hiprtcCompileProgram failed with hiprtc error 6: error: simulated", "code": None}
    assert hip.left_over() == {}


@pytest.mark.parametrize("function", ["hiprtcCreateProgram", "hiprtcGetCodeSize", "hiprtcGetCode"])
def test_failed_call_of_the_compiler_is_named(function, hip):
    told = hip.ask(WRITE, wrong=f"{function}=11")
    assert told == {"error": f"{function} failed with hiprtc error 11", "code": None}
    assert hip.left_over() == ({function: 1} if function in hip.UNDONE else {})


def test_function_that_an_old_runtime_lacks_is_named(hip):
    program = "from kernel_matrix.inside.platform import DeviceError\n"
    program += "from kernel_matrix.platforms.rocm.inside.libamdhip import call\nimport json\n"
    program += "try: call('hipTomorrow')\nexcept DeviceError as error: print(json.dumps(str(error)))"
    assert hip.ask(program) == "this HIP runtime has no hipTomorrow"


def test_library_that_is_not_there_is_an_error(monkeypatch):
    monkeypatch.setattr(rocm_libraries, "_places", lambda stem: [f"{stem}-of-another-world.so"])
    with pytest.raises(DeviceError, match="libtomorrow cannot be loaded: libtomorrow-of-another-world"):
        load_library("libtomorrow")


def test_library_in_torchs_folder_comes_before_the_loaders(monkeypatch, tmp_path):
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").touch()
    bundled = tmp_path / "torch" / "lib" / "libamdhip64.so"
    bundled.touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "torch", raising=False)
    places = list(rocm_libraries._places("libamdhip64"))
    assert places == [
        str(bundled),
        *(f"libamdhip64.so{end}" for end in (".7", ".6", "")),
        "/opt/rocm/lib/libamdhip64.so",
    ]
