"""Inputs of timed calls: drawn or replaced in part, and no place keeps its number for long."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import random
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge import input_supply as supply_module
from kernel_matrix.inside.judge.input_supply import (
    FRESH,
    FRESH_IN_PART,
    PARTS,
    REDRAW_CALLS,
    ROTATING,
    InputSupply,
    exchangeable,
    spans_of,
)
from kernel_matrix.inside.platform import load_platform
from kernel_matrix.model.enums import InputMode
from kernel_matrix.model.messages import ProtocolSpec

pytestmark = pytest.mark.torch

PROTOCOL = ProtocolSpec()
N = 1 << 18
KIB = 1 << 10


class Problem:
    """A reference that draws given inputs, and counts."""

    platform = load_platform("cpu")
    like = ()  # no outputs

    def __init__(self, draw=lambda: [torch.rand(N)]):
        self.drawn = []
        self._draw = draw

    def draw(self, mode, *purpose):
        self.drawn.append((mode, *purpose))
        torch.manual_seed(len(self.drawn))
        return self._draw()


@pytest.fixture
def large(monkeypatch):
    """Every set is a large one."""
    monkeypatch.setattr(supply_module, "SMALL_BYTES", 0)


def supply_of(draw, *, seed=0, protocol=PROTOCOL):
    problem = Problem(draw)
    return InputSupply(problem, protocol, random.Random(seed)), problem


@pytest.mark.usefixtures("large")
def test_supply_that_keeps_no_set_draws_each_again():
    problem = Problem(lambda: [torch.rand(N)])
    problem.draw = lambda mode, *purpose: [torch.full((N,), float(purpose[-1]))]
    supply = InputSupply(problem, PROTOCOL, random.Random(0), keeps=False)
    assert supply.kind == "fresh"
    seen = []
    for _ in range(3):
        inputs = supply.next_drawn()
        first = float(inputs.values[0][0])
        inputs.forget()
        assert float(inputs.values[0][0]) == first
        seen.append(first)
    assert seen == [1, 2, 3]


def test_small_inputs_are_drawn_anew_for_each_call():
    supply, problem = supply_of(lambda: [torch.rand(64)])
    handed = [supply.next()[0].clone() for _ in range(5)]
    assert supply.kind == FRESH
    assert problem.drawn == [(InputMode.STANDARD, "timed", n) for n in range(1, 6)], "and none before its call"
    assert not any(torch.equal(one, other) for one in handed for other in handed if one is not other)


def test_a_rotating_set_is_drawn_once_and_taken_from_at_random():
    supply, problem = supply_of(lambda: [torch.rand(4)], protocol=replace(PROTOCOL, inputs="rotating", rotation=3))
    handed = [float(supply.next()[0][0]) for _ in range(60)]
    assert supply.kind == ROTATING
    assert len(problem.drawn) == len(set(handed)) == 3
    assert handed != handed[:3] * 20


@pytest.mark.usefixtures("large")
def test_of_a_large_set_one_part_is_new_at_each_call():
    supply, _ = supply_of(lambda: [torch.rand(N)])
    assert supply.kind == FRESH_IN_PART
    before = supply.next()[0].clone()
    for _ in range(REDRAW_CALLS - 1):
        now = supply.next()[0].clone()
        assert int((now != before).sum()) == N // PARTS
        before = now
    after = supply.next()[0]
    assert (after != before).double().mean() > 1 - (REDRAW_CALLS + 1) / PARTS, "then the whole set is another one"


@pytest.mark.usefixtures("large")
def test_refreshed_place_is_not_refreshed_before_redraw():
    supply, _ = supply_of(lambda: [torch.rand(N)])
    before, changed = supply.next()[0].clone(), torch.zeros(N)
    for _ in range(REDRAW_CALLS - 1):
        now = supply.next()[0].clone()
        changed += now != before
        before = now
    assert changed.max() == 1
    assert int(changed.sum()) == (REDRAW_CALLS - 1) * N // PARTS


@pytest.mark.usefixtures("large")
def test_every_value_is_one_that_the_problem_drew_for_that_place():
    drawn = []

    def draw():
        drawn.append(torch.rand(N))
        return [drawn[-1].clone()]

    supply, _ = supply_of(draw)
    for _ in range(3 * REDRAW_CALLS):
        now = supply.next()[0]
        assert bool((torch.stack(drawn[-3:]) == now).any(dim=0).all())
    assert len(drawn) == 4, "one draw for so many calls, and the first"


@pytest.mark.usefixtures("large")
def test_where_it_changes_is_known_to_the_judge_alone():
    def changed(seed):
        supply, _ = supply_of(lambda: [torch.rand(N)], seed=seed)
        before = supply.next()[0].clone()
        return supply.next()[0] != before

    assert torch.equal(changed(1), changed(1))
    assert (changed(1) & changed(2)).sum() < N // PARTS / 4


@pytest.mark.usefixtures("large")
def test_a_memo_that_samples_a_few_values_is_wrong_on_most_calls():
    supply, _ = supply_of(lambda: [torch.rand(512, 512)])
    memo, fooled, stale = {}, 0, 0
    for _ in range(200):
        x = supply.next()[0]
        key = tuple(x.view(-1)[:: N // 8].tolist())
        if key in memo:
            fooled += 1
            stale += not torch.equal(memo[key], x.sum(dim=1))
        memo.setdefault(key, x.sum(dim=1))
    assert fooled > 50
    assert stale == fooled, "what it remembered is never right"


DTYPES = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "int8", "uint8", "bool", "complex64"]


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.usefixtures("large")
def test_every_dtype_is_renewed(name):
    dtype = getattr(torch, name)
    supply, _ = supply_of(lambda: [torch.randint(0, 2, (N,)).to(dtype)])
    assert supply.kind == FRESH_IN_PART
    before = supply.next()[0].clone().view(torch.uint8)
    changed = (supply.next()[0].view(torch.uint8) != before).view(N, -1).any(dim=1)
    assert 0.3 < int(changed.sum()) / (N // PARTS) < 0.7, "of two values half are another one"


@pytest.mark.usefixtures("large")
def test_refreshed_inputs_keep_layout_and_small_tensors():
    def draw():
        return [torch.rand(512, 1024).t(), {"weights": [torch.rand(N), 3]}, torch.rand(8), "name"]

    supply, _ = supply_of(draw)
    first = supply.next()
    small = first[2].clone()
    assert first[0].stride() == (1, 1024)
    assert (first[1]["weights"][1], first[3]) == (3, "name")
    for _ in range(REDRAW_CALLS - 1):
        assert torch.equal(supply.next()[2], small)
    assert not torch.equal(supply.next()[2], small)


def symmetric():
    x = torch.rand(256, 256)
    return x + x.t()


STRUCTURED = {
    "row offsets": lambda: torch.arange(N),
    "a permutation": lambda: torch.randperm(N),
    "indices": lambda: torch.randint(0, 1000, (N,), dtype=torch.int32),
    "ordered rows": lambda: torch.rand(64, 4096).sort(dim=-1).values,
    "a symmetric matrix": symmetric,
    "symmetric matrices": lambda: symmetric().expand(4, 256, 256).clone(),
    "every other element": lambda: torch.rand(2 * N)[::2],
    "the same row again and again": lambda: torch.rand(4096).expand(64, 4096),
    "half a word into its memory": lambda: torch.rand(N + 1)[1:],
}


@pytest.mark.parametrize("name", STRUCTURED)
@pytest.mark.usefixtures("large")
def test_supply_structured_tensors_are_drawn_for_each_call(name):
    assert not exchangeable(STRUCTURED[name]())
    supply, problem = supply_of(lambda: [torch.rand(N), STRUCTURED[name]()])
    assert supply.kind == FRESH
    one, other = (supply.next()[1].clone() for _ in range(2))
    assert len(problem.drawn) == 2
    assert name == "row offsets" or not torch.equal(one, other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.rand(N),
        lambda: torch.rand(512, 512),
        lambda: torch.rand(16, 64, 128, 2),
        lambda: torch.rand(256, 256).tril(),
        lambda: torch.randint(0, 16, (N,), dtype=torch.uint8),
        lambda: torch.rand(64, 32, 32, 32).to(memory_format=torch.channels_last),
    ],
    ids=["line", "square", "pairs", "triangle", "packed weights", "channels last"],
)
def test_what_any_draw_could_be_may_be_exchanged(make):
    torch.manual_seed(5)
    assert exchangeable(make())


@pytest.mark.usefixtures("large")
def test_what_names_each_place_once_still_does_in_every_call():
    supply, _ = supply_of(lambda: [torch.rand(N), torch.randperm(N)])
    for _ in range(4):
        assert torch.equal(supply.next()[1].sort().values, torch.arange(N))


@pytest.mark.parametrize("count", [8 * KIB, N, N + 1, 3 * N + 5, (1 << 16) * 7 + 3])
def test_spans_are_the_tensors_own_memory_and_leave_little_over(count):
    tensor = torch.rand(count)
    spans = spans_of(tensor)
    assert spans.data_ptr() == tensor.data_ptr()
    left_over = count * 4 - spans.numel() * 8
    assert 0 <= left_over < spans.shape[1] * 8 + 8
    assert left_over < count * 4 / 1000 + 8


@pytest.mark.gpu
def test_a_real_gpu_prepares_gigabytes_in_milliseconds():
    """Check that the path works on a device and is no redraw; benchmarks measure its speed."""
    problem = Problem(lambda: [torch.rand(1 << 28, device="cuda")])
    problem.platform = load_platform("cuda")
    supply = InputSupply(problem, PROTOCOL, random.Random(0))
    assert supply.kind == FRESH_IN_PART
    before = supply.next()[0].clone()
    assert int((supply.next()[0] != before).sum()) == pytest.approx((1 << 28) / PARTS, rel=0.01)
    assert len(problem.drawn) == 2
