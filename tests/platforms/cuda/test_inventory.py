"""Which GPUs there are: the real nvidia-ml-py on a simulated driver, in processes of its own."""

import pytest
from sim.nvml import GTX_1080, H200


def test_inventory_names_each_gpu_and_leaves_unknown_fields_null(driver, ask):
    unnumbered = {key: value for key, value in GTX_1080.items() if key not in ("minor", "capability")}
    driver.set(H200, unnumbered, cuda=12040)
    found = ask("nvidia.inventory()")
    assert found["reason"] == ""
    assert [{key: value for key, value in gpu.items() if key != "links"} for gpu in found["gpus"]] == [
        {
            "platform": "cuda",
            "uuid": H200["uuid"],
            "name": "NVIDIA H200",
            "index": 0,
            "minor": 3,
            "compute_capability": "9.0",
            "memory_bytes": 150_754_820_096,
            "driver": "580.159.04",
            "cuda_driver": "12.4",
            "devices": [],
        },
        {
            "platform": "cuda",
            "uuid": GTX_1080["uuid"],
            "name": "NVIDIA GeForce GTX 1080",
            "index": 1,
            "minor": None,
            "compute_capability": None,
            "memory_bytes": 8_589_934_592,
            "driver": "580.159.04",
            "cuda_driver": "12.4",
            "devices": [],
        },
    ]


@pytest.mark.parametrize(
    ("code", "advice"),
    [(18, "different versions"), (9, "modprobe nvidia"), (4, "/dev/nvidiactl"), (999, "nvidia-smi")],
)
def test_a_driver_that_does_not_open_is_a_reason_and_no_crash(driver, ask, code, advice):
    driver.set(H200, init=f"!{code}")
    found = ask("nvidia.inventory()")
    assert found["gpus"] == []
    assert advice in found["reason"]
    assert f"NVML error {code}" in found["reason"]


def test_without_the_library_the_reason_says_what_to_install(driver, ask, tmp_path):
    driver.set()
    (tmp_path / "empty").mkdir()
    broken = tmp_path / "empty" / "libnvidia-ml.so.1"  # found first, and no library: as good as absent anywhere
    broken.write_text("")
    driver.environment["LD_LIBRARY_PATH"] = str(broken.parent)
    found = ask("nvidia.inventory()")
    assert found["gpus"] == []
    assert "install the NVIDIA driver" in found["reason"]


def test_a_driver_without_gpus_says_so(driver, ask):
    driver.set()
    assert "sees no GPU" in ask("nvidia.inventory()")["reason"]


def test_a_lost_gpu_does_not_hide_its_neighbour(driver, ask):
    driver.set({**H200, "lost": "!15"}, GTX_1080)
    found = ask("nvidia.inventory()")
    assert [gpu["uuid"] for gpu in found["gpus"]] == [GTX_1080["uuid"]]
    assert found["gpus"][0]["index"] == 1
    assert "GPU 0" in found["reason"]
    assert "fell off the bus" in found["reason"]
