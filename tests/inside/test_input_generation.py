"""Inputs: seeds that only the judge can derive, the cell's dtype, outliers where they belong."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import random
from collections import namedtuple
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from kernel_matrix.inside.input_generation import (
    EXACT_BITS,
    LARGEST_WHOLE,
    LOWER_BITS,
    OUTLIER_PROBABILITY,
    OUTLIER_SCALE,
    PARAMETER_DTYPES,
    TORCH_DTYPES,
    WHOLE_DTYPES,
    IntegerRange,
    cast,
    derive_seed,
    draw_inputs,
    map_tensors,
    nbytes_of,
    place_model,
    place_reference,
    seed_torch,
    set_float32_precision,
    tensors_in,
)
from kernel_matrix.inside.judge.reference import round_mantissa
from kernel_matrix.model.enums import Dtype, InputMode

pytestmark = pytest.mark.torch

SECRET = "0123456789abcdef" * 2


def problem(get_inputs):
    return SimpleNamespace(get_inputs=get_inputs)


def test_a_seed_is_the_same_for_the_same_secret_and_purpose():
    # The number itself: a record's seed must give the same inputs in every version of this program.
    assert derive_seed(SECRET, "standard", "before", 0) == 4610852696720064214
    assert derive_seed(SECRET, "standard", "before", 0) == derive_seed(SECRET, "standard", "before", 0)


@given(
    one=st.tuples(st.text(alphabet="abc"), st.integers(0, 99)),
    other=st.tuples(st.text(alphabet="abc"), st.integers(0, 99)),
)
def test_seeds_differ_by_purpose_and_by_secret(one, other):
    assert (derive_seed(SECRET, *one) == derive_seed(SECRET, *other)) == (one == other)
    assert derive_seed(SECRET, *one) != derive_seed(SECRET[::-1], *one)
    assert 0 <= derive_seed(SECRET, *one) < 2**63


def test_equal_seeds_draw_equal_inputs_whatever_was_drawn_before():
    module = problem(lambda: [torch.randn(4), torch.randint(0, 100, (4,)), random.random()])
    one = draw_inputs(module, "cpu", Dtype.FP32, InputMode.STANDARD, 7)
    torch.rand(3), random.random()
    same = draw_inputs(module, "cpu", Dtype.FP32, InputMode.STANDARD, 7)
    other = draw_inputs(module, "cpu", Dtype.FP32, InputMode.STANDARD, 8)
    assert torch.equal(one[0], same[0])
    assert torch.equal(one[1], same[1])
    assert one[2] == same[2]
    assert not torch.equal(one[0], other[0])
    assert one[2] != other[2]


def test_inputs_are_made_on_the_device_that_is_asked_for():
    made = []
    module = problem(lambda: made.append(torch.randn(4)) or made)
    (drawn,) = draw_inputs(module, "meta", Dtype.FP32, InputMode.STANDARD, 7)
    assert made[0].device.type == "meta", "made there, not moved there"
    assert drawn.device.type == "meta"


@pytest.mark.parametrize("dtype", Dtype)
def test_draw_casts_floating_tensors_only(dtype):
    kept = [
        torch.arange(3),
        torch.tensor([True]),
        torch.ones(2, dtype=torch.int8),
        torch.ones(2, dtype=torch.complex64),
    ]
    drawn = draw_inputs(problem(lambda: [torch.ones(3), *kept, 2.5, "s"]), "cpu", dtype, InputMode.STANDARD, 1)
    assert drawn[0].dtype == TORCH_DTYPES[dtype]
    assert [t.dtype for t in drawn[1:5]] == [t.dtype for t in kept]
    assert drawn[5:] == [2.5, "s"]


def test_nested_values_are_gone_through_and_keep_their_kind():
    pair = namedtuple("Pair", "a b")  # noqa: PYI024  # the untyped kind is what is found in the field
    value = [
        torch.ones(1),
        (torch.ones(2), None),
        {"k": [torch.ones(3), 4]},
        pair(torch.ones(1), "t"),
        torch.Size((2,)),
    ]
    seen = cast(value, "cpu", Dtype.FP16)
    assert [t.dtype for t in (seen[0], seen[1][0], seen[2]["k"][0], seen[3].a)] == [torch.float16] * 4
    assert [type(v) for v in seen] == [type(v) for v in value]
    assert (seen[1][1], seen[2]["k"][1], seen[3].b, seen[4]) == (None, 4, "t", (2,))
    assert value[0].dtype == torch.float32


def test_every_tensor_is_visited_once():
    visited = []
    map_tensors([torch.ones(1), {"a": (torch.ones(2),)}], lambda t: visited.append(t.numel()) or t)
    assert visited == [1, 2]


def test_draw_outlier_scales_one_in_a_thousand_floats():
    count = 1_000_000
    module = problem(lambda: [[torch.rand(count)], torch.ones(1000, dtype=torch.int64), torch.ones(1000) > 0, 3.0])
    (drawn_as,), *_ = draw_inputs(module, "cpu", Dtype.FP16, InputMode.STANDARD, 5)
    (floats,), integers, booleans, number = draw_inputs(module, "cpu", Dtype.FP16, InputMode.OUTLIER, 5)
    assert floats.dtype == torch.float16
    scaled = floats != drawn_as
    assert torch.allclose(floats[scaled], drawn_as[scaled] * OUTLIER_SCALE, rtol=1e-3, atol=1e-3)
    spread = (OUTLIER_PROBABILITY / count) ** 0.5
    assert abs(float(scaled.double().mean()) - OUTLIER_PROBABILITY) < 6 * spread
    assert set(integers.tolist()) == {1}
    assert bool(booleans.all())
    assert number == 3.0


def test_the_modes_draw_the_same_values_but_for_the_outliers():
    module = problem(lambda: [torch.randn(10_000)])
    (standard,) = draw_inputs(module, "cpu", Dtype.FP32, InputMode.STANDARD, 5)
    (outlier,) = draw_inputs(module, "cpu", Dtype.FP32, InputMode.OUTLIER, 5)
    differs = standard != outlier
    assert 0 < int(differs.sum()) < 100
    assert torch.equal(outlier[differs], standard[differs] * OUTLIER_SCALE)


def drawn(get_inputs, dtype, mode=InputMode.STANDARD):
    return draw_inputs(problem(lambda: [get_inputs()]), "cpu", dtype, mode, 5)[0]


@pytest.mark.parametrize("dtype", EXACT_BITS)
def test_exact_mode_draws_zeros_and_ones_few_enough_to_be_summed(dtype):
    ones = drawn(lambda: torch.rand(64, 8192), dtype, InputMode.EXACT).float()
    assert ones.unique().tolist() == [0.0, 1.0]
    assert float(ones.sum(1).max()) <= 2 ** EXACT_BITS[dtype]
    share = min(0.5, 2 ** (EXACT_BITS[dtype] - 1) / 8192)
    assert float(ones.mean()) == pytest.approx(share, rel=0.1)


def test_a_drawn_tensor_that_the_problem_keeps_is_not_changed():
    kept = torch.randn(100)
    before = kept.clone()
    for mode in InputMode:
        drawn(lambda: kept, Dtype.FP32, mode)
        drawn(lambda: kept.expand(3, 100), Dtype.FP32, mode)
    assert torch.equal(kept, before)


@pytest.mark.parametrize("dtype", sorted(WHOLE_DTYPES), ids=lambda d: d.value)
@pytest.mark.parametrize("mode", InputMode)
def test_whole_dtypes_replace_what_was_drawn(dtype, mode):
    values = drawn(lambda: torch.randn(4000), dtype, mode)
    low, high = (0, 1) if dtype is Dtype.BOOL else (-LARGEST_WHOLE, LARGEST_WHOLE)
    assert values.int().unique().tolist() == list(range(low, high + 1))


@pytest.mark.parametrize("dtype", [Dtype.FP8_E4M3, Dtype.FP8_E5M2])
def test_narrow_inputs_are_clamped_and_stay_numbers(dtype):
    largest = torch.finfo(TORCH_DTYPES[dtype]).max
    values = drawn(lambda: torch.tensor([1.0, 1e9, -1e9]), dtype)
    assert values.float().tolist() == [1.0, largest, -largest]


def test_doubles_have_all_their_bits_and_the_default_comes_back():
    values = drawn(lambda: torch.randn(100), Dtype.FP64)
    assert not torch.equal(values, values.float().double())
    assert torch.get_default_dtype() is torch.float32

    def fails():
        raise ValueError("no inputs")

    with pytest.raises(ValueError, match="no inputs"):
        drawn(fails, Dtype.FP64)
    assert torch.get_default_dtype() is torch.float32


def test_numpy_is_seeded_too_where_it_is_there():
    numpy = pytest.importorskip("numpy")
    one, other = (drawn(lambda: torch.from_numpy(numpy.random.rand(4)), Dtype.FP64) for _ in range(2))
    assert torch.equal(one, other)


def test_only_tf32_rounds_the_factors_of_single_precision():
    for dtype in Dtype:
        set_float32_precision(dtype)
        allowed = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
        assert allowed == (dtype is Dtype.TF32,) * 2
    set_float32_precision(Dtype.FP32)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.register_buffer("table", torch.arange(3))
        self.register_buffer("turn", torch.ones(2, dtype=torch.complex64))

    def forward(self, x):
        return x.dtype


@pytest.mark.parametrize("dtype", Dtype)
def test_parameters_have_the_cells_dtype_and_all_else_stays(dtype):
    placed = place_model(Net(), "cpu", dtype).state_dict()
    assert placed["linear.weight"].dtype == PARAMETER_DTYPES[dtype]
    assert (placed["table"].dtype, placed["turn"].dtype) == (torch.int64, torch.complex64)


@pytest.mark.parametrize("dtype", Dtype)
def test_only_a_reference_has_its_narrow_inputs_widened(dtype):
    x = torch.zeros(4).to(TORCH_DTYPES[dtype])
    narrow = x.dtype.itemsize == 1 and x.is_floating_point()
    assert place_reference(Net(), "cpu", dtype)(x) == (torch.bfloat16 if narrow else x.dtype)
    assert place_model(Net(), "cpu", dtype)(x) == x.dtype


@pytest.mark.parametrize("dtype", EXACT_BITS)
def test_draw_wide_is_in_one_input_and_needs_one_more_bit(dtype):
    module = problem(lambda: [torch.rand(64, 8192), {"b": torch.rand(64, 8192)}])
    one, other = tensors_in(draw_inputs(module, "cpu", dtype, InputMode.EXACT, 5, whole=IntegerRange.WIDE))
    plain, wide = sorted((one.double(), other.double()), key=torch.max)
    assert set(plain.unique().tolist()) == {0, 1}
    if dtype not in LOWER_BITS:
        assert set(wide.unique().tolist()) == {0, 1}
        return
    number = 2.0 ** (LOWER_BITS[dtype] + 1) + 1
    assert set(wide.unique().tolist()) == {0, 1, number}
    assert float(wide.sum(1).mean()) <= 2 ** EXACT_BITS[dtype]
    assert float(round_mantissa(torch.tensor(number, dtype=torch.float64), LOWER_BITS[dtype])) != number


@pytest.mark.parametrize("dtype", EXACT_BITS)
def test_draw_signed_is_sparse_and_shows_negative_inputs(dtype):
    module = problem(lambda: [torch.randn(64, 8192)])
    (signed,) = draw_inputs(module, "cpu", dtype, InputMode.EXACT, 5, whole=IntegerRange.SIGNED)
    assert set(signed.double().unique().tolist()) == {-1, 0, 1}
    assert float(signed.double().abs().sum(1).max()) <= 2 ** EXACT_BITS[dtype]


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.BF16, Dtype.INT8])
@pytest.mark.parametrize("mode", InputMode)
def test_draw_in_pieces_equals_draw_at_once(mode, dtype, monkeypatch):
    module = problem(lambda: [torch.randn(30, 50)])
    (whole,) = draw_inputs(module, "cpu", dtype, mode, 5)
    monkeypatch.setattr("kernel_matrix.inside.input_generation.PIECE", 64)
    assert torch.equal(draw_inputs(module, "cpu", dtype, mode, 5)[0], whole)


def test_draw_that_needs_no_change_is_not_copied(monkeypatch):
    monkeypatch.setattr("kernel_matrix.inside.input_generation.PIECE", 64)
    made = torch.randn(30, 50)
    module = problem(lambda: [made])
    (same,) = draw_inputs(module, "cpu", Dtype.FP32, InputMode.STANDARD, 5)
    assert same.data_ptr() == made.data_ptr()


def test_which_input_is_wide_is_drawn():
    module = problem(lambda: [torch.rand(8, 64), torch.rand(8, 64), torch.arange(9)])
    draws = [
        draw_inputs(module, "cpu", Dtype.FP32, InputMode.EXACT, seed, whole=IntegerRange.WIDE) for seed in range(20)
    ]
    assert {tuple(float(t.max()) > 1 for t in drawn[:2]) for drawn in draws} == {(True, False), (False, True)}
    assert all(torch.equal(drawn[2], torch.arange(9)) for drawn in draws)


def test_bytes_are_those_of_the_elements():
    half, ghost = torch.ones(3, dtype=torch.float16), torch.empty(2, 5, device="meta")
    assert nbytes_of([half, ghost, torch.empty(0)]) == 3 * 2 + 10 * 4


def test_tensors_are_found_in_order():
    a, b = torch.ones(1), torch.ones(2)
    assert [t.numel() for t in tensors_in([a, {"k": (b, 3)}, "s"])] == [1, 2]


VIEWS = {
    "transposed": lambda: torch.randn(6, 40).t(),
    "permuted": lambda: torch.randn(2, 3, 4).permute(0, 2, 1),
    "every second": lambda: torch.randn(40, 12)[:, ::2],
    "empty": lambda: torch.randn(0, 7).t(),
}


@pytest.mark.parametrize("whole", IntegerRange)
@pytest.mark.parametrize("mode", InputMode)
@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.BF16, Dtype.FP8_E4M3, Dtype.INT8, Dtype.BOOL])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_stays_one_in_every_mode_and_dtype(view, dtype, mode, whole):
    (tensor,) = draw_inputs(SimpleNamespace(get_inputs=lambda: [VIEWS[view]()]), "cpu", dtype, mode, 3, whole=whole)
    assert (tensor.stride(), tensor.dtype) == (VIEWS[view]().stride(), TORCH_DTYPES[dtype])


def test_what_overlaps_in_memory_is_spread_out():
    assert drawn(lambda: torch.randn(1, 5).expand(4, 5), Dtype.BF16).shape == (4, 5)


def test_seed_torch_equals_torchs_and_queues_nothing():
    torch.manual_seed(2**40 + 7)
    wanted = torch.rand(3)
    waiting = [len(kind._queued_calls) for kind in (torch.cuda, torch.xpu, torch.mtia)]
    seed_torch(2**40 + 7)
    assert torch.equal(torch.rand(3), wanted)
    assert [len(kind._queued_calls) for kind in (torch.cuda, torch.xpu, torch.mtia)] == waiting
