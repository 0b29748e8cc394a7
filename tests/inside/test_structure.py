"""Checks before values are compared: structure, shapes, dtypes, device, and the inputs bit for bit."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge.checks import CheckedCall, aliasing, checks, inputs, judge_call, structure
from kernel_matrix.inside.judge.reference import ExpectedOutput
from kernel_matrix.inside.judge.tolerance import Tolerance
from kernel_matrix.inside.wire import OutputAlias, OutputClaim, OutputsClaim, Structure
from kernel_matrix.model.enums import Dtype, Status

pytestmark = pytest.mark.torch


def claim(**changes):
    return replace(OutputClaim("float32", (2, 3), same_device=True, copied=True), **changes)


def call(*claims, structure=Structure.TUPLE, sent=(), now=(), mutates=False):
    """A call of a problem that returns a tuple of a float32 [2, 3] and an int64 [4]."""
    trusted = (torch.ones(2, 3), torch.ones(4, dtype=torch.int64))
    outputs = tuple(t.clone() for t in trusted) if all(c.copied for c in claims) else ()
    return CheckedCall(
        claim=OutputsClaim(structure, claims),
        outputs=outputs,
        expected=ExpectedOutput(Structure.TUPLE, (trusted[0].double(), trusted[1]), trusted),
        tolerance=Tolerance.of(Dtype.FP32, {}),
        inputs_sent=sent,
        inputs_now=now,
        mutates_inputs=mutates,
    )


FIRST, SECOND = claim(), claim(dtype="int64", shape=(4,))


def test_exactly_what_the_reference_returns_passes():
    assert structure.check(call(FIRST, SECOND)) is None
    assert judge_call(call(FIRST, SECOND)).failed is None


WRONG = {
    "a list": (
        call(FIRST, SECOND, structure=Structure.LIST),
        Status.INCORRECT_STRUCTURE,
        "output 0 returned another structure: expected tuple of 2, got list of 2",
    ),
    "one output less": (
        call(FIRST),
        Status.INCORRECT_STRUCTURE,
        "output 0 returned another structure: expected tuple of 2, got tuple of 1",
    ),
    "one output more": (
        call(FIRST, SECOND, FIRST),
        Status.INCORRECT_STRUCTURE,
        "output 0 returned another structure: expected tuple of 2, got tuple of 3",
    ),
    "no tensor": (
        call(structure=Structure.OTHER),
        Status.INCORRECT_STRUCTURE,
        "output 0 returned another structure: expected tuple of 2, got other of 0",
    ),
    "another shape": (
        call(FIRST, claim(dtype="int64", shape=(4, 1), copied=False)),
        Status.INCORRECT_SHAPE,
        "output 1 has another shape: expected [4], got [4, 1]",
    ),
    "a shape that would broadcast": (
        call(claim(shape=(1, 3), copied=False), SECOND),
        Status.INCORRECT_SHAPE,
        "output 0 has another shape: expected [2, 3], got [1, 3]",
    ),
    "another dtype": (
        call(claim(dtype="float16", copied=False), SECOND),
        Status.INCORRECT_DTYPE,
        "output 0 has another dtype: expected float32, got float16",
    ),
    "another device": (
        call(FIRST, replace(SECOND, same_device=False, copied=False)),
        Status.INCORRECT_DEVICE,
        "output 1 lives on another device than the inputs",
    ),
    "not handed over": (
        call(FIRST, replace(SECOND, copied=False)),
        Status.INCORRECT_STRUCTURE,
        "output 1 was not handed over",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_everything_else_is_named(name):
    wrong, status, message = WRONG[name]
    failed = structure.check(wrong)
    assert failed is not None
    assert (failed.status, failed.evidence.message) == (status, message)
    judgement = judge_call(wrong)
    assert judgement.failed == failed
    assert (judgement.max_error, judgement.error_ratio) == (None, None), "values of a wrong structure say nothing"


def test_no_check_runs_behind_one_that_failed(monkeypatch):
    ran = []
    failed = structure.check(call(FIRST))
    monkeypatch.setitem(checks(), "inputs", lambda _call: ran.append("inputs") or failed)
    monkeypatch.setitem(checks(), "values", lambda _call: ran.append("values"))
    assert judge_call(call(FIRST, SECOND)).failed is failed
    assert ran == ["inputs"]


def test_a_structure_is_looked_at_before_inputs_and_values():
    order = ["structure", "aliasing", "redzones", "inputs", "values", "mutated_inputs", "contract", "distribution"]
    assert list(checks()) == order


def test_a_view_is_no_result_where_the_reference_has_a_result():
    failed = structure.check(call(FIRST, replace(SECOND, contiguous=False)))
    assert failed.status is Status.INCORRECT_STRUCTURE
    assert "output 1 is not contiguous, as the reference's is" in failed.evidence.message


def test_where_the_reference_returns_a_view_either_will_do():
    expected = ExpectedOutput(Structure.TENSOR, (torch.ones(3, 2).T,), (torch.ones(3, 2).T,))
    for contiguous in (True, False):
        claimed = OutputsClaim(Structure.TENSOR, (replace(FIRST, contiguous=contiguous),))
        assert structure.check(replace(call(), claim=claimed, expected=expected)) is None


ALIASES = {
    OutputAlias.INPUT: "lies in the memory of the inputs",
    OutputAlias.OUTPUT: "lies in the memory of another output",
    OutputAlias.EARLIER: "lies in the memory of an output of the call before",
}


@pytest.mark.parametrize("alias", ALIASES)
def test_outputs_must_not_alias_unless_the_references_do(alias):
    shared = call(FIRST, replace(SECOND, alias=alias))
    failed = judge_call(shared).failed
    assert failed.status is Status.OUTPUT_ALIASED
    assert failed.evidence.message == f"output 1 {ALIASES[alias]}; the reference's is memory of its own"
    assert aliasing.check(replace(shared, expected=replace(shared.expected, views=(False, True)))) is None
    assert aliasing.check(replace(shared, expected=replace(shared.expected, views=(True, False)))) is not None


def test_a_write_outside_of_the_buffers_is_named():
    failed = judge_call(replace(call(FIRST, SECOND), damage="behind output 1")).failed
    assert failed.status is Status.OUT_OF_BOUNDS
    assert failed.evidence.message == "the call wrote outside of its buffers: behind output 1"


INPUTS = (torch.tensor([1.0, float("nan"), -0.0]), torch.arange(3), torch.tensor([True, False]), torch.ones(2, 3).T)


def with_inputs(now, **more):
    return call(FIRST, SECOND, sent=INPUTS, now=now, **more)


def test_unchanged_inputs_pass_even_with_nan():
    assert inputs.check(with_inputs(tuple(t.clone() for t in INPUTS))) is None


@pytest.mark.parametrize(("index", "place", "value"), [(0, 0, 1.0000001), (0, 2, 0.0), (1, 2, 7), (2, 1, True)])
def test_one_changed_bit_of_an_input_is_found(index, place, value):
    now = [t.clone() for t in INPUTS]
    now[index][place] = value
    failed = inputs.check(with_inputs(tuple(now)))
    assert failed.status is Status.INPUT_MODIFIED
    assert failed.evidence.message == f"input {index} was written to during the call"
    assert judge_call(with_inputs(tuple(now))).failed == failed
    assert inputs.check(with_inputs(tuple(now), mutates=True)) is not None, "the reference leaves it alone"
    mutated = with_inputs(tuple(now), mutates=True)
    written = replace(mutated, expected=replace(mutated.expected, written=(index,)))
    assert inputs.check(written) is None
    assert inputs.check(replace(written, mutates_inputs=False)) is not None


@pytest.mark.parametrize("tensor", [torch.empty(0, 3), torch.tensor(1.5), torch.ones(2, dtype=torch.complex64)])
def test_inputs_of_every_form_can_be_compared(tensor):
    assert inputs.check(call(FIRST, SECOND, sent=(tensor,), now=(tensor.clone(),))) is None


def test_a_modified_input_still_has_its_outputs_measured():
    judgement = judge_call(with_inputs(tuple(torch.zeros_like(t) for t in INPUTS)))
    assert judgement.failed.status is Status.INPUT_MODIFIED
    assert judgement.max_error == 0.0
