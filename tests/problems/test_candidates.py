"""Sound problems, and candidates that earn what their side files say, judged with the core's own parts."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_matrix.model.enums import Dtype, InputMode, Language, Status
from kernel_matrix.model.messages import to_json
from kernel_matrix.sources import load_source
from kernel_matrix.sources.other_ranks import with_ranks

torch = pytest.importorskip("torch")
judging = importlib.import_module("tests.problems.judging")  # needs torch, so not before the line above
controls = importlib.import_module("kernel_matrix.inside.judge.controls")
LOWER_BITS = importlib.import_module("kernel_matrix.inside.input_generation").LOWER_BITS

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
WHOLE_ANSWERS = {"argmax"}
"""Problems whose answer is integers: no precision can be rejected from them."""
PRECISION_BLIND = {"cross_entropy"}
"""Problems whose few rows at the smallest size need not show the next lower precision."""
COMPILED = {Language.CUDA, Language.HIP}
RAISING = {"relu/raises_at_call", "relu/raises_at_import", "relu/syntax_error", "vector_add/triton_unknown_call"}


def smoke(problem):
    return dict(next(w.values for w in problem.workloads if w.name == "smoke"))


def referenced(problem, dtype):
    return judging.ReferenceModel(problem.path, smoke(problem), "cpu", dtype, judging.SECRET, ranks=problem.ranks)


CASES = [(problem, dtype) for problem in LOADED.problems if not problem.random for dtype in problem.dtypes]
RANDOM = [(problem, dtype) for problem in LOADED.problems if problem.random for dtype in problem.dtypes]


@pytest.mark.parametrize(("problem", "dtype"), CASES, ids=[f"{p.id}-{d.value}" for p, d in CASES])
def test_the_reference_passes_and_empty_answers_do_not(problem, dtype):
    reference = referenced(problem, dtype)
    assert reference.precision == ("float64" if dtype not in judging.WHOLE_DTYPES else dtype.value)
    tolerance = judging.Tolerance.of(dtype, problem.tolerance)
    for mode in judging.modes_of(dtype, outliers=problem.outliers):
        expected = reference.expect(reference.draw(mode, "test"))
        assert controls.is_finite(expected) or mode is InputMode.EXACT
        if not controls.is_finite(expected):
            continue
        assert judging.accepts(expected.trusted, expected, tolerance)
        controls.check_worthless(expected, tolerance)


@pytest.mark.parametrize(("problem", "dtype"), CASES, ids=[f"{p.id}-{d.value}" for p, d in CASES])
def test_reference_output_depends_on_each_input_and_on_precision(problem, dtype):
    reference = referenced(problem, dtype)
    inputs = reference.draw(InputMode.STANDARD, 1)
    expected = reference.expect(inputs)
    tolerance = judging.Tolerance.of(dtype, problem.tolerance)
    assert all(change > 0.01 for change in controls.sensitivity(reference, inputs, expected))
    rejected = controls.rejects_lower_precision(reference, inputs, expected, tolerance)
    if dtype not in LOWER_BITS or problem.id in WHOLE_ANSWERS:
        assert rejected is None
    else:
        assert rejected or problem.id in PRECISION_BLIND


@pytest.mark.parametrize(("problem", "dtype"), RANDOM, ids=[f"{p.id}-{d.value}" for p, d in RANDOM])
def test_random_reference_passes_and_empty_outputs_fail(problem, dtype):
    reference = referenced(problem, dtype)
    tolerance = judging.Tolerance.of(dtype, problem.tolerance)
    for mode in judging.modes_of(dtype, outliers=problem.outliers, random=True):
        inputs = reference.draw(mode, "test")
        expected = reference.expect(inputs)
        assert controls.is_finite(expected)
        controls.check_distribution(expected, lambda: judging.lots(reference, inputs, expected, {}), tolerance.rtol)  # noqa: B023


@pytest.mark.timeout(900)  # a minute of work, which takes much longer on a busy machine
def test_candidates_earn_what_their_side_files_say():
    """All that do no harm in one process: compilers for CUDA and HIP are not here, and Triton is wrong in bf16."""
    candidates = [c for c in LOADED.candidates if c.language not in COMPILED and c.id not in HARMFUL | RAISING]
    cells = [(c, dtype) for c in candidates for dtype in PROBLEMS[c.problem_id].dtypes if _is_tried(c, dtype)]
    earned = _judge_apart([_request(PROBLEMS[c.problem_id], c.path, dtype) for c, dtype in cells])
    assert {f"{c.id} {d.value}": s for (c, d), s in zip(cells, earned, strict=True)} == {
        f"{c.id} {d.value}": c.expect.value for c, d in cells
    }


def test_candidates_of_several_ranks_pass_with_four():
    candidates = [c for c in LOADED.candidates if PROBLEMS[c.problem_id].ranks > 1 and c.expect is Status.PASSED]
    requests = [_request(with_ranks(PROBLEMS[c.problem_id], 4), c.path, Dtype.FP32) for c in candidates]
    earned = _judge_apart(requests)
    assert {c.id: status for c, status in zip(candidates, earned, strict=True) if status != "passed"} == {}


def test_the_call_of_a_library_is_right():
    cells = [(problem, dtype) for problem in LOADED.problems if problem.library is not None for dtype in problem.dtypes]
    earned = _judge_apart([_request(problem, problem.library, dtype) for problem, dtype in cells])
    assert {f"{p.id} {d.value}": s for (p, d), s in zip(cells, earned, strict=True)} == {
        f"{p.id} {d.value}": "passed" for p, d in cells
    }
    assert {problem.id for problem, _ in cells} == {"adamw_step"}


def _is_tried(candidate, dtype):
    interpreted_wrongly = candidate.language is Language.TRITON and dtype is Dtype.BF16
    return not interpreted_wrongly and dtype in (candidate.dtypes or tuple(Dtype))


def _request(problem, source, dtype):
    contract = None if problem.contract is None else to_json(problem.contract)
    flags = (problem.outliers, problem.random, problem.ranks)
    return str(source), str(problem.path), smoke(problem), dtype.value, contract, *flags


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
    with pytest.raises(subprocess.CalledProcessError) as raised:
        _judge_apart([_request(PROBLEMS[candidate.problem_id], candidate.path, Dtype.FP32)])
    assert error in raised.value.stderr.splitlines()[-1]


def _judge_apart(requests):
    """Statuses of what :mod:`tests.problems.judging` is asked, in a process where Triton is interpreted."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = (sys.executable, str(Path(__file__).with_name("judging.py")), json.dumps(requests))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=900)
    return json.loads(done.stdout)
