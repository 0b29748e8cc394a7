"""Cells compiled by the real builder: kernels known, problems kept from candidates, nothing compiled twice."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_matrix.attempt import RunContext
from kernel_matrix.attempt.buildcache import BuildCache
from kernel_matrix.attempt.candidate_build import build_for
from kernel_matrix.attempt.role_specs import CellPlacement
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.model.enums import Language, Status
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.cuda.inside.build.nvcc_wrapper import find_nvcc
from kernel_matrix.sandboxes import ProcessLabels, open_sandbox
from kernel_matrix.sources import Workload

H200 = Gpu(platform="cuda", uuid="GPU-1", name="NVIDIA H200", compute_capability="9.0")

PROBLEM = """
import torch
ROWS = 1
SECRET = "the answer is " + "forty-two"
class Model(torch.nn.Module): pass
def get_inputs(): return [torch.rand(ROWS, 64)]
def get_init_inputs(): return []
"""

FAILS = PROBLEM.replace('"forty-two"\n', '"forty-two" + str(torch.rand(1).item())\n')
"""A traceback of it holds the line that nobody is to see."""

DOUBLES = """
import torch, triton, triton.language as tl

@triton.jit
def double_kernel(x, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at))

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        double_kernel[(x.shape[0],)](x, y, BLOCK=64)
        return y
"""

SNOOPS = """
import os, sys
wanted = bytes(reversed(b'owt-ytrof" + " si rewsna eht'))
found = [m for m, module in sys.modules.items() if "SECRET" in vars(module)]
with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
    for line in maps:
        span, rights, *_, = line.split()
        start, end = (int(part, 16) for part in span.split("-"))
        if rights.startswith("rw"):
            try:
                memory.seek(start)
                held = memory.read(end - start)
            except (OSError, OverflowError, ValueError):
                continue
            # The bytes sought are themselves in memory, but not with what stands before them in the source.
            found += [line for _ in [0] if b"SECRET = " + b'"' + wanted in held]
for folder, _, names in os.walk("/tmp"):
    paths = [os.path.join(folder, name) for name in names if name.startswith("problem")]
    found += [path for path in paths if os.path.isfile(path) and wanted in open(path, "rb").read()]
raise ValueError(f"found: {found}")
"""


@pytest.fixture(scope="module")
def sandbox():
    return open_sandbox("process")


@pytest.fixture
def compiled(stage, sandbox, tmp_path):
    """Compiles a source for an H200 in a process of its own."""
    problem = tmp_path / "problem.py"
    cache = BuildCache(tmp_path / "builds")
    owner = owner_token()
    bench = RunContext(run_id="r", sandbox=sandbox, sandbox_status=sandbox.status(), owner=owner, scratch=stage.scratch)

    def build(source, language, problem_source=PROBLEM):
        problem.write_text(problem_source)
        cell = stage.cell("built", source=source)
        cell = replace(
            cell,
            problem=replace(cell.problem, path=problem),
            candidate=replace(cell.candidate, language=language),
            workloads=tuple(Workload(name=str(rows), values={"ROWS": rows}) for rows in (32, 64)),
        )
        labels = ProcessLabels(run_id="r", cell_id=cell.id, session=0, gpu_uuid="", owner=owner)
        return build_for(CellPlacement(cell=cell, gpu=H200, image=None, labels=labels), bench, cache)

    return build


@pytest.mark.torch
def test_triton_compiles_ahead_once_and_tells_of_its_kernels(compiled):
    first, second = (compiled(DOUBLES, Language.TRITON) for _ in range(2))
    assert [(kernel.name, kernel.arch) for kernel in first.seen.kernels] == [("double_kernel", 90)]
    assert "Function properties for double_kernel" in first.seen.log_tail
    assert (first.seen.cached, second.seen.cached) == (False, True)
    assert first.artifact.read_bytes() == second.artifact.read_bytes()
    assert replace(second.seen, seconds=first.seen.seconds, cached=False) == first.seen


@pytest.mark.torch
@pytest.mark.parametrize("problem", [PROBLEM, FAILS], ids=["works", "fails"])
def test_build_candidate_cannot_find_the_problem(problem, compiled):
    outcome = compiled(SNOOPS, Language.TRITON, problem).outcome
    assert outcome.status is Status.LOAD_ERROR
    assert outcome.evidence.message == "ValueError: found: []"


NVCC = """
import os, subprocess
from pathlib import Path
folder = Path(os.environ["TORCH_EXTENSIONS_DIR"]) / "kernel"
folder.mkdir(parents=True)
(folder / "kernel.cu").write_text('''
template <typename T> __global__ void scale(T* x, T s) { __shared__ T part[32]; part[threadIdx.x] = x[threadIdx.x];
  __syncthreads(); x[threadIdx.x] = s * part[threadIdx.x ^ 1]; }
extern "C" void go(float* x) { scale<float><<<1, 32>>>(x, 2); }
''')
flags = " -gencode=arch=compute_90a,code=sm_90a -shared -Xcompiler -fPIC kernel.cu -o k.so"
command = os.environ["PYTORCH_NVCC"] + flags
done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, text=True)
if done.returncode:
    raise RuntimeError("Error building extension 'k': [1/1] nvcc\\n" + done.stdout + done.stderr)
"""


@pytest.fixture
def nvcc():
    if find_nvcc() is None or shutil.which("g++") is None:
        pytest.skip("no nvcc, or no host compiler for it")


@pytest.mark.usefixtures("nvcc")
def test_what_nvcc_makes_of_a_kernel_is_known(compiled):
    seen = compiled(NVCC, Language.CUDA).seen
    (kernel,) = seen.kernels
    assert kernel.name == "void scale<float>(float*, float)"
    assert (kernel.arch, kernel.shared_bytes, kernel.spill_store_bytes, kernel.launchable) == (90, 128, 0, True)
    assert f"Used {kernel.registers} registers" in seen.log_tail
    assert seen.arch == "9.0a"


@pytest.mark.usefixtures("nvcc")
def test_what_nvcc_refuses_is_told_with_the_line_it_points_at(compiled):
    outcome = compiled(NVCC.replace("s * part", "s * nothing"), Language.CUDA).outcome
    assert outcome.status is Status.COMPILE_ERROR
    assert outcome.evidence.message == 'kernel.cu(3): error: identifier "nothing" is undefined'
    assert "x[threadIdx.x] = s * nothing" in outcome.evidence.log
    assert "ptxas info" not in outcome.evidence.log


def test_local_compilers_are_told_apart(compiled, monkeypatch):
    from kernel_matrix.attempt import candidate_build  # noqa: PLC0415  # its private state is what is looked at

    keys = []
    for prefix in (sys.prefix, str(Path("/another/python"))):
        candidate_build._local_toolchain.cache_clear()
        monkeypatch.setattr(sys, "prefix", prefix)
        keys.append(compiled("x = 1", Language.CUDA).seen.key)
    candidate_build._local_toolchain.cache_clear()
    assert len(set(keys)) == 2
