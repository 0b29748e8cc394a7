"""The check of random outputs: honest ones always pass, others fail, for every distribution."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge.checks import CheckedCall, judge_call
from kernel_matrix.inside.judge.checks import distribution as check
from kernel_matrix.inside.judge.checks.distribution import RandomOutputs, departures
from kernel_matrix.inside.judge.reference import ExpectedOutput
from kernel_matrix.inside.judge.tolerance import Tolerance
from kernel_matrix.inside.memory import dtype_name
from kernel_matrix.inside.wire import OutputClaim, OutputsClaim, Structure
from kernel_matrix.model.enums import Status

pytestmark = pytest.mark.torch

NUMBERS = 4000
RTOL = 1e-5


def dice(seed):
    """Another generator than the references' own."""
    return torch.Generator().manual_seed(seed)


class Task:
    """A random function of fixed inputs, the reference's way of computing it, and an honest other one."""

    def __init__(self, name, count=NUMBERS):
        self.x = torch.randn(count, generator=dice(1))
        self.p = torch.rand(count, generator=dice(2))
        self._name = name

    def reference(self):
        draws = {
            "normal": lambda: self.x + (self.p + 0.5) * torch.randn(self.x.shape),
            "bernoulli": lambda: torch.bernoulli(self.p),
            "rare": lambda: torch.bernoulli(self.p / 100).bool(),
            "dropout": lambda: torch.nn.functional.dropout(self.x, 0.3),
            "channels": lambda: torch.nn.functional.dropout2d(self.x.view(1, -1, 10, 1), 0.3).view(-1),
            "classes": lambda: torch.multinomial(self.p.view(-1, 8), 8, replacement=True).view(-1),
            "permuted": lambda: torch.randperm(len(self.x)),
            "narrow": lambda: self.x.half() + torch.rand(self.x.shape, dtype=torch.float16),
        }
        return draws[self._name]()

    def honest(self, g):
        drawn = torch.rand(self.x.shape, dtype=torch.float64, generator=g)
        kept = drawn >= 0.3
        angles = torch.rand(self.x.shape, dtype=torch.float64, generator=g) * 2 * math.pi
        sums = self.p.view(-1, 8).double().cumsum(1)
        answers = {
            "normal": lambda: self.x + (self.p + 0.5) * (-2 * drawn.log()).sqrt() * angles.cos(),
            "bernoulli": lambda: drawn < self.p,
            "rare": lambda: drawn < self.p.double() / 100,
            "dropout": lambda: self.x * kept * (1 / 0.7),
            "channels": lambda: self.x * kept.view(-1, 10)[:, :1].expand(-1, 10).reshape(-1) * (1 / 0.7),
            "classes": lambda: torch.searchsorted(sums, drawn.view(-1, 8) * sums[:, -1:]).view(-1),
            "permuted": drawn.argsort,
            "narrow": lambda: self.x.half().double() + drawn,
        }
        return answers[self._name]().to(self.reference().dtype)


TASKS = ("normal", "bernoulli", "rare", "dropout", "channels", "classes", "permuted", "narrow")


def randomness(reference, seed=0, earlier=None):
    return RandomOutputs(
        again=lambda: (reference(),),
        varies=(True,),
        seed=f"{seed}",
        start=0.3,
        earlier={} if earlier is None else earlier,
    )


def departure(output, reference, **options):
    """Return how far ``output`` departs from the outputs of ``reference``."""
    (found,) = departures((output,), randomness(reference, **options), RTOL if output.dtype != torch.float16 else 2e-3)
    return found


@pytest.mark.parametrize("name", TASKS)
def test_another_generator_is_never_refused(name):
    torch.manual_seed(3)
    task, g, earlier = Task(name), dice(4), {}
    found = [departure(task.honest(g), task.reference, seed=i, earlier=earlier) for i in range(40)]
    assert max(each.ratio for each in found) < 0.85


@pytest.mark.parametrize("name", TASKS)
def test_a_constant_is_never_taken(name):
    torch.manual_seed(3)
    task = Task(name)
    like = task.reference()
    for constant in (0, like.double().mean()):
        first = departure(torch.full_like(like, float(constant)), task.reference)
        if name != "rare":  # nearly all are zero
            assert first.ratio > 1


@pytest.mark.parametrize("name", ["normal", "bernoulli", "dropout", "classes", "permuted", "narrow"])
def test_what_was_returned_before_is_not_taken_again(name):
    torch.manual_seed(3)
    task, earlier = Task(name), {}
    kept, g = task.honest(dice(4)), dice(5)
    assert departure(kept, task.reference, seed=0, earlier=earlier).ratio < 1
    for seed in range(1, 6):
        assert departure(task.honest(g), task.reference, seed=seed, earlier=earlier).ratio < 1
    again = departure(kept, task.reference, seed=6, earlier=earlier)
    assert again.ratio > 1
    assert "earlier call" in again.words


def test_departures_shifted_table_is_recognized():
    torch.manual_seed(3)
    task, earlier = Task("normal"), {}
    table = torch.randn(NUMBERS, generator=dice(4))
    for seed, moved in enumerate((0, 1234)):
        output = task.x + (task.p + 0.5) * table.roll(moved)
        found = departure(output, task.reference, seed=seed, earlier=earlier)
        assert (found.ratio > 1) is bool(moved)


NORMAL = {
    "the mean alone": (lambda t, g: t.x, "near to each other"),
    "a twentieth too high": (lambda t, g: t.honest(g) + 0.2, "high|another distribution|larger"),
    "a fifth too narrow": (lambda t, g: t.x + 0.8 * (t.honest(g) - t.x), "near to each other"),
    "a tiled block": (lambda t, g: t.x + (t.p + 0.5) * torch.randn(500, generator=g).repeat(8), "places on"),
    "neighbours that go together": (
        lambda t, g: t.x + (t.p + 0.5) * torch.randn(NUMBERS // 2, generator=g).repeat_interleave(2),
        "1 places on",
    ),
    "one deviation for all": (lambda t, g: t.x + 3 * torch.randn(NUMBERS, generator=g), "far apart|larger than"),
    "half of the mean": (lambda t, g: t.honest(g) - t.x / 2, "means of their places too little"),
    "a part left at the mean": (lambda t, g: torch.cat([t.honest(g)[:3500], t.x[3500:]]), "near to each other in part"),
    "some far out": (lambda t, g: torch.cat([t.honest(g)[:-60], torch.full((60,), 1e6)]), "larger than"),
}


@pytest.mark.parametrize("name", NORMAL)
def test_departures_other_distribution_is_described(name):
    torch.manual_seed(3)
    wrong, words = NORMAL[name]
    task = Task("normal")
    found = departure(wrong(task, dice(4)), task.reference)
    assert found.ratio > 1
    assert any(word in found.words for word in words.split("|"))


DROPOUT = {
    "not scaled": lambda t, g: t.honest(g) * 0.7,
    "the input": lambda t, g: t.x,
    "another probability": lambda t, g: t.x * (torch.rand(NUMBERS, generator=g) >= 0.2) / 0.7,
    "rarely scaled otherwise": lambda t, g: torch.cat([t.honest(g)[:-200], t.honest(g)[-200:] * 1.01]),
}


@pytest.mark.parametrize("name", DROPOUT)
def test_dropout_is_told_from_what_is_not(name):
    torch.manual_seed(3)
    task = Task("dropout")
    assert departure(DROPOUT[name](task, dice(4)), task.reference).ratio > 1


def test_departures_scattered_foreign_values_are_found():
    torch.manual_seed(3)
    task = Task("dropout")
    some = 1 + 0.01 * (torch.arange(NUMBERS) % 25 == 0)
    found = departure(task.honest(dice(4)) * some, task.reference)
    assert found.ratio > 1
    assert "none that the reference returns" in found.words


def test_departures_two_values_with_same_moments_fail():
    torch.manual_seed(3)
    x = 100 * Task("normal").x
    two = torch.randint(2, (NUMBERS,), generator=dice(4)) * 2 - 1
    found = departure(x + 0.803 * two, lambda: x + torch.randn(NUMBERS))
    assert found.ratio > 1
    assert "another distribution" in found.words


def test_probabilities_are_those_of_their_places():
    torch.manual_seed(3)
    task = Task("bernoulli")
    flat = (torch.rand(NUMBERS, generator=dice(4)) < 0.5 + 0.6 * (task.p - 0.5)).float()
    assert departure(flat, task.reference).ratio > 1


@pytest.mark.parametrize("change", [lambda z: z + 0.01, lambda z: z * 1.01], ids=["mean", "spread"])
def test_a_hundredth_of_the_spread_shows_among_a_million_numbers(change):
    torch.manual_seed(3)
    size = (check.SAMPLED,)
    g = dice(4)
    honest = departure(torch.randn(size, generator=g), lambda: torch.randn(size))
    assert honest.ratio < 0.85
    assert departure(change(torch.randn(size, generator=g)), lambda: torch.randn(size)).ratio > 1


def test_departures_large_outputs_are_sampled_without_repeats(monkeypatch):
    monkeypatch.setattr(check, "SAMPLED", 1000)
    places, side_by_side = check._places(torch.zeros(5000), randomness(lambda: None), 0)
    assert side_by_side == 500
    assert places[:side_by_side].diff().eq(1).all()
    assert places.unique().numel() == 1000
    assert (places.min() >= 0, places.max() < 5000) == (True, True)
    assert places[side_by_side:].diff().max() < 600, "the others are scattered over all"
    torch.manual_seed(3)
    task = Task("normal", 20_000)
    assert departure(task.honest(dice(4)), task.reference).ratio < 1
    assert departure(task.x, task.reference).ratio > 1


def test_a_few_numbers_say_nothing():
    assert departure(torch.zeros(check.FEWEST - 1), lambda: torch.randn(check.FEWEST - 1)).ratio == 0


# ---- as one of the checks of a call


def call(got, *, varies=(True,), trusted=None, **changes):
    """Make a call whose reference returns normal numbers, or ``trusted``."""
    outputs = got if isinstance(got, tuple) else (got,)
    same = trusted if trusted is not None else tuple(torch.randn(output.shape) for output in outputs)
    claims = (OutputClaim(dtype_name(t.dtype), tuple(t.shape), same_device=True, copied=True) for t in same)
    made = CheckedCall(
        claim=OutputsClaim(Structure.TENSOR if len(same) == 1 else Structure.TUPLE, tuple(claims)),
        outputs=outputs,
        expected=ExpectedOutput(Structure.TENSOR if len(same) == 1 else Structure.TUPLE, same, same),
        tolerance=Tolerance(RTOL),
        inputs_sent=(),
        inputs_now=(),
        mutates_inputs=False,
        random=replace(
            randomness(lambda: None),
            again=lambda: tuple(torch.randn(t.shape) if random else t for t, random in zip(same, varies, strict=True)),
            varies=varies,
        ),
    )
    return replace(made, **changes)


def test_a_call_is_judged_by_its_distribution_alone():
    torch.manual_seed(3)
    judged = judge_call(call(torch.randn(2000)))
    assert judged.failed is None
    assert judged.max_error is None
    assert 0 < judged.error_ratio < 1
    judged = judge_call(call(torch.randn(2000) + 1))
    assert judged.failed.status is Status.INCORRECT_VALUES
    assert "output 0 is not random as the reference's is: its numbers" in judged.failed.evidence.message
    assert judged.failed.evidence.error > judged.failed.evidence.allowed
    assert judged.error_ratio > 1


def test_departures_fixed_outputs_compare_by_element():
    torch.manual_seed(3)
    fixed = torch.arange(2000.0)
    trusted = (torch.randn(2000), fixed)
    good = call((torch.randn(2000), fixed.clone()), varies=(True, False), trusted=trusted)
    assert judge_call(good).failed is None
    assert judge_call(good).max_error == 0
    wrong = call((torch.randn(2000), fixed + 1), varies=(True, False), trusted=trusted)
    assert judge_call(wrong).failed.evidence.output == 1


def test_one_number_that_is_none_is_found():
    torch.manual_seed(3)
    output = torch.randn(2000)
    output[7] = math.nan
    assert judge_call(call(output)).failed.status is Status.NONFINITE
    output.view(torch.int32)[7] = -1
    assert "never written" in judge_call(call(output)).failed.evidence.message


def test_numbers_without_end_are_equal_to_one_another():
    def draw():
        drawn = torch.randn(2000)
        return torch.where(drawn > 1, math.inf, torch.where(drawn < -2, math.nan, drawn))

    torch.manual_seed(3)
    assert departure(draw(), draw).ratio < 1
