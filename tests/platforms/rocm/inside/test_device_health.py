"""The health check's kernels, run by the simulated runtime, and what each fault is told as."""

import pytest

CHECK = """
from kernel_matrix.platforms.rocm.inside.device_health import check_gpus
from kernel_matrix.model.messages import dumps
print(dumps(check_gpus(0.03, 1)))
"""
CHECK_TWO = CHECK.replace("0.03, 1", "0.03, 2")


def test_amd_gpu_that_answers_rightly_is_well(hip):
    found = hip.ask(CHECK, wrong="mhz=1500")
    assert (found["passed"], found["reason"], found["sm_mhz"]) == (True, "", 1498.5)
    assert found["seconds"] > 0
    assert hip.left_over() == {}


TWO = {
    "both are well": ("devices=2", True, ""),
    "the second is gone": ("devices=1", False, "device 1: hipSetDevice failed with"),
    "both are wrong": ("devices=2 flip=17", False, "device 0: known answers: 1 of 1048576 are wrong"),
}


@pytest.mark.parametrize("name", TWO)
def test_each_amd_gpu_of_a_group_is_checked(name, hip):
    wrong, passed, reason = TWO[name]
    found = hip.ask(CHECK_TWO, wrong=wrong)
    assert found["passed"] is passed
    assert found["reason"].startswith(reason) if reason else not found["reason"]


UNWELL = {
    "a wrong answer": ("flip=17", "known answers: 1 of 1048576 are wrong; number 17 is 0x2666aa23, not 0x2666aa22"),
    "a bit that is always set": ("stuck=5", "device memory: pattern 0x00000000 over 131072 words sums to 8589869088"),
    "a kernel that fails": (
        "hipModuleLaunchKernel=719",
        "hipModuleLaunchKernel failed with hipErrorLaunchFailure (719)",
    ),
    "no device": ("hipInit=100", "hipInit failed with hipErrorNoDevice (100)"),
    "a lost device": ("lost=709", "hipInit failed with hipErrorContextIsDestroyed (709)"),
    "a device that is gone at the wait": ("hipStreamSynchronize=719", "hipStreamSynchronize failed"),
}


@pytest.mark.parametrize("name", UNWELL)
def test_amd_gpu_that_is_not_well_says_why(name, hip):
    wrong, reason = UNWELL[name]
    found = hip.ask(CHECK, wrong=wrong)
    assert found["passed"] is False
    assert found["reason"].startswith(reason)
    assert found["sm_mhz"] is None
    assert hip.left_over() == {}


@pytest.mark.parametrize("wrong", ["hiprtcCompileProgram=6", "hipModuleLoadData=209", "rate=0"])
def test_container_that_cannot_ask_leaves_health_unknown(wrong, hip):
    found = hip.ask(CHECK, wrong=wrong)
    assert found["passed"] is None
    assert found["reason"]
    assert hip.left_over() in ({}, {"hipModuleLoadData": 1})


def test_amd_clock_that_cannot_be_read_is_no_illness(hip):
    found = hip.ask(CHECK, wrong="still=1")
    assert (found["passed"], found["sm_mhz"]) == (True, None)
