"""Properties of kernels, read from the assembly that Triton keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernel_matrix.platforms.rocm.inside.build.machine_code import kernel_of, kernels_in

ASSEMBLY = """\
\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"
\tv_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], v[0:15]
; Occupancy: 7
\t.amdgpu_metadata
amdhsa.kernels:
  - .agpr_count:     4
    .args:
      - .name:           a
        .offset:         0
    .group_segment_fixed_size: 512
    .max_flat_workgroup_size: 256
    .name:           scale
    .private_segment_fixed_size: 16
    .sgpr_count:     19
    .sgpr_spill_count: 0
    .symbol:         scale.kd
    .vgpr_count:     68
    .vgpr_spill_count: 3
    .wavefront_size: 64
\t.end_amdgpu_metadata
"""


def test_the_metadata_says_what_a_kernel_needs() -> None:
    kernel = kernel_of(ASSEMBLY, b"code", at_launch=1024)
    assert (kernel.name, kernel.compute_capability) == ("scale", "gfx942")
    assert (kernel.registers, kernel.accumulator_registers, kernel.scalar_registers) == (68, 4, 19)
    assert (kernel.spill_store_bytes, kernel.spill_load_bytes) == (12, 12)
    assert (kernel.shared_bytes, kernel.stack_bytes, kernel.threads) == (1536, 16, 256)
    assert kernel.matrix_instructions == ("mfma",)


def test_architectures_without_accumulators_have_none() -> None:
    kernel = kernel_of(ASSEMBLY.replace("  - .agpr_count:     4\n", ""), b"code")
    assert kernel.accumulator_registers is None


@pytest.mark.parametrize("lost", [".vgpr_count", ".symbol", "\t.amdgcn_target", ".max_flat_workgroup_size"])
def test_assembly_without_a_property_has_no_kernel(lost: str) -> None:
    with pytest.raises(ValueError, match="kernel"):
        kernel_of(ASSEMBLY.replace(lost, ".other"), b"code")


def test_a_number_that_no_compiler_writes_is_no_number() -> None:
    with pytest.raises(ValueError, match="vgpr_count"):
        kernel_of(ASSEMBLY.replace(".vgpr_count:     68", f".vgpr_count: {10**30}"), b"code")


def test_files_that_belong_to_no_kernel_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "alone.amdgcn").write_text(ASSEMBLY)
    (tmp_path / "broken.amdgcn").write_bytes(b"\xff\xfe")
    (tmp_path / "broken.hsaco").write_bytes(b"\x7fELF")
    assert kernels_in(tmp_path, "") == []
