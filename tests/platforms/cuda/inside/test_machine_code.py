"""Machine code is read as the assembler that made it tells of it, and hostile bytes are refused in words."""

from __future__ import annotations

import json
import random
import re
import shutil
import struct
import subprocess
import sysconfig
from contextlib import suppress
from pathlib import Path

import pytest

from kernel_matrix.inside.build.elf import read_elf
from kernel_matrix.platforms.cuda.inside.build.machine_code import cubins_of, demangled, kernels_in, kernels_of
from kernel_matrix.platforms.cuda.inside.build.ptxas_log import Spills, spills_of

TOOLS = Path(sysconfig.get_paths()["purelib"]) / "triton" / "backends" / "nvidia" / "bin"
ARCHITECTURES = {75: "ptxas", 80: "ptxas", 89: "ptxas", 90: "ptxas", 100: "ptxas-blackwell", 120: "ptxas-blackwell"}

PTX = """
.version 8.0
.target sm_{arch}
.address_size 64
.visible .entry _Z5scalePfi(.param .u64 x, .param .u32 n)
{{
  .reg .b32 %r<4>; .reg .f32 %f<3>; .reg .b64 %rd<4>;
  .shared .align 4 .b8 part[512];
  mov.u32 %r1, %tid.x;
  ld.param.u64 %rd1, [x];
  cvta.to.global.u64 %rd2, %rd1;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd2, %rd2, %rd3;
  ld.global.f32 %f1, [%rd2];
  mov.u32 %r2, part;
  st.shared.f32 [%r2], %f1;
  bar.sync 0;
  ld.shared.f32 %f2, [%r2+4];
  {operation}.f32 %f2, %f2, %f1;
  st.global.f32 [%rd2], %f2;
  ret;
}}
.visible .entry idle() {{ ret; }}
"""


def assemble(folder: Path, arch: int = 90, operation: str = "mul", *more: str) -> tuple[bytes, str]:
    """A cubin and what its assembler said of it."""
    tool = TOOLS / ARCHITECTURES[arch]
    if not tool.exists():
        pytest.skip("no ptxas beside Triton")
    source, target = folder / "kernel.ptx", folder / "kernel.cubin"
    version = PTX.replace("8.0", "8.7", 1) if arch >= 100 else PTX
    source.write_text(version.format(arch=arch, operation=operation))
    done = subprocess.run(
        (tool, "-v", *more, f"--gpu-name=sm_{arch}", source, "-o", target), capture_output=True, text=True, check=True
    )
    return target.read_bytes(), done.stderr


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_registers_stack_and_shared_memory_match_the_assembler(arch, tmp_path):
    cubin, log = assemble(tmp_path, arch)
    kernels = {kernel.name: kernel for kernel in kernels_of(cubin, spills_of(log))}
    assert set(kernels) == {"scale(float*, int)", "idle"}
    told = dict(re.findall(r"Function properties for (\S+)\n[^\n]*\nptxas\S* info +: Used (\d+) registers", log))
    assert kernels["scale(float*, int)"].registers == int(told["_Z5scalePfi"])
    assert kernels["idle"].registers == int(told["idle"])
    assert "512 bytes smem" in log
    assert [kernels[name].shared_bytes for name in ("scale(float*, int)", "idle")] == [512, 0]
    assert {(kernel.compute_capability, kernel.stack_bytes) for kernel in kernels.values()} == {
        (f"{arch // 10}.{arch % 10}", 0)
    }


def test_equal_code_has_equal_digests_and_other_code_another(tmp_path):
    first, _ = assemble(tmp_path)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    again, _ = assemble(moved, 90, "mul", "-lineinfo")
    other, _ = assemble(tmp_path, 90, "add")
    digests = [{kernel.name: kernel.sha256 for kernel in kernels_of(cubin, {})} for cubin in (first, again, other)]
    assert first != again  # the file knows where it comes from, the code does not
    assert digests[0] == digests[1]
    assert digests[0]["idle"] == digests[2]["idle"]
    assert len({digests[0]["idle"], digests[0]["scale(float*, int)"], digests[2]["scale(float*, int)"]}) == 3


def test_code_that_reads_other_constants_is_other_code(tmp_path, monkeypatch):
    table = ".const .align 4 .f32 factor = 0f{value};\n.visible .entry _Z5scalePfi"
    digests = []
    for value in ("40000000", "40400000"):
        source = PTX.replace(".visible .entry _Z5scalePfi", table.replace("{value}", value))
        source = source.replace("ld.shared.f32 %f2, [%r2+4];", "ld.const.f32 %f2, [factor];")
        monkeypatch.setattr(f"{__name__}.PTX", source)
        digests.append({kernel.name: kernel.sha256 for kernel in kernels_of(assemble(tmp_path)[0], {})})
        monkeypatch.undo()
    assert digests[0]["scale(float*, int)"] != digests[1]["scale(float*, int)"]


LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5heavyPfi' for 'sm_90a'
ptxas info    : Function properties for _Z5helpf
    8 bytes stack frame, 7 bytes spill stores, 7 bytes spill loads
ptxas info    : Function properties for _Z5heavyPfi
    440 bytes stack frame, 812 bytes spill stores, 948 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 440 bytes cumulative stack size
ptxas info    : Compiling entry function '_Z5heavyPfi' for 'sm_75'
ptxas info    : Function properties for _Z5heavyPfi
    168 bytes stack frame, 336 bytes spill stores, 360 bytes spill loads
"""


def test_spills_are_told_for_each_kernel_and_architecture():
    assert spills_of(LOG) == {("_Z5heavyPfi", 90): Spills(812, 948), ("_Z5heavyPfi", 75): Spills(336, 360)}
    assert spills_of("nothing of the kind") == {}


def test_spills_come_from_the_log(tmp_path):
    cubin, _ = assemble(tmp_path)
    told = {("_Z5scalePfi", 90): Spills(812, 948), ("_Z5scalePfi", 80): Spills(1, 1)}
    spilled = {kernel.name: (kernel.spill_store_bytes, kernel.spill_load_bytes) for kernel in kernels_of(cubin, told)}
    assert spilled == {"scale(float*, int)": (812, 948), "idle": (0, 0)}


def fat(*parts: tuple[int, bytes]) -> bytes:
    """A fat binary of (kind, payload)."""
    body = b"".join(struct.pack("<HHIQ", kind, 0x101, 64, len(data)) + bytes(48) + data for kind, data in parts)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(folder: Path, fatbin: bytes) -> Path:
    """A host library that holds ``fatbin`` where nvcc would put it."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to make a library with")
    (folder / "fat.bin").write_bytes(fatbin)
    (folder / "lib.c").write_text('__asm__(".section .nv_fatbin,\\"a\\"\\n.incbin \\"fat.bin\\"\\n.previous");')
    subprocess.run(("gcc", "-shared", "-o", "lib.so", "lib.c"), cwd=folder, check=True)
    return folder / "lib.so"


def test_library_yields_only_the_cubins_of_all_its_fat_binaries(tmp_path):
    first, second = assemble(tmp_path)[0], assemble(tmp_path, 80)[0]
    ptx, compressed = (1, b"\n.version 8.0  "), (2, b"\x28\xb5\x2f\xfd compressed")
    made = library(tmp_path, fat(ptx, (2, first)) + bytes(8) + fat(compressed, (2, second)))
    assert list(cubins_of(made.read_bytes())) == [first, second]


def test_a_folder_gives_each_kernel_once(tmp_path):
    cubin, log = assemble(tmp_path)
    library(tmp_path, fat((2, cubin)))
    (tmp_path / "deeper").mkdir()
    shutil.copy(tmp_path / "kernel.cubin", tmp_path / "deeper" / "twin.cubin")
    (tmp_path / "broken.so").write_bytes(b"\x7fELF\x02\x01 and no more")
    (tmp_path / "gone.so").symlink_to("nowhere")
    assert sorted(kernel.name for kernel in kernels_in(tmp_path, log)) == ["idle", "scale(float*, int)"]


def test_memory_that_triton_asks_for_at_launch_counts(tmp_path):
    assemble(tmp_path)
    (tmp_path / "kernel.json").write_text(json.dumps({"shared": 4096}))
    shared = {kernel.name: kernel.shared_bytes for kernel in kernels_in(tmp_path, "")}
    assert shared == {"scale(float*, int)": 4608, "idle": 4096}


def test_broken_machine_code_is_refused_or_has_no_kernel(tmp_path):
    cubin, _ = assemble(tmp_path)
    draw = random.Random(7)
    for _ in range(300):
        broken = bytearray(cubin[: draw.randrange(len(cubin) + 1)])
        for _ in range(draw.randrange(20)):
            if broken:
                broken[draw.randrange(min(len(broken), 4096))] = draw.randrange(256)
        with suppress(ValueError):
            list(kernels_of(bytes(broken), {}))
    for junk in (b"", b"MZ", cubin[:40]):
        with pytest.raises(ValueError, match="ELF"):
            read_elf(junk)


def test_names_are_as_they_stand_in_the_source():
    assert demangled("_Z12scale_kernelIfEvPT_fi") == "void scale_kernel<float>(float*, float, int)"
    assert demangled("softmax_kernel") == "softmax_kernel"
    assert demangled("_Z") == "_Z"
