"""The verifier over workers in threads: modes, controls, second calls, timed calls, contracts."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import random
import sys
import textwrap
from contextlib import ExitStack
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge.reference import ReferenceModel
from kernel_matrix.inside.judge.session_ended import SessionEnded
from kernel_matrix.inside.judge.verification import (
    HARD_OUTLIERS,
    INPUT_ACCEPTED,
    INSENSITIVE,
    LEFT_OUT,
    PRECISION_BLIND,
    Verifier,
)
from kernel_matrix.inside.judge.worker_client import WorkerClient
from kernel_matrix.model.enums import Dtype, InputMode, Role, Stage, Status
from kernel_matrix.model.messages import ContractSpec
from tests.honest.bench import judge
from tests.inside.sessions import CANDIDATE, EAGER, LIBRARY, QUICK, make_job
from tests.inside.workers import TIMEOUTS, served

pytestmark = pytest.mark.torch

SUM = "return x.cumsum(1)"
MODEL = """
import torch
calls = 0

class {name}(torch.nn.Module):
    def forward(self, x):
        global calls
        calls += 1
        {code}
"""
INPUTS = """
def get_inputs():
    return [torch.randn(8, 40)]
"""


class Bench:
    """A verifier, its contestants, and the reference they are judged by."""

    def __init__(self, job, sides, reference):
        self.job = job
        self.sides = sides
        self.reference = reference
        self.verifier = Verifier(job, sides, random.Random(1))

    def verify(self, phase="before", trials=2):
        if phase == "before":
            self.verifier.controls(self.reference)
        self.verifier.verify(self.reference, phase, trials)
        return self.verifier

    def time(self, name="candidate"):
        """Make one timed call that is compared in full."""
        inputs, result = self.call(name)
        return self.verifier.judge_timed(self.sides[name], result, self.reference.expect(inputs))

    def call(self, name="candidate"):
        """Make one call, and return its inputs and result."""
        inputs = self.reference.draw(InputMode.STANDARD, "timed", 1)
        self.sides[name].deliver(inputs, self.reference.like)
        return inputs, self.sides[name].call(stage=Stage.TIME)

    def glance(self, result):
        return self.verifier.glance(self.sides["candidate"], result)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    for name in ("candidate", "eager", "library", "kernel_matrix_problem"):
        monkeypatch.setitem(sys.modules, name, None)  # removed afterwards
    with ExitStack() as undo:

        def make(candidate=SUM, problem=SUM, *, inputs=INPUTS, contestants=(CANDIDATE, EAGER), **changes):
            job = make_job(timeouts=TIMEOUTS, contestants=contestants, **changes)
            indented = [textwrap.indent(code, " " * 8).strip() for code in (candidate, problem)]
            (tmp_path / "problem.py").write_text(MODEL.format(name="Model", code=indented[1]) + inputs)
            for source in ("candidate.py", "library.py"):
                (tmp_path / source).write_text(MODEL.format(name="ModelNew", code=indented[0]))
            reference = ReferenceModel(tmp_path / "problem.py", {}, "cpu", job.dtype, job.seed)
            sides = {}
            for contestant in contestants:
                channel = undo.enter_context(served(tmp_path))
                side = sides[contestant.name] = WorkerClient(contestant, channel, "cpu", TIMEOUTS)
                undo.callback(side.close)
                side.open()
                side.load({})
                side.construct(reference, 0)
            return Bench(job, sides, reference)

        yield make


def ended(call, *arguments, **options):
    """Return the status and evidence that this ends with."""
    with pytest.raises(SessionEnded) as raised:
        call(*arguments, **options)
    return raised.value.status, raised.value.evidence


UNLUCKY = """
y = x * 2
if x.dtype == torch.float32 and x[0, 0] > -1:
    y[:, ::2] += 2e-3
return y
"""
"""Make a reference that is off by 2e-3 on five draws of six, and exact on the sixth."""


def test_verify_eases_tolerance_where_trusted_was_lucky(bench):
    table = bench("return x * 2 + 3e-3", UNLUCKY, outliers=False)
    allowed = [trial.max_error / trial.error_ratio for trial in table.verify(trials=30).trials]
    assert min(allowed) > 3e-3
    assert any(table.reference.draw(InputMode.STANDARD, "before", index)[0][0, 0] <= -1 for index in range(30)), (
        "or it says nothing"
    )


def test_nobody_is_excused_beyond_that(bench):
    status, evidence = ended(bench("return x * 2 + 2e-2", UNLUCKY, outliers=False).verify)
    assert status is Status.INCORRECT_VALUES
    assert 3e-3 < evidence.allowed < 5e-3


def test_every_mode_and_phase_is_tried_and_told(bench):
    table = bench()
    table.verify()
    verifier = table.verify("after", 1)
    assert [(t.mode, t.index, t.phase) for t in verifier.trials] == [
        *((mode, index, "before") for mode in InputMode for index in (0, 1)),
        *((mode, 0, "after") for mode in InputMode),
    ]
    assert all(t.passed and t.error_ratio <= 1 for t in verifier.trials)
    assert verifier.labels == []
    traits = verifier.traits
    assert (traits.deterministic, traits.exact, traits.rejects_lower_precision) == (True, True, True)
    assert traits.sensitivity == (pytest.approx(1.4, abs=0.3),)


@pytest.mark.parametrize(
    ("changes", "modes"),
    [
        ({"outliers": False}, {InputMode.STANDARD}),
        ({"dtype": Dtype.INT32}, {InputMode.STANDARD}),
        ({"protocol": replace(QUICK, modes=(InputMode.OUTLIER,))}, {InputMode.OUTLIER}),
    ],
)
def test_modes_that_make_no_sense_are_left_out(changes, modes, bench):
    verifier = bench(**changes).verify()
    assert {t.mode for t in verifier.trials} == modes


def test_verify_sorted_inputs_leave_modes_out_with_labels(bench):
    verifier = bench(inputs=INPUTS.replace("8, 40)", "8, 40).sort().values")).verify()
    assert {t.mode for t in verifier.trials} == {InputMode.STANDARD}
    assert verifier.labels == [f"{LEFT_OUT}:outlier", f"{LEFT_OUT}:exact"]


def test_verify_non_integer_answer_gets_one_exact_trial(bench):
    softmax = "return torch.softmax(x, 1)"
    verifier = bench(softmax, softmax).verify(trials=3)
    assert [t.mode for t in verifier.trials].count(InputMode.EXACT) == 1
    assert verifier.traits.exact is False


def test_a_problem_that_divides_by_zeros_gets_none(bench):
    logarithm = "return x.abs().log()"
    verifier = bench(logarithm, logarithm).verify()
    assert InputMode.EXACT not in {t.mode for t in verifier.trials}
    assert verifier.traits.exact is None


@pytest.mark.parametrize(("limit", "before", "after"), [(1311, 1, 0), (1312, 5, 1)])
def test_verify_large_inputs_get_fewer_trials(limit, before, after, bench, monkeypatch):
    monkeypatch.setattr(
        "kernel_matrix.inside.judge.verification.LARGE", limit
    )  # a call has 8 * 40 + 8 floats in and out
    table = bench("return x.sum(1)", "return x.sum(1)")
    table.verify(trials=5)
    phases = [t.phase for t in table.verify("after", 1).trials if t.mode is InputMode.OUTLIER]
    assert (phases.count("before"), phases.count("after")) == (before, after)


def test_almost_right_is_not_exact(bench):
    status, evidence = ended(bench("return x.cumsum(1) * (1 + 1e-6)").verify)
    assert (status, evidence.mode) == (Status.INCORRECT_VALUES, "exact")
    assert "not equal, on whole numbers whose answer is whole" in evidence.message


POSITIVE = INPUTS.replace("randn(8, 40)", "rand(4, 1 << 16)")
TEN_BITS = "x = ((x.view(torch.int32) + (1 << 12)) & -(1 << 13)).view(torch.float32)\n"


def test_verify_ten_bit_sums_fail_second_exact_trial(bench):
    table = bench(TEN_BITS + SUM, inputs=POSITIVE)
    status, evidence = ended(table.verify)
    assert (status, evidence.mode, evidence.trial) == (Status.INCORRECT_VALUES, "exact", 1)
    honest = bench(inputs=POSITIVE).verify()
    assert (honest.traits.rejects_lower_precision, honest.labels) == (True, [])


def test_precision_not_told_by_single_exact_trial(bench):
    verifier = bench(TEN_BITS + SUM, inputs=POSITIVE, protocol=replace(QUICK, trials=1)).verify(trials=1)
    assert (verifier.traits.rejects_lower_precision, verifier.labels) == (False, [PRECISION_BLIND])


def test_verify_integer_only_for_ones_uses_zeros_and_ones(bench):
    cubes = "return x**3"  # that of 2049 takes more bits than there are
    verifier = bench(cubes, cubes).verify(trials=3)
    assert [t.mode for t in verifier.trials].count(InputMode.EXACT) == 3
    assert verifier.traits.exact is True


@pytest.mark.parametrize("mode", [InputMode.STANDARD, InputMode.OUTLIER])
def test_a_wrong_candidate_is_named_with_mode_and_trial(mode, bench):
    wrong = {InputMode.STANDARD: "return x.cumsum(1) * 1.01", InputMode.OUTLIER: "return x.clamp(-8, 8).cumsum(1)"}[
        mode
    ]
    table = bench(wrong, problem=SUM, inputs=INPUTS.replace("8, 40", "64, 400"))
    status, evidence = ended(table.verify)
    assert (status, evidence.mode) == (Status.INCORRECT_VALUES, mode.value)
    assert table.verifier.trials[-1].passed is False


def test_a_second_call_on_equal_inputs_must_agree(bench):
    noisy = "return x.cumsum(1) + (calls > 1) * torch.rand(()) * {}"
    table = bench(
        noisy.format("1e-5"), problem="return x.cumsum(1)", protocol=replace(QUICK, modes=(InputMode.STANDARD,))
    )
    assert table.verify().traits.deterministic is False
    table = bench(noisy.format("10"))
    status, evidence = ended(table.verify)
    assert status is Status.NONDETERMINISTIC
    assert "a second call on equal inputs fails where the first passed" in evidence.message


OUTSIDE = """
torch.as_strided(x, (1,), (1,), x.storage_offset() {place}).fill_(1)
return x.cumsum(1)
"""


@pytest.mark.parametrize("place", ["- 1", "+ x.numel()"])
def test_verify_write_outside_buffer_fails_right_answer(place, bench):
    status, evidence = ended(bench(OUTSIDE.format(place=place)).verify)
    assert status is Status.OUT_OF_BOUNDS
    assert "input" in evidence.message


def test_an_input_that_comes_back_as_output_is_found(bench):
    double = "return x * 2"
    status, _ = ended(bench("return x.mul_(2)", double).verify)
    assert status is Status.OUTPUT_ALIASED
    assert bench("return x.T", "return x.T").verify().trials, "the reference's is a view as well"


PROBLEMS = {
    "that draws while it runs": ("return x + torch.randn_like(x)", "random = true"),
    "whose answer is zero": ("return x * 0", "zeros would pass"),
    "that the baseline's process gets wrong": ("return x * (2 if __name__ == 'eager' else 1)", "fails against itself"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_problem_fails_its_own_controls(name, bench):
    code, words = PROBLEMS[name]
    status, evidence = ended(bench("return x", code).verify)
    assert status is Status.INVALID_PROBLEM
    assert words in evidence.message


# --- random outputs --------------------------------------------------------------------------------------------------

NOISE = "return x + torch.randn_like(x)"
MANY = INPUTS.replace("8, 40", "50, 80")


def test_verify_random_outputs_by_their_distribution(bench):
    other = "return x + torch.empty_like(x).normal_()"
    table = bench(other, NOISE, inputs=MANY, random=True)
    table.verify()
    verifier = table.verify("after", 1)
    assert {t.mode for t in verifier.trials} == {InputMode.STANDARD, InputMode.OUTLIER}, "nothing of it can be equal"
    assert all(t.passed and t.max_error is None and t.error_ratio < 1 for t in verifier.trials)
    assert (verifier.traits.deterministic, verifier.labels) == (False, [])
    assert table.time().failed is None
    inputs, result = table.call()
    table.verifier.spot(table.sides["candidate"], result, table.reference, inputs)


DISHONEST = {
    "whose seed is fixed": "torch.manual_seed(5)\nreturn x + torch.randn_like(x)",
    "that gives the mean": "return x + 0.0",
    "whose numbers are too large": "return x + 1.5 * torch.randn_like(x)",
    "that takes one row for all": "return x + torch.randn_like(x[:1])",
}


@pytest.mark.parametrize("name", DISHONEST)
def test_a_candidate_whose_numbers_are_not_random_is_refused(name, bench):
    status, evidence = ended(bench(DISHONEST[name], NOISE, inputs=MANY, random=True).verify)
    assert status is Status.INCORRECT_VALUES
    assert "output 0 is not random as the reference's is" in evidence.message


def test_timed_check_finds_candidate_with_cached_numbers(bench):
    code = "torch.manual_seed(calls if calls < 10 else 3)\nreturn x + torch.randn_like(x)"
    table = bench(code, NOISE, inputs=MANY, random=True, protocol=replace(QUICK, modes=(InputMode.STANDARD,)))
    table.verify()
    for _ in range(6):
        table.glance(table.call()[1])
    assert "earlier call" in ended(table.time)[1].message


def test_its_buffers_are_looked_at_as_those_of_any_other(bench):
    outside = "torch.as_strided(x, (1,), (1,), x.storage_offset() - 1).fill_(1)\nreturn x + torch.randn_like(x)"
    assert ended(bench(outside, NOISE, inputs=MANY, random=True).verify)[0] is Status.OUT_OF_BOUNDS
    written = "x += torch.randn_like(x)\nreturn x + torch.randn_like(x)"
    assert ended(bench(written, NOISE, inputs=MANY, random=True).verify)[0] is Status.INPUT_MODIFIED


UNSOUND = {
    "that is not random": ("return x * 2", MANY, "the reference returns the same in two runs"),
    "of few numbers": ("return x + torch.randn_like(x)", INPUTS.replace("8, 40", "3, 5"), "would pass"),
    "that the baseline's process gets wrong": (
        "return x + torch.randn_like(x) * (2 if __name__ == 'eager' else 1)",
        MANY,
        "fails against itself",
    ),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_a_random_problem_fails_its_own_controls(name, bench):
    code, inputs, words = UNSOUND[name]
    status, evidence = ended(bench(NOISE, code, inputs=inputs, random=True).verify)
    assert status is Status.INVALID_PROBLEM
    assert words in evidence.message


def test_what_the_baseline_gets_wrong_too_is_the_problems_fault(bench):
    code = "return x * (2 if __name__ == 'eager' and x.abs().max() > 20 else 1)"
    table = bench("return x * (2 if x.abs().max() > 20 else 1)", code, inputs=INPUTS.replace("8, 40", "64, 400"))
    status, evidence = ended(table.verify)
    assert (status, evidence.mode) == (Status.INVALID_PROBLEM, "outlier")


OVERTAXED = """
y = x * 2
if x.dtype == torch.float32 and x.abs().max() > 20:
    y = y + {} * (x.abs() > 20)
return y
"""
"""Be off by this much at outliers, which are about 60 times the other numbers; the answer's spread is 3 or 4."""
PLENTY = INPUTS.replace("8, 40", "64, 400")


def test_verify_hard_outliers_allow_twice_the_error(bench):
    code = OVERTAXED.format(8)
    verifier = bench(code, code, inputs=PLENTY).verify()
    assert verifier.labels == [HARD_OUTLIERS]
    assert all(trial.passed and trial.error_ratio <= 1 for trial in verifier.trials)


def test_verify_hard_outliers_fail_beyond_twice_the_error(bench):
    status, evidence = ended(bench(OVERTAXED.format(24), OVERTAXED.format(8), inputs=PLENTY).verify)
    assert (status, evidence.mode) == (Status.INCORRECT_VALUES, "outlier")
    for far in ("return x.clamp(-9, 9) * 2", "return x * 2 + 1e6 * (x.abs() > 20)"):
        status, evidence = ended(bench(far, OVERTAXED.format(8), inputs=PLENTY).verify)
        assert (status, evidence.mode) == (Status.INCORRECT_VALUES, "outlier")


def test_what_hardly_matters_is_labelled_and_does_not_decide(bench):
    code = "return x.sign() + x * 1e-9"
    verifier = bench(code, code, outliers=False).verify()
    assert verifier.labels == [PRECISION_BLIND]
    weak = "return x[:, :20].cumsum(1) + x[:, 20:] * 1e-6"
    assert INSENSITIVE not in bench(weak, weak).verify().labels, "the one input as a whole matters"
    mean = "return (x * 1e-5 + 1).mean()"
    assert INSENSITIVE in bench(mean, mean, outliers=False).verify().labels


def test_a_mean_over_half_of_the_elements_is_not_the_mean(bench):
    inputs = INPUTS.replace("8, 40", "64, 400")
    table = bench("return x[:32].square().mean()", "return x.square().mean()", inputs=inputs)
    assert ended(table.verify)[0] is Status.INCORRECT_VALUES
    assert table.verifier.tolerance.variations[0] > 0


# --- dtypes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [Dtype.FP64, Dtype.TF32, Dtype.FP16, Dtype.BF16])
def test_every_floating_dtype_goes_through(dtype, bench):
    assert bench(dtype=dtype).verify().traits.rejects_lower_precision is True


@pytest.mark.parametrize("dtype", [Dtype.FP8_E4M3, Dtype.FP8_E5M2])
def test_verify_fp8_inputs_arrive_and_bfloat16_is_expected(dtype, bench):
    wide = "assert x.dtype.itemsize == 1\nreturn x.bfloat16().cumsum(1)"
    verifier = bench(wide, "assert x.dtype.itemsize > 1\nreturn x.cumsum(1)", dtype=dtype).verify()
    assert verifier.traits.rejects_lower_precision is None
    table = bench("return x.float().cumsum(1)", dtype=dtype)
    assert ended(table.verify)[0] is Status.INCORRECT_DTYPE


@pytest.mark.parametrize("dtype", [Dtype.INT8, Dtype.INT32, Dtype.BOOL])
def test_whole_numbers_are_equal_or_wrong(dtype, bench):
    flip = "return x[:, 1:] ^ x[:, :-1]"
    assert bench(flip, flip, dtype=dtype).verify().trials
    wrong = "y = x[:, 1:] ^ x[:, :-1]\ny[0, 0] ^= True\nreturn y"
    assert ended(bench(wrong, flip, dtype=dtype).verify)[0] is Status.INCORRECT_VALUES


# --- contracts -------------------------------------------------------------------------------------------------------

PRODUCT = "return x @ x.T"
EIGHT_BITS = """
scale = x.abs().amax(1, keepdim=True) / 127
whole = torch.round(x / scale)
return whole @ whole.T * scale * scale.T
"""
CONTRACT = ContractSpec(kind="w8a8", cosine_min=0.99, relative_l1_max=0.05, rmse_max=0.05, snr_db_min=30, snr_db_max=50)
ROWS = INPUTS.replace("8, 40", "48, 64")


def test_verify_quantised_candidate_reports_quality(bench):
    verifier = bench(EIGHT_BITS, PRODUCT, inputs=ROWS, outliers=False, contract=CONTRACT).verify()
    assert verifier.traits.quality.keys() == {"cosine", "relative_l1", "rmse", "snr_db"}
    assert 30 < verifier.traits.quality["snr_db"] < 50


@pytest.mark.parametrize(
    ("candidate", "words"),
    [(PRODUCT, "nothing was quantised"), ("return (x @ x.T) * 1.2", "cosine|relative L1|SNR|RMSE")],
)
def test_what_was_not_quantised_or_is_far_off_does_not(candidate, words, bench):
    table = bench(candidate, PRODUCT, inputs=ROWS, outliers=False, contract=CONTRACT)
    status, evidence = ended(table.verify)
    assert status is Status.CONTRACT_BROKEN
    assert any(word in evidence.message for word in words.split("|"))


def test_a_rival_need_not_quantise(bench):
    table = bench(
        PRODUCT, PRODUCT, inputs=ROWS, outliers=False, contract=CONTRACT, contestants=(CANDIDATE, EAGER, LIBRARY)
    )
    assert table.time("library").failed is None
    assert table.time("eager").failed is None


# --- timed calls -----------------------------------------------------------------------------------------------------


def test_a_timed_call_of_the_candidate_is_a_trial(bench):
    table = bench()
    assert table.time().failed is None
    (trial,) = table.verifier.trials
    assert (trial.phase, trial.passed) == ("timed", True)
    table.time("eager")
    assert len(table.verifier.trials) == 1


# Rows depend on one another, so none can be computed on its own; the error is far beyond the tolerance of the dtype.
SHORT_LATER = """
if x.dtype == torch.float64 and short:
    raise MemoryError
return (x + 1e3) - 1e3 + 0 * x.sum()
"""


@pytest.mark.parametrize(("candidate", "status"), [("return x", None), ("return x * 1.003", Status.INCORRECT_VALUES)])
def test_error_of_the_first_inputs_is_allowed_without_float64(candidate, status, bench):
    made = bench(candidate.replace("return x", "return x.clone()"), SHORT_LATER, inputs=INPUTS + "short = []\n")
    made.verifier.controls(made.reference)
    made.reference._module.short.append(True)
    if status is None:
        assert made.time().failed is None
    else:
        assert ended(made.time)[0] is status
    assert made.reference.precision == "float32"


def test_a_wrong_timed_call_is_blamed_on_whoever_made_it(bench):
    table = bench("return x * 2", contestants=(CANDIDATE, EAGER, LIBRARY))
    assert ended(table.time)[0] is Status.INCORRECT_VALUES
    assert ended(table.time, "library")[0] is Status.INCORRECT_VALUES
    table = bench(problem="return x.cumsum(1) * (2 if __name__ == 'eager' else 1)")
    assert ended(table.time, "eager")[0] is Status.INVALID_PROBLEM


def unwritten(result, part):
    """Restore an unused buffer's pattern in a part of the first output."""
    result.outputs[0][part].view(torch.uint8).fill_(0xFF)


def test_a_glance_sees_what_was_not_written(bench):
    table = bench()
    _, result = table.call()
    table.glance(result)
    unwritten(result, slice(0, 4))
    status, evidence = ended(table.glance, result)
    assert (status, evidence.output) == (Status.NONFINITE, 0)
    assert "it was not written" in evidence.message


def test_integers_may_have_all_bits_set_unless_all_have(bench):
    signs = "return (x > 0).int() - 1"
    table = bench(signs, signs)
    _, result = table.call()
    unwritten(result, slice(0, 4))
    table.glance(result)
    unwritten(result, slice(0, 8))
    assert ended(table.glance, result)[0] is Status.NONFINITE


def test_a_glance_looks_everywhere_whatever_the_strides(bench):
    turned = "return x.T.contiguous().T * 2"
    table = bench(turned, turned)
    _, result = table.call()
    output = result.outputs[0]
    assert not output.is_contiguous()
    output[3, 3] = torch.tensor([-1], dtype=torch.int32).view(torch.float32)[0]
    looks = (table.glance(result) for _ in range(50))  # each draws 320 numbers of 320
    with pytest.raises(SessionEnded, match="was not written"):
        list(looks)


@pytest.mark.parametrize("look", ["glance", "spot"])
def test_unchecked_call_may_not_write_elsewhere(look, bench):
    table = bench()
    table.verifier.controls(table.reference)
    side = table.sides["candidate"]
    looks = {
        "glance": table.glance,
        "spot": lambda result: table.verifier.spot(side, result, table.reference, inputs),
    }
    inputs, result = table.call()
    looks[look](result)
    assert ended(looks[look], replace(result, damage="a byte"))[0] is Status.OUT_OF_BOUNDS
    assert ended(looks[look], replace(result, inputs=(inputs[0] + 1,)))[0] is Status.INPUT_MODIFIED


def spot(table):
    """Make one timed call of the candidate; return its first output, and a function that makes a spot check of it."""
    table.verifier.controls(table.reference)
    inputs, result = table.call()
    side = table.sides["candidate"]
    return result.outputs[0], lambda: table.verifier.spot(side, result, table.reference, inputs)


def test_a_spot_check_passes_what_is_right(bench):
    _, look = spot(bench())
    look()


def test_a_spot_check_sees_what_is_an_earlier_calls_answer(bench):
    table = bench()
    output, look = spot(table)
    output.mul_(1.5)
    status, evidence = ended(look)
    assert (status, evidence.output) == (Status.INCORRECT_VALUES, 0)
    assert "looked at in a timed call" in evidence.message


def test_a_spot_check_leaves_single_odd_roundings_alone(bench):
    table = bench("return x * 2", "return x * 2")
    output, look = spot(table)
    output.view(-1)[:1].mul_(1.5)
    look()


def test_verify_identity_passes_relu_of_positive_inputs_labelled(bench):
    positive = "def get_inputs():\n    return [torch.rand(16, 20)]\n"
    relu = "return torch.relu(x)"
    assert bench("return x.clone()", relu, inputs=positive).verify().labels == [INPUT_ACCEPTED]
    assert ended(bench("return x.clone()", relu).verify)[0] is Status.INCORRECT_VALUES


def test_verify_clamp_beyond_drawn_range_has_no_label(bench):
    clamp = "return x.clamp(-20, 20)"
    assert bench(clamp, clamp, inputs=PLENTY).verify().labels == []
    assert ended(bench("return x.clone()", clamp, inputs=PLENTY).verify)[1].mode == "outlier"


def test_the_candidate_is_the_one_with_that_role(bench):
    table = bench(contestants=(replace(EAGER, name="eager"), CANDIDATE))
    assert [side.role for side in table.sides.values()] == [Role.BASELINE, Role.CANDIDATE]
    assert table.verify().trials


# --- several ranks ---------------------------------------------------------------------------------------------------

RANKS = """
import torch
import torch.distributed as dist
calls = 0

class {name}(torch.nn.Module):
    def forward(self, x):
        global calls
        calls += 1
        total = x.clone()
        dist.all_reduce(total)
        {code}
"""


def verify_ranks(folder, code):
    inputs = INPUTS.replace("8, 40", "30")
    return judge(
        folder,
        RANKS.format(name="Model", code="return total") + inputs,
        RANKS.format(name="ModelNew", code=code),
        ranks=2,
    )


def test_verify_wrong_output_of_second_rank_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kernel_matrix_problem", None)  # removed afterwards
    status, evidence = ended(verify_ranks, tmp_path, "return total if dist.get_rank() == 0 else x * 2")
    assert (status, evidence.rank, evidence.output) == (Status.INCORRECT_VALUES, 1, 0)
    assert evidence.message.startswith("rank 1: output 0: ")
