"""Sound problems, and candidates that earn what their side files say, judged with the core's own parts."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.core.vocab import Dtype, Language, Mode
from runner.sources import load_source

torch = pytest.importorskip("torch")
judging = importlib.import_module("tests.problems.judging")  # needs torch, so not before the line above

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
LOADED = load_source("folder", ROOT / "problems")
PROBLEMS = {problem.id: problem for problem in LOADED.problems}
HARMFUL = {
    "relu/eats_memory",
    "relu/exits_quietly",
    "relu/hangs",
    "relu/leaves_a_child",
    "relu/phones_home",
    "relu/segfaults",
    "relu/writes_outside",
}
"""Candidates for an isolated process only."""
RAISING = {"relu/raises_at_call", "relu/raises_at_import", "relu/syntax_error", "vector_add/triton_unknown_call"}


def smoke(problem):
    return dict(next(w.values for w in problem.workloads if w.name == "smoke"))


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.FP16, Dtype.BF16], ids=lambda d: d.value)
@pytest.mark.parametrize("problem", LOADED.problems, ids=lambda p: p.id)
def test_the_reference_passes_and_empty_answers_do_not(problem, dtype):
    reference = judging.Reference(problem.path, smoke(problem), "cpu", dtype, judging.SECRET)
    assert reference.precision == "float64"
    tolerance = judging.Tolerance.of(dtype, problem.tolerance)
    for mode in Mode:
        expected = reference.expect(reference.draw(mode, "test"))
        assert all(bool(output.isfinite().all()) for output in expected.trusted)
        assert judging.accepts(expected.trusted, expected, tolerance)
        assert not judging.accepts([torch.zeros_like(t) for t in expected.trusted], expected, tolerance)
        assert not judging.accepts(
            [torch.full_like(t, t.double().mean()) for t in expected.trusted], expected, tolerance
        )


@pytest.mark.parametrize("problem", LOADED.problems, ids=lambda p: p.id)
def test_every_output_depends_on_every_input(problem):
    reference = judging.Reference(problem.path, smoke(problem), "cpu", Dtype.FP32, judging.SECRET)
    inputs, others = reference.draw(Mode.STANDARD, 1), reference.draw(Mode.STANDARD, 2)
    outputs = reference.expect(inputs).outputs
    for index, other in enumerate(others):
        changed = reference.expect([*inputs[:index], other, *inputs[index + 1 :]]).outputs
        assert any(not torch.equal(a, b) for a, b in zip(outputs, changed, strict=True))


def test_candidates_earn_what_their_side_files_say():
    """All that do no harm in one process: a CUDA toolchain is not here, and Triton's interpreter is wrong for bf16."""
    candidates = [c for c in LOADED.candidates if c.language is not Language.CUDA and c.id not in HARMFUL | RAISING]
    cells = [(c, dtype) for c in candidates for dtype in ("fp32", "fp16") if Dtype(dtype) in (c.dtypes or tuple(Dtype))]
    requests = [
        (str(c.path), str(PROBLEMS[c.problem_id].path), smoke(PROBLEMS[c.problem_id]), dtype) for c, dtype in cells
    ]
    earned = _judge_apart(requests)
    assert {f"{c.id} {d}": s for (c, d), s in zip(cells, earned, strict=True)} == {
        f"{c.id} {d}": c.expect.value for c, d in cells
    }


@pytest.mark.parametrize(
    ("candidate_id", "error"),
    [
        ("relu/syntax_error", "SyntaxError"),
        ("relu/raises_at_import", "ModuleNotFoundError"),
        ("relu/raises_at_call", "ValueError"),
        ("vector_add/triton_unknown_call", "InterpreterError"),
    ],
)
def test_a_candidate_raises_what_it_is_meant_to(candidate_id, error):
    candidate = next(c for c in LOADED.candidates if c.id == candidate_id)
    problem = PROBLEMS[candidate.problem_id]
    with pytest.raises(subprocess.CalledProcessError) as raised:
        _judge_apart([(str(candidate.path), str(problem.path), smoke(problem), "fp32")])
    assert error in raised.value.stderr.splitlines()[-1]


def _judge_apart(requests):
    """Statuses of (candidate, problem, values, dtype), judged in a process where Triton is interpreted."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = (sys.executable, str(Path(__file__).with_name("judging.py")), json.dumps(requests))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout)
