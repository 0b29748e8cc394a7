"""NVML: the real nvidia-ml-py on a simulated driver, in processes of its own."""

import pytest
from sim.nvml import GTX_1080, H200

from runner.gpus import nvidia

INVENTORY = """
import dataclasses, json
from runner.gpus import vendor
print(json.dumps(dataclasses.asdict(vendor("nvidia").inventory())))
"""

ASK = """
import json
from runner.errors import InfrastructureError
from runner.gpus import Gpu, vendor
nvidia = vendor("nvidia")
gpu = Gpu(vendor="nvidia", uuid={uuid!r}, name="the GPU")
try:
    print(json.dumps(nvidia.{question}(gpu)))
except InfrastructureError as error:
    print(json.dumps({{"what": error.what, "next": error.next_step}}))
"""


def ask(driver, question, uuid=H200["uuid"]):
    return driver.ask(ASK.format(question=question, uuid=uuid))


def test_inventory_names_each_gpu_and_leaves_unknown_fields_null(driver):
    unnumbered = {key: value for key, value in GTX_1080.items() if key not in ("minor", "capability")}
    driver.set(H200, unnumbered, cuda=12040)
    found = driver.ask(INVENTORY)
    assert found["reason"] == ""
    assert found["gpus"] == [
        {
            "vendor": "nvidia",
            "uuid": H200["uuid"],
            "name": "NVIDIA H200",
            "index": 0,
            "minor": 3,
            "compute_capability": "9.0",
            "memory_bytes": 150_754_820_096,
            "driver": "580.159.04",
            "cuda_driver": "12.4",
        },
        {
            "vendor": "nvidia",
            "uuid": GTX_1080["uuid"],
            "name": "NVIDIA GeForce GTX 1080",
            "index": 1,
            "minor": None,
            "compute_capability": None,
            "memory_bytes": 8_589_934_592,
            "driver": "580.159.04",
            "cuda_driver": "12.4",
        },
    ]


@pytest.mark.parametrize(
    ("code", "advice"),
    [(18, "different versions"), (9, "modprobe nvidia"), (4, "/dev/nvidiactl"), (999, "nvidia-smi")],
)
def test_a_driver_that_does_not_open_is_a_reason_and_no_crash(driver, code, advice):
    driver.set(H200, init=f"!{code}")
    found = driver.ask(INVENTORY)
    assert found["gpus"] == []
    assert advice in found["reason"]
    assert f"NVML error {code}" in found["reason"]


def test_without_the_library_the_reason_says_what_to_install(driver, tmp_path):
    driver.set()
    (tmp_path / "empty").mkdir()
    broken = tmp_path / "empty" / "libnvidia-ml.so.1"  # found first, and no library: as good as absent anywhere
    broken.write_text("")
    driver.environment["LD_LIBRARY_PATH"] = str(broken.parent)
    found = driver.ask(INVENTORY)
    assert found["gpus"] == []
    assert "install the NVIDIA driver" in found["reason"]


def test_a_driver_without_gpus_says_so(driver):
    driver.set()
    assert "sees no GPU" in driver.ask(INVENTORY)["reason"]


def test_a_lost_gpu_does_not_hide_its_neighbour(driver):
    driver.set({**H200, "lost": "!15"}, GTX_1080)
    found = driver.ask(INVENTORY)
    assert [gpu["uuid"] for gpu in found["gpus"]] == [GTX_1080["uuid"]]
    assert found["gpus"][0]["index"] == 1
    assert "GPU 0" in found["reason"]
    assert "fell off the bus" in found["reason"]


def test_processes_are_the_union_of_all_lists(driver):
    driver.set({**H200, "compute": "900 70", "graphics": "70 31", "mps": "5"}, {**GTX_1080, "compute": "1"})
    assert ask(driver, "processes") == [5, 31, 70, 900]


def test_many_processes_are_all_listed(driver):
    pids = list(range(1000, 1100))
    driver.set({**H200, "compute": " ".join(map(str, pids))})
    assert ask(driver, "processes") == pids


def test_a_device_without_graphics_and_mps_lists_its_compute_processes(driver):
    bare = {key: value for key, value in H200.items() if key not in ("graphics", "mps")}
    driver.set({**bare, "compute": "42"})
    assert ask(driver, "processes") == [42]


def test_processes_that_the_driver_hides_are_an_error_and_not_nobody(driver):
    driver.set({key: value for key, value in H200.items() if key != "compute"})
    answer = ask(driver, "processes")
    assert H200["uuid"] in answer["what"]
    assert "does not offer this" in answer["next"]


def test_snapshot_has_the_fields_units(driver):
    driver.set(H200)
    assert ask(driver, "snapshot") == {
        "sm_clock_mhz": 1980,
        "mem_clock_mhz": 3201,
        "power_w": 118.25,
        "temperature_c": 41,
        "memory_used_bytes": 1_048_576,
        "event_reasons": 4,
        "energy_mj": 987_654_321,
    }


def test_snapshot_is_null_where_the_device_does_not_tell(driver):
    driver.set({**GTX_1080, "throttle_reasons": 1})  # an old driver: the reasons under their old name
    assert ask(driver, "snapshot", uuid=GTX_1080["uuid"]) == {
        "sm_clock_mhz": 139,
        "mem_clock_mhz": None,
        "power_w": None,
        "temperature_c": None,
        "memory_used_bytes": 0,
        "event_reasons": 1,
        "energy_mj": None,
    }


@pytest.mark.parametrize("question", ["snapshot", "processes"])
@pytest.mark.parametrize(("code", "advice"), [(15, "fell off the bus"), (16, "must be reset")])
def test_a_lost_gpu_is_our_error_with_advice(driver, question, code, advice):
    driver.set({**H200, "lost": f"!{code}"})
    answer = ask(driver, question)
    assert H200["uuid"] in answer["what"]
    assert advice in answer["next"]


def test_one_field_that_fails_for_another_cause_is_not_called_unsupported(driver):
    driver.set({**H200, "power": "!999"})
    assert "NVML error 999" in ask(driver, "snapshot")["what"]


def test_an_unknown_uuid_is_our_error(driver):
    driver.set(H200)
    assert "no longer knows" in ask(driver, "snapshot", uuid="GPU-nowhere")["next"]


def test_the_library_is_open_exactly_as_long_as_asked(driver):
    driver.set(H200)
    program = """
import json, pynvml
from runner.gpus import nvidia

def is_open():
    try:
        pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError_Uninitialized:
        return False
    return True

seen = []
with nvidia.opened():
    seen.append(is_open())
    nvidia.inventory()
    seen.append(is_open())
seen.append(is_open())
try:
    with nvidia.opened():
        raise KeyboardInterrupt
except KeyboardInterrupt:
    seen.append(is_open())
print(json.dumps(seen))
"""
    assert driver.ask(program) == [True, True, False, False]


@pytest.mark.gpu
def test_the_real_driver_answers():
    gpu = nvidia.inventory().gpus[0]
    assert gpu.uuid.startswith("GPU-")
    assert gpu.memory_bytes > 0
    assert nvidia.snapshot(gpu)["sm_clock_mhz"] is not None
    assert all(pid > 0 for pid in nvidia.processes(gpu))
