"""NVML's library and its errors, for every question that is asked of a device."""

import pytest
from sim.nvml import H200

QUESTIONS = [
    f"nvidia.{name}(gpu)" for name in ("snapshot", "processes", "details", "modes", "clock_choices", "sampler")
]
"""Everything that reads from one device."""


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    ("code", "advice"), [(15, "fell off the bus"), (16, "must be reset"), (999, "check whether `nvidia-smi` works")]
)
def test_a_gpu_that_no_longer_answers_is_lost_whatever_is_asked(driver, ask, question, code, advice):
    driver.set({**H200, "lost": f"!{code}"})
    said = ask(question)
    assert said["error"] == "GpuLostError"
    assert H200["uuid"] in said["what"]
    assert advice in said["next_step"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_gpu_that_the_driver_no_longer_knows_is_lost(driver, ask, question):
    driver.set(H200)
    said = ask(question, uuid="GPU-nowhere")
    assert said["error"] == "GpuLostError"
    assert "GPU-nowhere" in said["what"]
    assert "no longer knows" in said["next_step"]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_driver_that_does_not_open_is_no_lost_gpu(driver, ask, question):
    driver.set(H200, init="!18")
    said = ask(question)
    assert said["error"] == "InfrastructureError"
    assert "different versions" in said["next_step"]


def test_the_library_is_open_exactly_as_long_as_asked(driver):
    driver.set(H200)
    program = """
import json, pynvml
from kernel_matrix.platforms import cuda

def is_open():
    try:
        pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError_Uninitialized:
        return False
    return True

seen = []
with cuda.opened():
    seen.append(is_open())
    cuda.inventory()
    seen.append(is_open())
seen.append(is_open())
try:
    with cuda.opened():
        raise KeyboardInterrupt
except KeyboardInterrupt:
    seen.append(is_open())
print(json.dumps(seen))
"""
    assert driver.ask(program) == [True, True, False, False]


@pytest.mark.gpu
def test_the_real_driver_answers():
    from kernel_matrix.platforms import cuda  # noqa: PLC0415  # only where there is a GPU

    gpu = cuda.inventory().gpus[0]
    assert gpu.uuid.startswith("GPU-")
    assert gpu.memory_bytes > 0
    assert cuda.snapshot(gpu)["sm_clock_mhz"] is not None
    assert all(pid > 0 for pid in cuda.processes(gpu))
    assert cuda.modes(gpu).compute_mode is not None
    assert list(cuda.clock_choices(gpu).sm_mhz) == cuda.details(gpu).values["supported_sm_mhz"]
    with cuda.opened():
        look = cuda.sampler(gpu)
        assert look().at_ns < look().at_ns
