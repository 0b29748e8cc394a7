from __future__ import annotations

from pathlib import Path

import pytest

from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.platforms.cuda.compatibility import compatibility, read_compatibility
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.platforms.versions import parse_version

ROOT = Path(__file__).parents[3]
TABLE = compatibility()


def rows():
    return [*TABLE.drivers, *TABLE.toolkits, *TABLE.wheels, *TABLE.limits.languages, *TABLE.limits.dtypes]


def test_every_row_names_its_source():
    for row in rows():
        assert len(row.source) > 10, row
        assert row.confidence in ("documented", "recalled"), row


def test_every_row_speaks_of_words_that_exist():
    for row in (*TABLE.limits.languages, *TABLE.limits.dtypes):
        assert {Language(name) for name in row.languages}
    assert all(Dtype(row.dtype) for row in TABLE.limits.dtypes)


def test_the_shipped_toolchains_are_covered():
    for toolchain in load_matrix(ROOT / "matrix.toml").toolchains:
        if toolchain.cuda is not None:
            assert TABLE.gaps(cuda=toolchain.cuda, torch=toolchain.torch) == ()


def test_a_row_without_a_source_is_refused(tmp_path):
    text = (ROOT / "runner" / "kernel_matrix" / "platforms" / "cuda" / "compatibility.toml").read_text()
    first = next(line for line in text.splitlines() if line.startswith("source"))
    (tmp_path / "compat.toml").write_text(text.replace(first, "", 1))
    with pytest.raises(TypeError, match="source"):
        read_compatibility(tmp_path / "compat.toml")


@pytest.mark.parametrize(
    ("cuda", "driver", "runs"),
    [
        ("12.8", "470.57.02", False),
        ("12.8", "525.60.12", False),
        ("12.8", "525.60.13", True),
        ("12.8", "535.104.05", True),
        ("13.0", "570.26", False),
        ("13.0", "580.65.06", True),
        ("12.4", "580.159.04", True),
        ("12.8", None, True),
        ("99.0", "470.57.02", True),
    ],
)
def test_a_major_version_of_cuda_needs_its_oldest_driver(cuda, driver, runs):
    assert (TABLE.driver_skip_reason(cuda=cuda, driver=driver) is None) is runs


def test_driver_skip_reason_has_the_numbers():
    text = TABLE.driver_skip_reason(cuda="12.8", driver="470.57.02", cuda_driver="11.4")
    assert text == "driver 470.57.02 runs CUDA up to 11.4; CUDA 12.8 needs driver 525.60.13 or newer"


@pytest.mark.parametrize(("driver", "noted"), [("535.104.05", True), ("570.26", False), (None, False)])
def test_minor_version_compatibility_is_noted(driver, noted):
    assert (TABLE.driver_note(cuda="12.8", driver=driver) is not None) is noted


@pytest.mark.parametrize(
    ("cuda", "torch", "capability", "runs"),
    [
        ("12.4", "2.6.0", "9.0", True),
        ("12.4", "2.6.0", "10.0", False),
        ("12.4", "2.6.0", "8.9", True),  # by the 8.6 cubin
        ("12.8", "2.7.1", "7.0", False),
        ("12.8", "2.8.0", "7.0", True),
        ("12.8", "2.10.0", "7.0", True),  # 2.10 comes after 2.9
        ("12.8", "2.11.0", "7.0", False),
        ("13.0", "2.11.0+cu130", "10.3", True),
        ("13.0", "2.11.0", "7.0", False),
        ("12.6", "2.9.1", "12.0", False),
        ("13.0", "2.11.0", None, True),
    ],
)
def test_a_device_needs_machine_code_of_its_major_version(cuda, torch, capability, runs):
    found = TABLE.code_skip_reason(cuda=cuda, torch=torch, compute_capability=capability, driver=None)
    assert (found is None) is runs


def test_ptx_serves_newer_devices_when_the_driver_can_compile_it():
    ask = {"cuda": "12.9", "torch": "2.8.0", "compute_capability": "13.0"}
    assert TABLE.code_skip_reason(**ask, driver="575.51.03") is None
    assert "570.26 is too old to compile its PTX" in TABLE.code_skip_reason(**ask, driver="570.26")


def test_a_missing_cubin_is_told_with_what_there_is():
    text = TABLE.code_skip_reason(cuda="12.4", torch="2.6.0", compute_capability="10.0", driver=None)
    assert "torch 2.6.0 for CUDA 12.4 has machine code for 5.0, 6.0" in text
    assert "compute capability 10.0" in text


@pytest.mark.parametrize(
    ("language", "platform", "capability", "runs"),
    [
        (Language.CUDA, "cpu", None, False),
        (Language.TRITON, "cpu", None, True),
        (Language.TRITON, "cuda", "6.1", False),
        (Language.TRITON, "cuda", "7.0", True),
        (Language.TRITON, "cuda", None, True),
        (Language.TORCH, "cuda", "6.1", True),
        (Language.CUTE_DSL, "cpu", None, False),
        (Language.CUTE_DSL, "cuda", "7.5", False),
        (Language.CUTE_DSL, "cuda", "8.0", True),
        (Language.TILELANG, "cpu", None, True),
        (Language.HIP, "cpu", None, False),
        (Language.HIP, "cuda", "9.0", False),
    ],
)
def test_languages(language, platform, capability, runs):
    found = get_platform(platform).language_skip_reason(language, capability)
    assert (found is None) is runs


@pytest.mark.parametrize(
    ("dtype", "language", "platform", "capability", "right"),
    [
        (Dtype.BF16, Language.TRITON, "cpu", None, False),
        (Dtype.FP16, Language.TRITON, "cpu", None, True),
        (Dtype.BF16, Language.TORCH, "cpu", None, True),
        (Dtype.BF16, Language.TRITON, "cuda", "7.5", False),
        (Dtype.BF16, Language.CUDA, "cuda", "7.5", False),
        (Dtype.BF16, Language.TRITON, "cuda", "8.0", True),
        (Dtype.BF16, Language.TRITON, "cuda", "10.0", True),
        (Dtype.FP64, Language.TRITON, "cuda", "7.5", True),
        (Dtype.BF16, Language.TILELANG, "cuda", "7.5", False),
        (Dtype.FP8_E4M3, Language.CUTE_DSL, "cuda", "7.5", False),
        (Dtype.TF32, Language.TORCH, "cuda", "7.5", False),
        (Dtype.TF32, Language.TRITON, "cuda", "8.0", True),
        (Dtype.TF32, Language.TORCH, "cpu", None, True),
        (Dtype.FP8_E4M3, Language.TRITON, "cuda", "8.6", False),
        (Dtype.FP8_E4M3, Language.TRITON, "cuda", "8.9", True),
        (Dtype.FP8_E4M3, Language.CUDA, "cuda", "8.6", True),
        (Dtype.FP8_E5M2, Language.TRITON, "cuda", "8.6", True),
        (Dtype.FP8_E5M2, Language.CUDA, "cuda", "7.5", False),
        (Dtype.FP8_E5M2, Language.TRITON, "cpu", None, False),
        (Dtype.FP8_E4M3, Language.TORCH, "cpu", None, True),
        (Dtype.INT8, Language.TRITON, "cpu", None, True),
        (Dtype.BOOL, Language.CUDA, "cuda", "7.5", True),
    ],
)
def test_dtypes(dtype, language, platform, capability, right):
    found = get_platform(platform).dtype_skip_reason(dtype, language, capability)
    assert (found is None) is right


@pytest.mark.parametrize(
    ("cuda", "torch", "words"),
    [
        ("12.8", "2.9.0", []),
        ("14.0", "3.0.0", ["CUDA 14.0", "torch 3.0.0"]),
        ("12.8", "2.6.0", ["torch 2.6.0"]),
        ("12.7", "2.9.0", ["CUDA 12.7", "torch 2.9.0"]),
        ("13.0", "nightly", ["torch nightly"]),
    ],
)
def test_versions_unknown_to_the_table_are_named_and_not_refused(cuda, torch, words):
    gaps = TABLE.gaps(cuda=cuda, torch=torch)
    assert len(gaps) == len(words)
    assert all(word in gap for word, gap in zip(words, gaps, strict=True))
    if words:
        assert TABLE.code_skip_reason(cuda=cuda, torch=torch, compute_capability="5.0", driver=None) is None


@pytest.mark.parametrize(
    ("text", "version"),
    [("2.13.0+cpu", (2, 13, 0)), ("12.8", (12, 8)), ("2.9.0a0", (2, 9, 0)), ("x", None), (None, None)],
)
def test_versions(text, version):
    assert parse_version(text) == version
