"""Everything else that the driver says about a GPU."""

from sim.nvml import A100, GTX_1080, H200


def test_details_of_a_full_device_miss_only_the_base_clock(driver, ask):
    driver.set({**H200, "cpu_affinity": "f000000000000003 1", "ecc_corrected_total": 7, "pcie_generation": 3})
    said = ask("nvidia.details(gpu)")
    assert said["missing"].keys() == {"base_sm_mhz"}
    assert "highest clock" in said["missing"]["base_sm_mhz"]
    supported = said["values"].pop("supported_sm_mhz")
    assert supported == list(range(1980, 344, -15))
    affinity = said["values"].pop("cpu_affinity")
    assert affinity[:6] == [0, 1, 60, 61, 62, 63]
    assert said["values"] == {
        "brand": "NVIDIA",
        "architecture": "Hopper",
        "bus_width_bits": 6144,
        "pci_bus_id": "00000000:3B:00.0",
        "pcie_generation": 3,
        "pcie_width": 16,
        "pcie_max_generation": 5,
        "pcie_max_width": 16,
        "vbios": "96.00.BC.00.01",
        "ecc": True,
        "ecc_corrected": 7,
        "ecc_uncorrected": 0,
        "mig": False,
        "mps": False,
        "persistence": True,
        "compute_mode": "default",
        "power_limit_w": 700.0,
        "power_default_w": 700.0,
        "power_min_w": 200.0,
        "power_max_w": 700.0,
        "max_sm_mhz": 1980,
        "max_memory_mhz": 3201,
        "base_sm_mhz": None,
        "supported_memory_mhz": [3201, 1593],
        "slowdown_c": 89,
        "shutdown_c": 92,
    }


def test_a_base_clock_that_is_told_is_no_longer_missing(driver, ask):
    driver.set(A100)
    said = ask("nvidia.details(gpu)", uuid=A100["uuid"])
    assert said["values"]["base_sm_mhz"] == 1275
    assert said["missing"] == {}


def test_details_unsupported_by_old_device_are_none_with_reason(driver, ask):
    driver.set(H200, GTX_1080)
    whole, bare = ask("nvidia.details(gpu)"), ask("nvidia.details(gpu)", uuid=GTX_1080["uuid"])
    assert bare["values"].keys() == whole["values"].keys()
    assert {name for name, value in bare["values"].items() if value is not None} == {"mps"}
    assert bare["missing"].keys() == bare["values"].keys() - {"mps"}
    assert bare["missing"]["ecc"] == "this device or driver does not support it"
    assert all(bare["missing"].values())


def test_one_question_that_fails_does_not_hide_the_others(driver, ask):
    driver.set({**H200, "vbios": "!999", "mig": "!4"})
    said = ask("nvidia.details(gpu)")
    assert (said["values"]["vbios"], said["values"]["mig"]) == (None, None)
    assert "NVML error 999" in said["missing"]["vbios"]
    assert said["missing"]["mig"] == "only root may see it"
    assert said["values"]["bus_width_bits"] == 6144


def test_a_gpu_that_is_lost_between_two_questions_is_lost(driver, ask):
    driver.set({**H200, "temperature_shutdown": "!15"})
    assert ask("nvidia.details(gpu)")["error"] == "GpuLostError"


def test_unknown_architecture_and_brand_are_named_by_number(driver, ask):
    driver.set({**H200, "architecture": 77, "brand": 66})
    values = ask("nvidia.details(gpu)")["values"]
    assert (values["architecture"], values["brand"]) == ("NVML's number 77", "NVML's number 66")
