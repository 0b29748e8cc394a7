"""The most that a device can do: by the table, by its own calibration, or unknown and why."""

import json

import pytest

from kernel_matrix.platforms import Gpu, peaks
from kernel_matrix.platforms.peaks import (
    STATE_DIR_VARIABLE,
    calibration_file,
    calibration_folder,
    peak_of,
    write_calibration,
)

STRANGER = Gpu(platform="cuda", uuid="GPU-1", name="NVIDIA Unheard-Of 1")
MEASURED = {
    "kind": "calibration",
    "device_name": "NVIDIA Unheard-Of 1",
    "bytes_per_s": 2.5e12,
    "flops_per_s": {"fp32": 4e13, "fp16": 3e14},
    "torch": "2.13.0",
    "cuda": "13.0",
    "seconds": 20.0,
}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """A state folder that does not exist yet."""
    monkeypatch.setenv(STATE_DIR_VARIABLE, str(tmp_path / "state"))
    return tmp_path / "state"


@pytest.mark.parametrize(
    ("name", "bytes_per_s", "fp16"),
    [
        ("NVIDIA H200", 4.8e12, 989.4e12),
        ("NVIDIA H100 80GB HBM3", 3.352e12, 989.4e12),
        ("NVIDIA H100 PCIe", 2.039e12, 756e12),
        ("NVIDIA A100-SXM4-80GB", 2.039e12, 312e12),
        ("A100-SXM4-40GB", 1.555e12, 312e12),
        ("NVIDIA A100 80GB PCIe", 1.935e12, 312e12),
        ("Tesla V100-SXM2-16GB", 0.9e12, 125e12),
        ("Tesla T4", 0.32e12, 65e12),
        ("NVIDIA A10", 0.6e12, 125e12),
        ("NVIDIA A10G", 0.6e12, 70e12),
        ("NVIDIA GeForce RTX 4090", 1.008e12, 330.3e12),
        ("NVIDIA GeForce RTX 2080 Ti", 0.616e12, 113.8e12),
        ("GeForce RTX 2080 Ti", 0.616e12, 113.8e12),
        ("NVIDIA B300 SXM6 AC", 7.7e12, 2250e12),
        ("NVIDIA H800", 3.352e12, 989.4e12),
    ],
)
def test_a_known_product_has_its_data_sheets_figures(name, bytes_per_s, fp16):
    peak = peak_of(Gpu(platform="cuda", uuid="GPU-1", name=name))
    assert peak.source == "table"
    assert "NVIDIA" in peak.reference
    assert (peak.bytes_per_s, peak.flops_per_s["fp16"]) == (bytes_per_s, fp16)


@pytest.mark.parametrize(
    "name", ["NVIDIA H2000", "NVIDIA A10M", "NVIDIA GeForce RTX 4090 D", "NVIDIA H100", "NVIDIA H20", "AMD EPYC"]
)
def test_a_product_with_a_similar_name_is_another(name):
    assert peak_of(Gpu(platform="cuda", uuid="GPU-1", name=name)).source == "unknown"


def test_rows_are_whole_plausible_and_reachable():
    rows = peaks._table()
    assert len(rows) > 20
    for row in rows:
        assert "https://" in row.source
        assert 1e11 < row.bytes_per_s < 2e13
        assert row.flops_per_s.keys() <= {"fp64", "fp32", "tf32", "fp16", "bf16"}
        assert all(5e11 < rate < 1e16 for rate in row.flops_per_s.values())
        assert row.flops_per_s.get("bf16", 0) <= row.flops_per_s["fp16"]
        assert row.flops_per_s["fp32"] <= row.flops_per_s.get("tf32", row.flops_per_s["fp16"])
        for name in row.names:
            found = peak_of(Gpu(platform="cuda", uuid="GPU-1", name=name.replace("*", "NVIDIA ")))
            assert found.reference == row.source


def test_a_stranger_is_unknown_and_told_what_to_do():
    peak = peak_of(STRANGER)
    assert (peak.source, peak.bytes_per_s, peak.flops_per_s) == ("unknown", None, {})
    assert STRANGER.name in peak.reference
    assert "kernel-matrix gpus calibrate" in peak.reference


def test_a_calibrated_stranger_has_what_was_measured(state):
    path = write_calibration(STRANGER, MEASURED)
    assert path == state / "calibrations" / "GPU-1.json"
    peak = peak_of(STRANGER)
    assert (peak.source, peak.reference) == ("calibration", str(path))
    assert (peak.bytes_per_s, peak.flops_per_s) == (2.5e12, {"fp32": 4e13, "fp16": 3e14})


def test_a_calibration_keeps_how_it_was_measured():
    kept = json.loads(write_calibration(STRANGER, MEASURED).read_text())
    assert kept == {**MEASURED, "uuid": "GPU-1"}


def test_a_later_calibration_takes_the_place_of_the_earlier(state):
    write_calibration(STRANGER, MEASURED)
    write_calibration(STRANGER, {**MEASURED, "bytes_per_s": 3e12})
    assert peak_of(STRANGER).bytes_per_s == 3e12
    assert [path.name for path in (state / "calibrations").iterdir()] == ["GPU-1.json"]


def test_a_calibration_is_of_one_device_alone():
    write_calibration(STRANGER, MEASURED)
    twin = Gpu(platform="cuda", uuid="GPU-2", name=STRANGER.name)
    assert peak_of(twin).source == "unknown"
    calibration_file(STRANGER).rename(calibration_file(twin))
    peak = peak_of(twin)
    assert peak.source == "unknown"
    assert "belongs to GPU-1" in peak.reference


def test_the_table_comes_before_a_calibration():
    known = Gpu(platform="cuda", uuid="GPU-3", name="NVIDIA H200")
    write_calibration(known, MEASURED)
    assert peak_of(known).source == "table"


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({**MEASURED, "kind": "health"}, "not a calibration"),
        ([], "holds a list, not an object"),
        ({**MEASURED, "bytes_per_s": None}, "bytes_per_s is None"),
        ({**MEASURED, "bytes_per_s": -1}, "bytes_per_s is -1"),
        ({**MEASURED, "bytes_per_s": True}, "bytes_per_s is True"),
        ({**MEASURED, "bytes_per_s": float("inf")}, "expected a JSON value"),
        ({**MEASURED, "flops_per_s": None}, "flops_per_s"),
        ({**MEASURED, "flops_per_s": {"fp16": "fast"}}, "flops_per_s.fp16 is 'fast'"),
        ({**MEASURED, "flops_per_s": {"fp16": float("nan")}}, "expected a JSON value"),
    ],
)
def test_a_malformed_calibration_is_ignored_and_said_so(document, why):
    path = write_calibration(STRANGER, MEASURED)
    path.write_text(json.dumps({**document, "uuid": "GPU-1"} if isinstance(document, dict) else document))
    peak = peak_of(STRANGER)
    assert (peak.source, peak.bytes_per_s, peak.flops_per_s) == ("unknown", None, {})
    assert str(path) in peak.reference
    assert why in peak.reference


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe"])
def test_a_calibration_that_is_no_json_is_ignored_and_said_so(text):
    write_calibration(STRANGER, MEASURED).write_bytes(text)
    assert "is ignored" in peak_of(STRANGER).reference


def test_a_folder_that_is_none_is_ignored_and_said_so(state):
    state.mkdir()
    (state / "calibrations").write_text("")
    assert "is ignored" in peak_of(STRANGER).reference


def test_what_measured_nothing_is_not_kept():
    write_calibration(STRANGER, MEASURED)
    with pytest.raises(ValueError, match="bytes_per_s"):
        write_calibration(STRANGER, {**MEASURED, "bytes_per_s": 0.0})
    assert peak_of(STRANGER).bytes_per_s == 2.5e12


@pytest.mark.parametrize(
    ("uid", "folder"), [(0, "/var/lib/kernel-matrix"), (1000, "/home/her/.local/state/kernel-matrix")]
)
def test_state_is_kept_where_the_user_may_write(monkeypatch, uid, folder):
    monkeypatch.delenv(STATE_DIR_VARIABLE)
    monkeypatch.setenv("HOME", "/home/her")
    monkeypatch.setattr("os.geteuid", lambda: uid)
    assert str(calibration_folder()) == f"{folder}/calibrations"
