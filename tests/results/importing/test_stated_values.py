"""GPU, toolchain and dtype: what files say, what folders are taken for, and what the user says."""

import pytest

from kernel_matrix.errors import UsageError
from tests.results.importing.made import load, only, put, timing

GOLDEN = [{"input_size": [[64, 32]], "ms": 0.25}]
CONTEXT = {"context": {"executable": "bench"}, "benchmarks": [{"name": "a", "real_time": 5.0, "time_unit": "ns"}]}


@pytest.mark.parametrize("folder", ["old", "golden_results", "results", "data", "timing", "run12", "v0.1"])
def test_ordinary_folder_is_no_gpu_and_that_is_noted(tmp_path, folder):
    report, rows = load(tmp_path, put(tmp_path / folder / "softmax.json", GOLDEN))
    assert (rows[0]["gpu"], rows[0]["hostname"], report.gpus) == (None, folder, 0)
    assert report.files[0].notes == (
        f"the GPU of 1 results is unknown: the folder {folder!r} does not name one; use --gpu",
    )


@pytest.mark.parametrize(
    "folder", ["a100", "H100_PCIe_LambdaLabs", "old-rtx4090", "mi300x", "MI300X_rocm", "gfx942", "rx7900xtx"]
)
def test_folder_with_a_model_number_is_the_gpu(tmp_path, folder):
    report, rows = load(tmp_path, put(tmp_path / folder / "softmax.json", GOLDEN))
    assert (rows[0]["gpu"], report.files[0].notes) == (folder, ())


def test_folder_that_is_no_gpu_leaves_what_the_hardware_said(tmp_path):
    row = only(tmp_path, put(tmp_path / "old" / "baseline_time_torch.json", {"level1": {"1_A.py": timing()}}))
    assert (row["gpu"], row["gpu_name"]) == ("NVIDIA L4", "NVIDIA L4")


@pytest.mark.parametrize("folder", ["old", "A100_modal"])
def test_stated_gpu_counts_more_than_a_folder(tmp_path, folder):
    row = only(tmp_path, put(tmp_path / folder / "softmax.json", GOLDEN), gpu="h200")
    assert row["gpu"] == "h200"


def test_stated_values_fill_what_a_file_lacks(tmp_path):
    stated = {"gpu": "L4", "toolchain": "cu128", "dtype": "torch.float16"}
    row = only(tmp_path, put(tmp_path / "x" / "b.json", CONTEXT), **stated)
    assert (row["gpu"], row["toolchain"], row["dtype"]) == ("L4", "cu128", "fp16")


def test_two_toolchains_are_two_cells(tmp_path):
    path = put(tmp_path / "x" / "b.json", CONTEXT)
    cells = {only(tmp_path, path, toolchain=name)["cell_id"] for name in ("cu126", "cu128", None)}
    assert len(cells) == 3


@pytest.mark.parametrize(
    ("stated", "gpu", "notes"),
    [
        ("L40S", "L40S", 0),
        ("nvidia l40s", "nvidia l40s", 0),
        ("H100", "NVIDIA L40S", 1),
        ("L40", "NVIDIA L40S", 1),
    ],
)
def test_stated_gpu_shortens_but_never_contradicts(tmp_path, stated, gpu, notes):
    evaluated = {"compiled": True, "correctness": True, "metadata": {"hardware": "NVIDIA L40S"}, "runtime": 1.0}
    path = put(tmp_path / "run_level1" / "eval_results.json", {"1": evaluated})
    report, rows = load(tmp_path, path, gpu=stated)
    assert (rows[0]["gpu"], rows[0]["gpu_name"], len(report.files[0].notes)) == (gpu, "NVIDIA L40S", notes)
    assert all(
        note == f"--gpu {stated} is not used where the file itself says NVIDIA L40S" for note in report.files[0].notes
    )


@pytest.mark.parametrize(
    ("hardware", "stated", "gpu", "notes"),
    [
        ("gfx942", None, "gfx942", 0),
        ("gfx942", "MI300X", "MI300X", 0),
        ("gfx942:sramecc+:xnack-", "MI300X", "MI300X", 0),
        ("gfx942", "gfx950", "gfx942", 1),
        ("AMD Instinct MI300X", "MI300X", "MI300X", 0),
        ("AMD Instinct MI300X", "gfx942", "AMD Instinct MI300X", 1),
    ],
)
def test_stated_gpu_is_the_product_of_an_architecture(tmp_path, hardware, stated, gpu, notes):
    evaluated = {"compiled": True, "correctness": True, "metadata": {"hardware": hardware}, "runtime": 1.0}
    path = put(tmp_path / "run_level1" / "eval_results.json", {"1": evaluated})
    report, rows = load(tmp_path, path, gpu=stated)
    assert (rows[0]["gpu"], rows[0]["gpu_name"], len(report.files[0].notes)) == (gpu, hardware, notes)


def test_dtype_of_the_file_stays_and_is_noted(tmp_path):
    task = {"call_ok": True, "exe_ok": True, "dtype": "float32", "performance": GOLDEN}
    report, rows = load(tmp_path, put(tmp_path / "m" / "metrics.json", {"Math/a.py": task}), dtype="bf16")
    assert rows[0]["dtype"] == "fp32"
    assert report.files[0].notes == ("--dtype bf16 is not used where the file itself says fp32",)


def test_unknown_dtype_names_the_known_ones(tmp_path):
    put(tmp_path / "x" / "b.json", CONTEXT)
    with pytest.raises(UsageError, match="--dtype 'fb16' is not known; did you mean 'fp16'") as refused:
        load(tmp_path, dtype="fb16")
    assert "fp32, fp16, bf16" in refused.value.next_step
