"""Which GPUs there are: the bindings on a simulated driver, in processes of its own."""

from pathlib import Path

import pytest
from sim.amd_smi import MI300X, RX_7900_XTX, compile_amd_library

from kernel_matrix.platforms.rocm.inside.smi_library import SmiError
from kernel_matrix.platforms.rocm.inventory import render_node


def test_inventory_names_each_gpu_and_leaves_unknown_fields_null(driver, ask):
    driver.set(MI300X, {**RX_7900_XTX, "minor": None, "target": None})
    found = ask("inventory()")
    assert found["reason"] == ""
    assert [{key: value for key, value in gpu.items() if key != "links"} for gpu in found["gpus"]] == [
        {
            "platform": "rocm",
            "uuid": MI300X["uuid"],
            "name": "AMD Instinct MI300X",
            "index": 0,
            "minor": 129,
            "compute_capability": "gfx942",
            "memory_bytes": 206_141_652_992,
            "driver": "6.12.12",
            "cuda_driver": None,
            "devices": [],
        },
        {
            "platform": "rocm",
            "uuid": RX_7900_XTX["uuid"],
            "name": "AMD Radeon RX 7900 XTX",
            "index": 1,
            "minor": None,
            "compute_capability": None,
            "memory_bytes": 25_753_026_560,
            "driver": "6.12.12",
            "cuda_driver": None,
            "devices": [],
        },
    ]


@pytest.mark.parametrize(
    ("number", "target"), [("0x90a", "gfx90a"), ("0x942", "gfx942"), ("0x950", "gfx950"), ("0x1201", "gfx1201")]
)
def test_target_number_becomes_llvm_target(driver, ask, number, target):
    driver.set({**MI300X, "target": number})
    assert ask("inventory()")["gpus"][0]["compute_capability"] == target


@pytest.mark.parametrize(
    ("code", "advice"), [(34, "modprobe amdgpu"), (10, "groups render and video"), (18, "amd-smi list")]
)
def test_a_driver_that_does_not_open_is_a_reason_and_no_crash(driver, ask, code, advice):
    driver.set(MI300X, init=f"!{code}")
    found = ask("inventory()")
    assert found["gpus"] == []
    assert advice in found["reason"]
    assert f"AMD SMI error {code}" in found["reason"]


@pytest.mark.skipif(Path("/opt/rocm/lib/libamd_smi.so").exists(), reason="this machine has the real library")
def test_without_the_library_the_reason_says_what_to_install(driver, ask, tmp_path):
    driver.set()
    (tmp_path / "empty").mkdir()
    broken = tmp_path / "empty" / "libamd_smi.so"  # found first, and no library: as good as absent
    broken.write_text("")
    driver.environment["LD_LIBRARY_PATH"] = str(broken.parent)
    found = ask("inventory()")
    assert found["gpus"] == []
    assert "amd-smi-lib" in found["reason"]


def test_a_driver_without_gpus_says_so(driver, ask):
    driver.set()
    assert "sees no GPU" in ask("inventory()")["reason"]


def test_a_lost_gpu_does_not_hide_its_neighbour(driver, ask):
    driver.set({**MI300X, "lost": "!12"}, RX_7900_XTX)
    found = ask("inventory()")
    assert [(gpu["uuid"], gpu["index"]) for gpu in found["gpus"]] == [(RX_7900_XTX["uuid"], 1)]
    assert "GPU 0" in found["reason"]
    assert "AMD SMI error 12" in found["reason"]


@pytest.mark.parametrize("version", ["24 7 1", "27 0 0", "!2"])
def test_library_of_unknown_layout_still_lists_the_gpu(driver, ask, version):
    driver.set(MI300X, version=version)
    (gpu,) = ask("inventory()")["gpus"]
    assert (gpu["uuid"], gpu["memory_bytes"]) == (MI300X["uuid"], MI300X["memory"])
    assert (gpu["name"], gpu["compute_capability"], gpu["driver"]) == ("AMD GPU", None, None)


def test_library_without_a_function_does_not_report_its_answer(driver, ask, tmp_path):
    driver.set(MI300X)
    left_out = "-Damdsmi_get_gpu_asic_info=renamed"
    driver.environment["LD_LIBRARY_PATH"] = str(compile_amd_library(tmp_path, left_out).parent)
    (gpu,) = ask("inventory()")["gpus"]
    assert (gpu["name"], gpu["compute_capability"], gpu["minor"]) == ("AMD GPU", None, 129)


def test_render_node_is_found_in_the_folder_of_the_device(tmp_path):
    (tmp_path / "drm" / "card1").mkdir(parents=True)
    with pytest.raises(SmiError):
        render_node(tmp_path)
    (tmp_path / "drm" / "renderD130").mkdir()
    assert render_node(tmp_path) == 130
