"""Controls of a problem: worthless answers, sensitivity, precision, integer answers."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import math
import sys
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge import controls
from kernel_matrix.inside.judge.reference import ExpectedOutput, ReferenceModel
from kernel_matrix.inside.judge.session_ended import SessionEnded
from kernel_matrix.inside.judge.tolerance import Tolerance
from kernel_matrix.inside.wire import Structure
from kernel_matrix.model.enums import Dtype, InputMode, Status

pytestmark = pytest.mark.torch

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, y):
        {forward}

def get_inputs():
    return [{inputs}]
"""


class Tried:
    """A reference, its inputs, and the expected output."""

    def __init__(self, reference, mode=InputMode.STANDARD):
        self.reference = reference
        self.inputs = reference.draw(mode, "before", 0)
        self.expected = reference.expect(self.inputs)
        self.tolerance = Tolerance.of(reference.dtype, {})

    @property
    def sensitivity(self):
        return controls.sensitivity(self.reference, self.inputs, self.expected)

    @property
    def rejects_lower_precision(self):
        return controls.rejects_lower_precision(self.reference, self.inputs, self.expected, self.tolerance)

    def vary(self):
        self.tolerance = replace(self.tolerance, variations=controls.variations(self.reference, self.expected))
        return self


@pytest.fixture
def tried(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kernel_matrix_problem", None)  # removed afterwards

    def make(forward, dtype=Dtype.FP32, mode=InputMode.STANDARD, inputs="torch.randn(16, 32), torch.randn(16, 32)"):
        path = tmp_path / "problem.py"
        path.write_text(PROBLEM.format(forward=forward, inputs=inputs))
        return Tried(ReferenceModel(path, {}, "cpu", dtype, "0" * 32), mode)

    return make


def refused(check, *arguments):
    with pytest.raises(SessionEnded) as raised:
        check(*arguments)
    assert raised.value.status is Status.INVALID_PROBLEM
    return raised.value.evidence.message


WORTHLESS = {
    "return x * 0": "zeros would pass",
    "return x * 1e-9 + 3": "a constant would pass",
    "return (x.sum() + y.sum()) * 0 + 3": "the answer to another input would pass",
}


@pytest.mark.parametrize("forward", WORTHLESS)
def test_a_problem_whose_answer_needs_no_computing_is_refused(forward, tried):
    problem = tried(forward).vary()
    assert refused(controls.check_worthless, problem.expected, problem.tolerance).startswith(WORTHLESS[forward])


@pytest.mark.parametrize("forward", ["return x + y", "return x > y", "return (x * y).mean()", "return x.argmax(1)"])
def test_all_others_are_not(forward, tried):
    problem = tried(forward).vary()
    controls.check_worthless(problem.expected, problem.tolerance)
    controls.check_repeatable(problem.reference, problem.inputs, problem.expected, problem.tolerance)


RANDOM = {
    "its size": "return x + torch.randn_like(y)",
    "a tenth of its size": "return x + torch.randn_like(y) / 10",
    "zeros": "return torch.nn.functional.dropout(x, 0.1)",
}


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.BF16], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("noise", RANDOM)
def test_controls_random_draws_in_the_model_fail(noise, dtype, tried):
    problem = tried(RANDOM[noise], dtype)
    arguments = (problem.reference, problem.inputs, problem.expected, problem.tolerance)
    assert "differs between two runs" in refused(controls.check_repeatable, *arguments)


ANY_ORDER = """\
order = torch.randperm(32) if x.dtype is torch.float32 else torch.arange(32)
        return sum((x * y + 100).T[order]) - 3200"""


def test_controls_sums_in_any_order_are_repeatable(tried):
    """Vary like atomic additions; the answer is so much smaller than its summands that tight tolerances notice it."""
    problem = tried(ANY_ORDER)
    exact = replace(problem.expected, outputs=problem.expected.trusted, _allowances={})
    again = problem.reference.answer(problem.inputs)
    assert not controls.accepts(again, exact, problem.tolerance)
    controls.check_repeatable(problem.reference, problem.inputs, problem.expected, problem.tolerance)


@pytest.mark.parametrize(
    ("forward", "length"),
    [("return x + y", 32), ("return x.sum(1)", 32), ("return x.sum(), y", 512), ("return x.T @ y", 32)],
)
def test_how_long_sums_are_is_read_off_the_shapes(forward, length, tried):
    problem = tried(forward)
    assert controls.reduction_length(problem.reference, problem.inputs) == length


@pytest.mark.parametrize(
    ("inputs", "length"),
    [("torch.randn(5, 4, 6), torch.randn(3)", 30), ("torch.randn(7, 1, 9), torch.randn(1)", 9)],
)
def test_reduction_length_leaves_one_dimension(inputs, length, tried):
    problem = tried("return x", inputs=inputs)
    assert controls.reduction_length(problem.reference, problem.inputs) == length


def test_partial_sums_grow_where_sorted_lines_cancel(tried):
    plain = tried("return x", inputs="torch.randn(64, 1024), torch.tensor(3.0)").inputs
    sorted_ = [plain[0].sort().values]
    assert 10 < controls.largest_partial_sums(plain) < 64
    assert 100 < controls.largest_partial_sums(sorted_) < 400
    assert controls.largest_partial_sums([torch.zeros(4, 4), torch.arange(3), torch.full((3,), -math.inf)]) == 0


def test_number_lost_in_rounding_is_known(tried):
    problem = tried("return (x * x + y * y).mean()").vary()
    for length, lost in ((1, False), (1 << 20, False)):
        tolerance = replace(Tolerance.of(Dtype.FP32, {}, length), variations=problem.tolerance.variations)
        assert controls.is_lost_in_rounding(problem.expected, tolerance) is lost
    flat = replace(Tolerance.of(Dtype.FP32, {}, 1 << 20), variations=(1e-5,))
    assert controls.is_lost_in_rounding(problem.expected, flat)


@pytest.mark.parametrize(
    ("forward", "inputs", "accepted"),
    [
        ("return torch.relu(x)", "torch.rand(16, 32), torch.randn(3)", True),
        ("return torch.relu(x)", "torch.randn(16, 32), torch.randn(3)", False),
        ("return x.sum(1)", "torch.rand(16, 32), torch.randn(3)", False),
    ],
)
def test_input_that_would_pass_is_known(forward, inputs, accepted, tried):
    problem = tried(forward, inputs=inputs)
    standard = problem.inputs, problem.expected
    assert controls.is_input_accepted(problem.reference, *standard, problem.tolerance, list(InputMode)) is accepted


HALVES = "torch.rand(16, 32), torch.rand(16, 32)"


@pytest.mark.parametrize(
    ("forward", "whole"),
    [
        ("return x + y", True),
        ("return x @ y.T", True),
        ("return x.mean(1) + y.mean(1)", False),
        ("return x / 3", False),
    ],
)
def test_is_whole_counts_in_the_units_of_the_inputs(forward, whole, tried):
    problem = tried(forward, mode=InputMode.EXACT, inputs=HALVES)
    assert problem.inputs[0].unique().tolist() == [0.0, 0.5]
    assert controls.is_whole(problem.expected, Dtype.FP32, problem.inputs) is whole


def test_only_single_numbers_have_a_variation(tried):
    first, second = tried("return x, (x * y).mean()").vary().tolerance.variations
    assert first == math.inf
    assert 0.001 < second < 0.5, "of a mean of 512 products"
    assert tried("return x + y").vary().tolerance.variations == ()


def test_controls_mean_must_be_nearer_than_other_means(tried):
    problem = tried("return (x * y).abs().mean()").vary()
    half = (problem.inputs[0] * problem.inputs[1]).abs()[:8].mean()
    assert not controls.accepts([half], problem.expected, problem.tolerance)
    assert controls.accepts(problem.expected.trusted, problem.expected, problem.tolerance)


def test_each_floating_input_has_its_own_sensitivity(tried):
    strong, weak, none = tried("return x + y * 1e-5").sensitivity + tried("return x + y * 0").sensitivity[1:]
    assert strong == pytest.approx(math.sqrt(2), rel=0.1)
    assert weak == pytest.approx(math.sqrt(2) * 1e-5, rel=0.1)
    assert none == 0.0


def test_integers_that_change_are_counted(tried):
    assert tried("return x.argmax(1), y.argmax(1)").sensitivity == (pytest.approx(0.95, abs=0.1),) * 2


@pytest.mark.parametrize("dtype", [Dtype.FP64, Dtype.FP32, Dtype.TF32, Dtype.BF16, Dtype.FP16])
def test_one_precision_lower_is_told(dtype, tried):
    assert tried("return x @ y.T", dtype).rejects_lower_precision is True


def test_an_answer_that_hides_the_precision_is_named_as_such(tried):
    assert tried("return x.sign() * 2 + y.sign()").rejects_lower_precision is False


@pytest.mark.parametrize(
    ("forward", "dtype"),
    [("return x + y", Dtype.INT32), ("return x.argmax(1)", Dtype.FP32), ("return x", Dtype.FP8_E4M3)],
)
def test_where_there_is_no_lower_precision_nothing_is_said(forward, dtype, tried):
    assert tried(forward, dtype).rejects_lower_precision is None


def test_a_control_that_needs_too_much_memory_says_nothing(tried, monkeypatch):
    problem = tried("return x + y")
    errors = [torch.OutOfMemoryError(), RuntimeError("can't allocate memory"), RuntimeError("something else")]

    def full(_inputs):
        raise errors.pop(0)

    monkeypatch.setattr(problem.reference, "answer", full)
    assert problem.sensitivity is None
    assert problem.sensitivity is None
    with pytest.raises(RuntimeError, match="something else"):
        problem.sensitivity  # noqa: B018  # asking is what raises


@pytest.mark.parametrize("forward", ["return x @ y.T", "return x.cumsum(1) + y", "return (x + y).sum(1)"])
def test_what_averages_out_over_long_sums_shows_on_whole_numbers(forward, tried):
    problem = tried(forward, inputs="torch.rand(4, 1 << 16), torch.rand(4, 1 << 16)")
    length = controls.reduction_length(problem.reference, problem.inputs)
    problem.tolerance = Tolerance.of(Dtype.FP32, {}, length)
    assert problem.rejects_lower_precision is False
    assert controls.rejects_lower_precision_exactly(problem.reference) is True


@pytest.mark.parametrize("forward", ["return x.softmax(1) + y", "return x.log() + y", "return (x > y).float()"])
def test_precision_exactly_non_integer_answer_tells_nothing(forward, tried):
    assert controls.rejects_lower_precision_exactly(tried(forward).reference) is False


WHOLE = {
    "return x @ y.T": True,
    "return torch.relu(x) + y": True,
    "return x.cumsum(1), y.argmax(1)": True,
    "return x / 3": False,
    "return torch.softmax(x, 1)": False,
    "return x * 3e9": False,
    "return x.argmax(1)": False,
}


@pytest.mark.parametrize("forward", WHOLE)
def test_whole_answers_to_zeros_and_ones_are_known_as_such(forward, tried):
    problem = tried(forward, mode=InputMode.EXACT)
    assert controls.is_whole(problem.expected, Dtype.FP32) is WHOLE[forward]


def test_is_whole_false_where_trusted_one_is_off():
    wanted = torch.tensor([256.0, 257.0], dtype=torch.float64)
    rounded = ExpectedOutput(Structure.TENSOR, (wanted,), (wanted.bfloat16(),))
    assert not controls.is_whole(rounded, Dtype.BF16)
    exact = ExpectedOutput(Structure.TENSOR, (wanted[:1],), (wanted[:1].bfloat16(),))
    assert controls.is_whole(exact, Dtype.BF16)


@pytest.mark.parametrize(("forward", "finite"), [("return x + y", True), ("return x / y", False)])
def test_zeros_that_divide_are_noticed(forward, finite, tried):
    assert controls.is_finite(tried(forward, mode=InputMode.EXACT).expected) is finite
