"""Names of kernels, and traces: of Triton's interpreter on a CPU, of CUPTI on a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernel_matrix.inside.platform import load_platform
from kernel_matrix.inside.wire import MAX_KERNELS
from kernel_matrix.inside.worker.tracing import own, trace


@pytest.mark.parametrize(
    "name",
    [
        "softmax_kernel",
        "void softmax_kernel<float>(float const*, float*, int)",
        "void softmax_kernel<float, 4, (Mode)1>(std::pair<int, int>, float*)",
        "softmax_kernel(float const*, int)",
        "(anonymous namespace)::softmax_kernel(float*)",
        "void mine::inner::softmax_kernel<c10::Half>(c10::Half*)",
        "_Z14softmax_kernelPKfPfi",
        "_ZL14softmax_kernelPf",
        "_Z14softmax_kernelIfEvPT_",
        "_ZN4mine14softmax_kernelIfEEvPT_",
        "_ZN12_GLOBAL__N_114softmax_kernelEPf",
        "softmax_kernel_0d1d2de",
        "softmax_kernel_0d1d2c3de",
    ],
)
def test_a_kernel_of_ones_own(name: str) -> None:
    assert own(name, ("other", "softmax_kernel"))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "softmax",
        "softmax_kernel_backward",
        "void my_softmax_kernel<float>(float*)",
        "void at::native::softmax_kernel<float>(float*)",
        "_ZN2at6native14softmax_kernelIfEEvPT_",
        "void cub::softmax_kernel(int)",
        "Memcpy DtoD (Device -> Device)",
        "ampere_sgemm_128x64_nn",
        "void elementwise_kernel<softmax_kernel>(softmax_kernel)",
    ],
)
def test_a_kernel_of_somebody_elses(name: str) -> None:
    assert not own(name, ("softmax_kernel",))


@pytest.mark.torch
def test_a_call_without_kernels_has_an_empty_trace() -> None:
    assert trace(lambda: 7, load_platform("cpu")) == (7, [])


def test_what_is_raised_inside_comes_out() -> None:
    def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trace(fail, load_platform("cpu"))


KERNEL = """
@triton.jit
def {name}(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
"""

INTERPRETED = """
import json, torch, triton, triton.language as tl
from kernel_matrix.inside.platform import load_platform
from kernel_matrix.inside.worker.tracing import trace
{kernels}
x = torch.zeros(8)
kernels = [{names}]

def call():
    for kernel in kernels:
        kernel[(1,)](x, 8, BLOCK=8)
    return float(x[0])

returned, seen = trace(call, load_platform("cpu"))
kernels[0][(1,)](x, 8, BLOCK=8)
print(json.dumps([returned, seen, len(trace(lambda: None, load_platform("cpu"))[1])]))
"""


def interpreted(tmp_path: Path, *names: str) -> Any:
    """(what the call returned, its trace, length of a trace of nothing) of kernels launched by these names."""
    script = tmp_path / "script.py"
    kernels = "".join(KERNEL.format(name=name) for name in dict.fromkeys(names))
    script.write_text(INTERPRETED.format(kernels=kernels, names=", ".join(names)))
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run([sys.executable, script], env=env, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.torch
def test_launches_through_the_interpreter_are_counted(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    returned, seen, afterwards = interpreted(tmp_path, "one", "two", "one")
    assert returned == 3.0
    assert {name: launches for name, launches, _ns in seen} == {"one": 2, "two": 1}
    times = [ns for _name, _launches, ns in seen]
    assert min(times) > 0
    assert times == sorted(times, reverse=True)
    assert afterwards == 0


@pytest.mark.torch
def test_a_trace_is_bounded(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    _returned, seen, _afterwards = interpreted(tmp_path, *(f"kernel_{number}" for number in range(MAX_KERNELS + 9)))
    assert len(seen) == MAX_KERNELS


@pytest.mark.gpu
@pytest.mark.torch
def test_a_gpu_names_its_kernels_and_their_times() -> None:
    torch = pytest.importorskip("torch")
    x = torch.rand(1 << 20, device="cuda")
    stream = torch.cuda.Stream()

    def call() -> None:
        torch.relu(x)
        with torch.cuda.stream(stream):
            torch.relu(x)

    _returned, seen = trace(call, load_platform("cuda"))
    assert sum(launches for _name, launches, _ns in seen) == 2
    assert all(ns > 0 for _name, _launches, ns in seen)
    assert not any(own(name, ("vectorized_elementwise_kernel",)) for name, _launches, _ns in seen)
