"""Peak rates."""

from __future__ import annotations

import json

from sim.nvml import GTX_1080, H200, SimulatedDriver

from tests.hosts.doctor.clinic import Clinic


def test_a_gpu_that_no_table_knows_wants_calibration_once(gpu_clinic: Clinic, driver: SimulatedDriver) -> None:
    driver.set(H200, GTX_1080)
    known, unknown = gpu_clinic.examine("--sandbox", "process").about("peak rates")
    assert (known["verdict"], unknown["verdict"]) == ("ok", "warn")
    assert unknown["advice"] == f"kernel-matrix gpus calibrate --gpu {GTX_1080['uuid']}"

    measured = {"kind": "calibration", "uuid": GTX_1080["uuid"], "bytes_per_s": 2.8e11, "flops_per_s": {"fp32": 8e12}}
    kept = gpu_clinic.root / "state" / "calibrations" / f"{GTX_1080['uuid']}.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps(measured))
    _, calibrated = gpu_clinic.examine("--sandbox", "process").about("peak rates")
    assert calibrated["verdict"] == "ok"
    assert str(kept) in calibrated["found"]
