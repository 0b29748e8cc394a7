"""Properties of a problem's inputs: found where they are, not found by chance, and kept by every mode."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import math
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.input_generation import IntegerRange, can_change, draw_inputs, inspect_inputs
from kernel_matrix.inside.input_properties import InputProperties, find_properties, power_above, power_below
from kernel_matrix.model.enums import Dtype, InputMode

pytestmark = pytest.mark.torch

N = 64


def randn(*shape):
    return torch.randn(*(shape or (N, N)))


def gram(columns):
    x = randn(3, N, columns)
    return x @ x.mT


def symmetric(sign=1):
    x = randn()
    return x + sign * x.T


def centred():
    x = randn()
    return x - x.mean(1, keepdim=True)


def twice():
    x = randn()
    return x, x.clone(), randn()


def cosines():
    return (6.28 * torch.rand(N, N)).cos()


def found(draw, seed=0):
    """Return the properties of what ``draw`` draws beside another input."""
    torch.manual_seed(seed)
    return find_properties([lambda: [draw(), randn()]] * 3)[0]


PLAIN = {
    "normal": randn,
    "few rows": lambda: randn(8, 40),
    "cubes": lambda: randn() ** 3,
    "lower triangle": lambda: randn().tril(),
    "band": lambda: randn().tril(2).triu(-2),
    "symmetric": symmetric,
    "rows of different size": lambda: randn() + 8 * randn(N, 1),
    "rising on the whole": lambda: randn(N, 40) + torch.arange(40) / 5,
    "four dimensions": lambda: randn(4, 5, 6, 7),
    "much": lambda: randn(500, 1000),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_inputs_have_no_properties(name):
    for seed in range(20):
        properties = found(PLAIN[name], seed)
        assert (properties.fixed, properties.least, properties.largest) == (False, 0.0, math.inf)
        assert properties.two_signs


FIXED = {
    "sorted rows": ("related", lambda: randn().sort().values),
    "falling columns": ("related", lambda: randn().sort(0, descending=True).values),
    "a sorted vector": ("related", lambda: randn(1000).sort().values),
    "running sums": ("related", lambda: torch.rand(N, N).cumsum(1)),
    "rows that sum to one": ("related", lambda: randn().softmax(-1)),
    "columns that sum to one": ("related", lambda: randn().softmax(0)),
    "a vector that sums to one": ("related", lambda: randn(N).softmax(0)),
    "rows of unit length": ("related", lambda: torch.nn.functional.normalize(randn())),
    "centred rows": ("related", centred),
    "orthogonal": ("related", lambda: torch.linalg.qr(randn())[0]),
    "positive definite": ("related", lambda: gram(N)),
    "positive semidefinite": ("related", lambda: gram(8)),
    "one-hot": ("whole", lambda: torch.eye(9)[torch.randint(0, 9, (N,))]),
    "a permutation": ("whole", lambda: torch.randperm(N).float()),
    "a causal mask": ("whole", lambda: torch.full((N, N), -math.inf).triu(1)),
    "a table": ("constant", lambda: torch.linspace(0, 3, N).sin().repeat(N, 1)),
    "nothing": ("whole", lambda: torch.randn(0, 5)),
}


@pytest.mark.parametrize("name", FIXED)
def test_property_that_maps_would_break_is_found(name):
    attribute, draw = FIXED[name]
    for seed in range(5):
        assert getattr(found(draw, seed), attribute)


RANGES = {
    "between 0 and 1": (lambda: torch.rand(N, N), 0.0, 1.0),
    "kept off zero": (lambda: torch.rand(N, N) + 0.1, 0.1, 1.1),
    "negative": (lambda: -torch.rand(N, N) - 0.1, 0.1, 1.1),
    "cosines": (cosines, 0.0, 1.0),
    "cut off on one side": (lambda: randn().clamp(-1), 0.0, 1.0),
    "diagonal": (lambda: torch.rand(300).diag(), 0.0, 1.0),
    "too few to tell": (lambda: torch.rand(3) + 1, 1.0, 2.0),
}


@pytest.mark.parametrize("name", RANGES)
def test_range_with_an_end_is_found(name):
    draw, least, largest = RANGES[name]
    slack = 1.0 if "few" in name else 0.02
    for seed in range(5):
        properties = found(draw, seed)
        assert properties.least == pytest.approx(least, abs=slack)
        assert properties.largest == pytest.approx(largest, abs=slack)


def test_signs_and_repetitions_are_found():
    assert found(lambda: symmetric(-1)).antisymmetric
    assert not found(randn).antisymmetric
    assert not found(lambda: randn().exp()).two_signs
    assert [one.repeated for one in find_properties([twice] * 3)] == [True, True, False]


def test_seeded_problem_has_no_constant_inputs():
    fixed = randn()
    assert [one.fixed for one in find_properties([lambda: [fixed]] * 3)] == [False]
    kinds = find_properties([lambda: [fixed, torch.randint(0, 1000, (N,))]] * 3)
    assert (kinds[0].constant, kinds[1]) == (True, None)


def test_number_of_tensors_that_varies_fixes_all():
    assert all(one.related for one in find_properties([lambda count=count: [randn()] * count for count in (1, 2, 1)]))


def test_powers_are_nearest():
    assert [power_above(x) for x in (0.1, 0.25, 1, 3)] == [0.125, 0.25, 1, 4]
    assert [power_below(x) for x in (0.1, 0.25, 1, 3)] == [0.0625, 0.25, 1, 2]


KEPT = {
    "zeros": (lambda: randn().tril(), lambda x: (x.triu(1) == 0).all()),
    "symmetry": (PLAIN["symmetric"], lambda x: (x == x.T).all()),
    "antisymmetry": (lambda: symmetric(-1), lambda x: (x == -x.T).all()),
    "equal rows": (lambda: randn(1, N).repeat(N, 1), lambda x: (x == x[0]).all()),
    "order": (FIXED["sorted rows"][1], lambda x: (x.diff() >= 0).all()),
    "sums": (FIXED["rows that sum to one"][1], lambda x: (x.sum(1) - 1).abs().max() < 0.02),
    "lengths": (FIXED["rows of unit length"][1], lambda x: (x.norm(dim=1) - 1).abs().max() < 0.02),
    "definiteness": (lambda: gram(2 * N), lambda x: (torch.linalg.eigvalsh(x) > 0).all()),
    "sign": (lambda: torch.rand(N, N), lambda x: (x >= 0).all()),
    "negative sign": (RANGES["negative"][0], lambda x: (x < 0).all() and (x >= -1.11).all()),
    "distance from zero": (RANGES["kept off zero"][0], lambda x: (x >= 0.09).all() and (x <= 1.11).all()),
    "range": (RANGES["cosines"][0], lambda x: (x.abs() <= 1).all()),
    "permutation": (FIXED["a permutation"][1], lambda x: (x.sort().values == torch.arange(N)).all()),
    "one-hot": (FIXED["one-hot"][1], lambda x: ((x == 0) | (x == 1)).all() and (x.sum(1) == 1).all()),
    "mask": (FIXED["a causal mask"][1], lambda x: (x.isinf().sum(1) == torch.arange(N - 1, -1, -1)).all()),
}


@pytest.mark.parametrize("whole", IntegerRange)
@pytest.mark.parametrize("mode", InputMode)
@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.FP64, Dtype.BF16], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("name", KEPT)
def test_mode_keeps_what_every_draw_has(name, dtype, mode, whole):
    draw, holds = KEPT[name]
    module = SimpleNamespace(get_inputs=lambda: [draw(), randn()])
    properties = inspect_inputs(module, "cpu", dtype, range(3))
    for seed in range(3):
        kept, _ = draw_inputs(module, "cpu", dtype, mode, seed, whole=whole, properties=properties)
        assert bool(holds(kept.double()))


@pytest.mark.parametrize("name", ["zeros", "symmetry", "sign", "order"])
@pytest.mark.parametrize("dtype", [Dtype.INT8, Dtype.INT32], ids=lambda dtype: dtype.value)
def test_integers_keep_what_every_draw_has(dtype, name):
    draw, holds = KEPT[name]
    module = SimpleNamespace(get_inputs=lambda: [draw()])
    properties = inspect_inputs(module, "cpu", dtype, range(3))
    (kept,) = draw_inputs(module, "cpu", dtype, InputMode.STANDARD, 7, properties=properties)
    assert bool(holds(kept.double()))


def test_bounded_outliers_make_the_others_smaller():
    module = SimpleNamespace(get_inputs=lambda: [torch.rand(1000, 100)])
    properties = inspect_inputs(module, "cpu", Dtype.FP32, range(3))
    (kept,) = draw_inputs(module, "cpu", Dtype.FP32, InputMode.OUTLIER, 7, properties=properties)
    assert 0.98 < kept.max() <= 1
    assert float((kept > 0.02).double().mean()) == pytest.approx(0.001, rel=0.3)


@pytest.mark.parametrize("mode", [InputMode.OUTLIER, InputMode.EXACT])
def test_can_change_is_false_if_all_inputs_are_fixed(mode):
    fixed, free = InputProperties(related=True), InputProperties()
    assert not can_change([fixed, None], mode)
    assert can_change([fixed, free], mode)
    assert can_change([None], mode)
    assert can_change([fixed], InputMode.STANDARD)
    whole = InputProperties(whole=True)
    assert can_change([whole], mode) is (mode is InputMode.EXACT)
    assert can_change([InputProperties(least=5.0, largest=6.0)], mode) is False
