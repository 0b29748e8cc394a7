"""Which drivers and GPUs a ROCm toolchain runs on, from the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.platforms.rocm.compatibility import compatibility, read_compatibility
from kernel_matrix.platforms.versions import is_older

ROOT = Path(__file__).parents[3]
TABLE = compatibility()
AMD = get_platform("rocm")
ROCM72 = {"rocm": "7.2", "torch": "2.10.0", "triton": "3.6.0"}


def test_every_row_names_its_source() -> None:
    for row in (*TABLE.drivers, *TABLE.wheels, *TABLE.limits.languages, *TABLE.limits.dtypes):
        assert len(row.source) > 10, row
        assert row.confidence in ("documented", "recalled"), row


def test_every_row_speaks_of_words_that_exist() -> None:
    for row in (*TABLE.limits.languages, *TABLE.limits.dtypes):
        assert {Language(name) for name in row.languages}
    assert all(Dtype(row.dtype) for row in TABLE.limits.dtypes)
    assert all(is_older(row.minimum, row.before) for row in TABLE.drivers if row.before)


def test_the_shipped_toolchains_are_covered() -> None:
    for toolchain in load_matrix(ROOT / "matrix.toml").toolchains:
        assert AMD.toolchain_gaps(toolchain.versions) == ()


def test_a_row_without_a_source_is_refused(tmp_path: Path) -> None:
    text = (ROOT / "runner/kernel_matrix/platforms/rocm/compatibility.toml").read_text()
    first = next(line for line in text.splitlines() if line.startswith("source"))
    (tmp_path / "compat.toml").write_text(text.replace(first, "", 1))
    with pytest.raises(TypeError, match="source"):
        read_compatibility(tmp_path / "compat.toml")


@pytest.mark.parametrize(
    ("rocm", "driver", "runs"),
    [
        ("7.2", "6.10.5", False),
        ("7.2", "6.12.12", True),
        ("7.2.4", "6.8.5", False),
        ("7.0", "6.8.5", True),
        ("7.14", "6.12.12", False),
        ("7.14", "6.14.14", True),
        ("6.4", "6.7.0", True),
        ("7.2", "6.8.0-49-generic", True),  # the module of Linux, not AMD's 6.8.0
        ("7.2", "Linux version 6.8.0", True),
        ("7.2", None, True),
        ("99.0", "1.0", True),
    ],
)
def test_a_release_of_rocm_needs_its_oldest_driver(rocm: str, driver: str | None, *, runs: bool) -> None:
    gpu = Gpu(platform="rocm", uuid="a", name="AMD Instinct MI300X", driver=driver)
    assert (AMD.driver_skip_reason({"rocm": rocm}, gpu) is None) is runs


@pytest.mark.parametrize(
    ("rocm", "driver", "noted"),
    [("6.2", "6.14.14", False), ("6.2", "6.16.6", True), ("7.2", "6.19.14", False), ("6.2", None, False)],
)
def test_a_driver_newer_than_its_list_is_noted(rocm: str, driver: str | None, *, noted: bool) -> None:
    assert (AMD.driver_note({"rocm": rocm}, driver) is not None) is noted


@pytest.mark.parametrize(
    ("rocm", "torch", "architecture", "runs"),
    [
        ("7.2", "2.10.0", "gfx942", True),
        ("7.2", "2.10.0+rocm7.2.4", "gfx950", True),
        ("7.2", "2.10.0", "gfx1103", False),
        ("6.4", "2.8.0", "gfx950", False),
        ("6.4", "2.8.0", "gfx1201", True),
        ("6.2", "2.5.1", "gfx1201", False),
        ("7.2", "2.10.0", None, True),
        ("7.2", "99.0", "gfx1103", True),
    ],
)
def test_a_device_needs_code_of_its_architecture(
    rocm: str, torch: str, architecture: str | None, *, runs: bool
) -> None:
    assert (AMD.code_skip_reason({"rocm": rocm, "torch": torch}, architecture, None) is None) is runs


def test_a_toolchain_without_rocm_only_compiles() -> None:
    assert "has no ROCm" in str(AMD.code_skip_reason({"cuda": "12.8", "torch": "2.9.0"}, "gfx942", None))
    nothing = Gpu(platform="rocm", uuid="a", name="AMD Instinct MI300X", driver="1.0")
    assert AMD.driver_skip_reason({"torch": "2.9.0"}, nothing) is None
    assert AMD.driver_note({"torch": "2.9.0"}, "1.0") is None
    assert AMD.toolchain_gaps({"torch": "2.9.0"}) == ()


def test_unknown_versions_are_named() -> None:
    assert AMD.toolchain_gaps(ROCM72) == ()
    drivers, architectures = AMD.toolchain_gaps({**ROCM72, "rocm": "99.0"})
    assert "ROCm 99.0 is not in the compatibility table: drivers" in drivers
    assert "torch 2.10.0 for ROCm 99.0" in architectures


@pytest.mark.parametrize("dtype", [Dtype.FP8_E4M3, Dtype.FP8_E5M2])
@pytest.mark.parametrize("language", [Language.TRITON, Language.HIP, Language.TORCH])
def test_fp8_of_cells_is_that_of_newer_architectures(dtype: Dtype, language: Language) -> None:
    assert "FNUZ" in str(AMD.dtype_skip_reason(dtype, language, "gfx942"))
    for architecture in ("gfx950", "gfx1201", "gfx90a", None):
        assert AMD.dtype_skip_reason(dtype, language, architecture) is None


def test_tf32_is_computed_on_no_amd_gpu() -> None:

    assert "would compute in fp32" in str(AMD.dtype_skip_reason(Dtype.TF32, Language.TORCH, "gfx942"))
    assert AMD.dtype_skip_reason(Dtype.BF16, Language.TORCH, "gfx942") is None
