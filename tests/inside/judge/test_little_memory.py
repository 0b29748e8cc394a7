"""Cells whose inputs and outputs nearly fill a device: what fits, and that nobody has an advantage of it.

The device is a 24 GB card on a scale of 1 to 1024.
"""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import sys
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge import workload_runner
from kernel_matrix.inside.platform import load_platform
from kernel_matrix.model.enums import InputMode, Status
from tests.inside.counted_memory import MIB, install
from tests.inside.device import NAME
from tests.inside.runners import WorkingPause, opened_runner
from tests.inside.sessions import QUICK, make_job

pytestmark = pytest.mark.torch

TOTAL = 24 * MIB
CONTEXTS = int(1.8 * MIB)
MODEL = """
import torch
class {entry}(torch.nn.Module):
    def forward(self, {names}):
        {code}
"""
DRAWS = """
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return []
"""
SIX = "torch.rand(64, 24576)"
SEVEN = "torch.rand(112, 64, 16, 16)"
FOUR = "torch.rand(1024, 1024)"

# Answer → inputs. Sizes are those of KernelBench's problems.
FITS = {
    "return torch.relu(x)": SIX,
    "return x / (1 + x.abs())": SIX,  # a call takes two more tensors of this size
    "return x.softmax(1)": SIX,
    "return torch.nn.functional.instance_norm(x)": SEVEN,
    "return x / (x**2).mean(1, keepdim=True).sqrt()": SEVEN,
    "return (x * y).cumsum(1)": f"{FOUR}, torch.randint(0, 2, (1024, 1024)).bool()",  # drawn as 64-bit integers
    "return ((x - y)**2).mean()": f"{FOUR} * torch.rand(()), {FOUR}",
    # As torch's smooth_l1_loss does: the number that it returns keeps the memory of the elements' losses.
    "n = torch.empty_like(x).resize_(()); return n.copy_((x - y).abs().mean())": f"{FOUR}, {FOUR}",
}
TOO_LARGE = {
    "return x / x.abs().mean(1, keepdim=True)": "torch.rand(1024, 2047)",  # three times 8 MiB
    "return torch.nn.functional.avg_pool2d(x, 11)": "torch.rand(16, 16, 128, 128)",
}


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """Return the memory, the report and the end of a workload on a card that its call nearly fills."""
    for name in ("candidate", "eager", "kernel_matrix_problem"):
        monkeypatch.setitem(sys.modules, name, None)  # removed afterwards
    # Few calls of threads on a busy machine say nothing about times.
    monkeypatch.setattr(workload_runner, "contradiction", lambda *_arguments, **_options: "")

    def run(code, inputs, candidate="", total=TOTAL, cap=None):
        memory = install(monkeypatch, total, CONTEXTS)
        names = "x, y" if "y" in code else "x"
        problem = MODEL.format(entry="Model", names=names, code=code) + DRAWS.format(inputs=inputs)
        (tmp_path / "problem.py").write_text(problem)
        (tmp_path / "candidate.py").write_text(MODEL.format(entry="ModelNew", names=names, code=candidate or code))
        modes = (InputMode.STANDARD, InputMode.OUTLIER, InputMode.EXACT)
        protocol = replace(QUICK, trials=2, modes=modes, min_samples=4, budget_s=0.2, check_share=1.0)
        job = make_job(device=NAME, device_memory_bytes=cap, protocol=protocol)
        with opened_runner(job, tmp_path, WorkingPause(None)) as runner, memory.counting():
            report, ended = runner.run(job.workloads[0])
        return memory, report, ended

    yield run
    load_platform.cache_clear()


@pytest.mark.parametrize("code", FITS)
def test_cell_fits_if_its_inputs_and_a_call_do(code, judged):
    memory, report, ended = judged(code, FITS[code])
    assert ended is None, ended.evidence
    assert report.status is Status.PASSED
    assert {trial.mode for trial in report.trials} == set(InputMode)
    assert report.blocks
    assert report.needed_memory_bytes <= TOTAL
    assert memory.most <= TOTAL


@pytest.mark.parametrize("code", TOO_LARGE)
def test_cell_that_does_not_fit_is_nobodys_fault(code, judged):
    _, _, ended = judged(code, TOO_LARGE[code])
    assert ended.status is Status.DOES_NOT_FIT, ended.evidence
    assert "the device has" in ended.evidence.message


@pytest.mark.parametrize(("code", "fits"), [(next(iter(FITS)), True), (next(iter(TOO_LARGE)), False)])
def test_a_cap_leaves_as_much_as_a_smaller_card(code, fits, judged):
    _, _, ended = judged(code, {**FITS, **TOO_LARGE}[code], total=80 * MIB, cap=TOTAL)
    assert (ended is None) is fits


@pytest.mark.parametrize("code", TOO_LARGE)
def test_cell_that_does_not_fit_fits_a_larger_card(code, judged):
    memory, _, ended = judged(code, TOO_LARGE[code], total=40 * MIB)
    assert ended is None, ended.evidence
    assert memory.most <= 40 * MIB


@pytest.mark.parametrize("total", [16, 22, 26, 30])
def test_large_outputs_fit_beside_smaller_inputs(total, judged):
    memory, _, ended = judged("return torch.cat([x, x]).relu_()", "torch.rand(512, 1024)", total=total * MIB)
    assert ended is None, ended.evidence
    assert memory.most <= total * MIB


CHEATS = {
    "x[:, 0] += 1; return torch.relu(x)": Status.INPUT_MODIFIED,
    "return x": Status.OUTPUT_ALIASED,
    "y = torch.relu(x); y[-1, -1] = 7; return y": Status.INCORRECT_VALUES,
    "return torch.cat([torch.relu(x)] * 3)[: len(x)]": Status.OUT_OF_MEMORY,
}


@pytest.mark.parametrize("candidate", CHEATS)
def test_candidate_is_judged_as_on_a_large_card(candidate, judged):
    _, _, ended = judged("return torch.relu(x)", "torch.randn(64, 24576)", candidate)
    assert ended is not None, "it passed"
    assert ended.status is CHEATS[candidate], ended.evidence
