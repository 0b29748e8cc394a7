"""Tolerances: honest implementations pass, one precision lower does not, and the evidence names the right element."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode

from kernel_matrix.inside.input_generation import PARAMETER_DTYPES
from kernel_matrix.inside.judge import tolerance as tolerance_module
from kernel_matrix.inside.judge.checks import CheckedCall, judge_call
from kernel_matrix.inside.judge.checks.values import check, compare, measure, passes
from kernel_matrix.inside.judge.reference import ExpectedOutput
from kernel_matrix.inside.judge.tolerance import CAP, RTOL, AllowedError, Tolerance, allowance
from kernel_matrix.inside.wire import OutputClaim, OutputsClaim, Structure
from kernel_matrix.model.enums import Dtype, Status

pytestmark = pytest.mark.torch

INF, NAN = math.inf, math.nan


def randn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def call_of(got, expected, trusted, dtype=Dtype.FP32, **overrides):
    """A finished call with one output or several."""
    outputs, wanted, same = ((t,) if isinstance(t, torch.Tensor) else tuple(t) for t in (got, expected, trusted))
    claims = tuple(OutputClaim(str(t.dtype)[6:], tuple(t.shape), same_device=True, copied=True) for t in outputs)
    structure = Structure.TENSOR if len(outputs) == 1 else Structure.TUPLE
    return CheckedCall(
        claim=OutputsClaim(structure, claims),
        outputs=outputs,
        expected=ExpectedOutput(structure, wanted, same),
        tolerance=Tolerance.of(dtype, overrides),
        inputs_sent=(),
        inputs_now=(),
        mutates_inputs=False,
    )


def accepts(got, expected, trusted=None, dtype=Dtype.FP32, **overrides):
    """Return True if ``got`` passes for ``expected`` (float64), with ``trusted`` by a trusted implementation."""
    same = expected.to(got.dtype) if trusted is None else trusted
    accepted = check(call_of(got, expected, same, dtype, **overrides)) is None
    # The controls' check stops early but must agree.
    assert passes(got, expected, same, allowance(expected, same, Tolerance.of(dtype, overrides))) is accepted
    return accepted


def failure(*arguments, **overrides):
    failed = check(call_of(*arguments, **overrides))
    assert failed is not None
    return failed


# --- errors of honest implementations --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", Dtype)
def test_one_unit_in_the_last_place_passes_at_every_element(dtype):
    wanted = randn(10_000)
    rounded = wanted.to(PARAMETER_DTYPES[dtype])
    for direction in (INF, -INF):
        near = torch.nextafter(rounded, torch.full_like(rounded, direction))
        assert not torch.equal(near, rounded)
        assert accepts(near, wanted, rounded, dtype)


@pytest.mark.parametrize("dtype", Dtype)
def test_another_order_of_summation_passes(dtype):
    torch_dtype = PARAMETER_DTYPES[dtype]
    a, b = randn(64, 512, dtype=torch_dtype), randn(512, 64, seed=1, dtype=torch_dtype)
    wanted = a.double() @ b.double()
    halves = (a[:, ::2] @ b[::2]) + (a[:, 1::2] @ b[1::2])
    assert accepts(halves, wanted, a @ b, dtype)


def to_tf32(tensor):
    """Round to the 10 explicit mantissa bits of TF32, ties away from zero."""
    bits = tensor.float().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


LOWER = [
    (Dtype.FP64, "float32", lambda t: t.float().double()),
    (Dtype.FP32, "float16", lambda t: t.half().float()),
    (Dtype.FP32, "bfloat16", lambda t: t.bfloat16().float()),
    (Dtype.FP32, "TF32", to_tf32),
    (Dtype.BF16, "float8", lambda t: t.to(torch.float8_e4m3fn).bfloat16()),
]


@pytest.mark.parametrize(("dtype", "lower", "round_down"), LOWER, ids=[f"{d.value} as {n}" for d, n, _ in LOWER])
def test_a_matmul_one_precision_lower_is_rejected(dtype, lower, round_down):
    torch_dtype = PARAMETER_DTYPES[dtype]
    a, b = randn(64, 256, dtype=torch_dtype), randn(256, 64, seed=1, dtype=torch_dtype)
    wanted, trusted = a.double() @ b.double(), a @ b
    assert accepts(trusted.clone(), wanted, trusted, dtype)
    cheap = (round_down(a).double() @ round_down(b).double()).to(torch_dtype)
    assert not accepts(cheap, wanted, trusted, dtype), f"computed in {lower}"


@pytest.mark.parametrize(("dtype", "lower", "round_down"), LOWER, ids=[f"{d.value} as {n}" for d, n, _ in LOWER])
def test_an_elementwise_result_one_precision_lower_is_rejected(dtype, lower, round_down):
    wanted = randn(4096)
    trusted = wanted.to(PARAMETER_DTYPES[dtype])
    assert not accepts(round_down(trusted), wanted, trusted, dtype), f"rounded to {lower}"


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_tolerance_scales_with_the_output(scale):
    wanted = randn(1000) * scale
    near = wanted.float() * (1 + 0.5 * RTOL[Dtype.FP32])
    far = wanted.float() + 3 * RTOL[Dtype.FP32] * scale
    assert accepts(near, wanted)
    assert not accepts(far, wanted)


def noisy(scale, *, seed=1, n=20_000):
    """Make (expected, trusted) with normal errors of ``scale`` of the spread in the trusted implementation."""
    wanted = randn(n)
    return wanted, (wanted + randn(n, seed=seed) * scale).float()


def test_what_errs_as_a_trusted_implementation_does_passes():
    wanted, trusted = noisy(1e-3)
    for seed in range(2, 12):
        assert accepts((wanted + randn(20_000, seed=seed) * 1e-3).float(), wanted, trusted)
    assert not accepts((wanted + randn(20_000, seed=2) * 1e-2).float(), wanted, trusted)


def test_trusted_error_widens_tolerance_up_to_its_cap():
    wanted, trusted = noisy(0.1)
    allowed = allowance(wanted, trusted, Tolerance.of(Dtype.FP32, {}))
    assert allowed.everywhere <= (2 + CAP) * RTOL[Dtype.FP32] * float(wanted.std())
    assert allowed.strays <= 202
    assert not accepts(trusted.clone(), wanted, trusted), "what is so far off itself is no reference"


def test_near_miss_of_trusted_allows_slightly_worse_element():
    wanted, trusted = noisy(1e-4)
    trusted[3] = wanted[3] + 1.2e-3  # usual is 16 times the others' error, 1.6e-3
    got = wanted.float()
    got[7] = wanted[7] + 2e-3
    assert accepts(got, wanted, trusted)
    got[8:20] = wanted[8:20] + 2e-3
    assert not accepts(got, wanted, trusted), "but one, not a dozen"


def test_one_bad_trusted_element_allows_only_a_few():
    wanted = randn(1000)
    trusted = wanted.float()
    trusted[3] += 0.01
    few, all_of_them = trusted.clone(), wanted.float() + 0.019
    few[[10, 20, 30]] += 0.019
    assert accepts(few, wanted, trusted)
    assert not accepts(all_of_them, wanted, trusted)
    few[40] += 0.021
    assert not accepts(few, wanted, trusted), "no element may be further off than twice the trusted one's worst"


def test_one_bad_element_does_not_widen_tolerance_of_all():
    wanted = randn(100_000)
    trusted = wanted.bfloat16()
    trusted[3] += 0.25
    assert not accepts((wanted + 0.15).bfloat16(), wanted, trusted, Dtype.BF16)


def test_opposite_rounding_at_other_elements_passes():
    steps = torch.round(randn(50_000) * 20)
    flipped, others = steps.float(), steps.float()
    flipped[::5000] += 1
    others[7::5000] -= 1
    assert accepts(others, steps, flipped)
    others[::50] += 1
    assert not accepts(others, steps, flipped)


def test_a_mean_far_from_zero_does_not_hide_the_spread():
    wanted = 1000 + randn(1000)
    near = (wanted + 0.005).float()
    assert accepts(near, wanted), "a few units in the last place of a thousand"
    assert not accepts(torch.full_like(near, 1000.0), wanted)


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.FP16, Dtype.BF16])
def test_single_number_must_be_nearer_than_other_answers(dtype):
    wanted = torch.tensor(8.0, dtype=torch.float64)
    trusted = wanted.to(PARAMETER_DTYPES[dtype])
    off = (wanted * (1 + RTOL[dtype])).to(trusted.dtype)
    tolerance = Tolerance.of(dtype, {})
    assert passes(off, wanted, trusted, allowance(wanted, trusted, tolerance))
    assert not passes(off, wanted, trusted, allowance(wanted, trusted, tolerance, variation=8e-4 * RTOL[dtype]))
    near = torch.nextafter(trusted, torch.full_like(trusted, INF))
    assert passes(near, wanted, trusted, allowance(wanted, trusted, tolerance, variation=0.0))


@pytest.mark.parametrize("dtype", [Dtype.FP64, Dtype.FP32, Dtype.BF16])
def test_long_sums_are_allowed_what_their_rounding_grows_to(dtype):
    short, long, longest = (Tolerance.of(dtype, {}, n).rtol for n in (1, 10_001, 1e12))
    eps = torch.finfo(torch.float64 if dtype is Dtype.FP64 else torch.float32).eps
    assert short == RTOL[dtype]
    assert long - short == pytest.approx(100 * eps)
    assert longest - short < 1025 * eps
    assert Tolerance.of(dtype, {"rtol": 0.5}, 10_001).rtol == 0.5


@pytest.mark.parametrize("draw", [torch.rand, torch.randn], ids=["of one sign", "around zero"])
def test_tolerance_covers_sum_in_turn(draw):
    torch.manual_seed(0)
    length = 1 << 15
    total, exact = torch.zeros(4000), torch.zeros(4000, dtype=torch.float64)
    for _ in range(length):
        terms = draw(4000)
        total += terms
        exact += terms
    rounding = Tolerance.of(Dtype.FP32, {}, length).rounding
    used = ((total - exact).abs() / (rounding * (exact.abs() + exact.std()))).max()
    assert 0.2 < used < 0.8


def test_single_number_is_allowed_what_its_sum_is_off_by():
    wanted = torch.tensor(1000.0, dtype=torch.float64)
    tolerance = Tolerance.of(Dtype.FP32, {}, 1 << 20)
    allowed = allowance(wanted, wanted.float(), tolerance, variation=0.0)
    assert allowed.everywhere == pytest.approx(500 * tolerance.rounding)


def test_a_problem_can_set_its_own_tolerance():
    wanted = randn(100)
    off = wanted.float() + 0.01
    assert not accepts(off, wanted)
    assert accepts(off, wanted, atol=0.011, rtol=0.0)
    assert not accepts(off, wanted, atol=0.009, rtol=0.0)
    assert Tolerance.of(Dtype.FP32, {"atol": 0.0}).to_json() == {"rtol": RTOL[Dtype.FP32], "atol": 0.0}
    assert Tolerance.of(Dtype.FP32, {}).to_json() == {"rtol": RTOL[Dtype.FP32]}


# --- outputs that compute nothing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", Dtype)
def test_zeros_a_constant_and_another_sample_are_rejected(dtype):
    wanted = randn(64, 64)
    trusted = wanted.to(PARAMETER_DTYPES[dtype])
    assert not accepts(torch.zeros_like(trusted), wanted, trusted, dtype)
    assert not accepts(torch.full_like(trusted, float(wanted.mean())), wanted, trusted, dtype)
    assert not accepts(randn(64, 64, seed=1).to(trusted.dtype), wanted, trusted, dtype)


def test_where_everything_is_zero_only_zero_will_do():
    wanted = torch.zeros(8, dtype=torch.float64)
    assert accepts(torch.zeros(8), wanted)
    assert not accepts(torch.full((8,), 1e-30), wanted)


def test_one_wrong_element_in_a_million_is_found_and_named():
    wanted = randn(100, 100, 100)
    got = wanted.float()
    got[12, 34, 56] += 0.01
    failed = failure(got, wanted, wanted.float())
    assert failed.status is Status.INCORRECT_VALUES
    evidence = failed.evidence
    assert (evidence.output, evidence.index) == (0, (12, 34, 56))
    assert (evidence.mismatched, evidence.elements) == (1, 1_000_000)
    assert evidence.message == "output 0: 1 of 1000000 elements beyond tolerance"
    assert evidence.got == repr(float(got[12, 34, 56]))
    assert evidence.expected == repr(float(wanted[12, 34, 56]))
    assert evidence.error == pytest.approx(0.01, rel=1e-3)
    assert 0 < evidence.allowed < evidence.error


# --- NaN and infinity ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("dtype", Dtype)
def test_what_is_not_finite_where_the_reference_is_fails_as_that(value, dtype):
    wanted = randn(10, 10)
    trusted = wanted.to(PARAMETER_DTYPES[dtype])
    got = trusted.clone()
    got[3, 7] = value
    failed = failure(got, wanted, trusted, dtype)
    assert failed.status is Status.NONFINITE
    assert failed.evidence.index == (3, 7)
    assert failed.evidence.message == "output 0: 1 of 100 elements not finite"
    assert failed.evidence.error is None, "records hold no infinity"
    assert measure(call_of(got, wanted, trusted, dtype)) == (None, None)


def masked(value):
    wanted = randn(16)
    wanted[::4] = value
    return wanted


@pytest.mark.parametrize("value", [INF, -INF])
def test_a_mask_of_infinities_must_be_matched_exactly(value):
    wanted = masked(value)
    assert accepts(wanted.float(), wanted)
    for wrong in (-value, 3.0, NAN, torch.finfo(torch.float32).max):
        got = wanted.float()
        got[4] = wrong
        failed = failure(got, wanted, wanted.float())
        assert failed.status is Status.INCORRECT_VALUES
        assert failed.evidence.index == (4,)


def test_beside_a_mask_the_rest_is_compared_as_ever():
    wanted = masked(-INF)
    got = wanted.float()
    got[5] += 0.01
    assert failure(got, wanted, wanted.float()).evidence.index == (5,)


def test_nan_in_reference_accepts_nan_and_infinity():
    wanted = masked(NAN)
    for value, right in ((NAN, True), (INF, True), (0.0, False), (3e38, False)):
        got = wanted.float()
        got[0] = value
        assert accepts(got, wanted, wanted.float()) is right


def test_overflow_of_reference_in_dtype_is_accepted():
    wanted = torch.tensor([1.0, 1e5, -1e5, 2.0], dtype=torch.float64)
    trusted = wanted.half()
    assert trusted.tolist() == [1.0, INF, -INF, 2.0]
    assert accepts(trusted.clone(), wanted, trusted, Dtype.FP16)
    assert accepts(torch.tensor([1.0, 65504.0, -65504.0, 2.0]).half(), wanted, trusted, Dtype.FP16), "clamped"
    early = trusted.clone()
    early[3] = INF
    assert failure(early, wanted, trusted, Dtype.FP16).status is Status.NONFINITE


@pytest.mark.parametrize("value", [0.0, 1000.0, -65504.0])
def test_an_overflow_is_no_free_pass(value):
    wanted = torch.tensor([1.0, 1e5, 2.0], dtype=torch.float64)
    got = wanted.half()
    got[1] = value
    failed = failure(got, wanted, wanted.half(), Dtype.FP16)
    assert (failed.status, failed.evidence.index) == (Status.INCORRECT_VALUES, (1,))


def test_overflow_does_not_widen_the_tolerance_of_the_rest():
    wanted = torch.tensor([1.0, 1e5, 2.0], dtype=torch.float64)
    trusted = wanted.half()
    wrong = trusted.clone()
    wrong[2] = 2.5
    assert failure(wrong, wanted, trusted, Dtype.FP16).evidence.index == (2,)


# --- kinds of elements -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_integers_are_equal_or_wrong(dtype):
    wanted = torch.arange(60, dtype=dtype).reshape(3, 20)
    got = wanted.clone()
    assert accepts(got, wanted, wanted)
    got[1, 7] += 1
    failed = failure(got, wanted, wanted)
    assert failed.status is Status.INCORRECT_VALUES
    assert failed.evidence.index == (1, 7)
    assert (failed.evidence.expected, failed.evidence.got) == ("27", "28")
    assert (failed.evidence.error, failed.evidence.allowed, failed.evidence.mismatched) == (1.0, 0.0, 1)


def test_integers_beyond_float64_are_compared_exactly():
    wanted = torch.tensor([2**62])
    assert not accepts(wanted + 1, wanted, wanted)


def test_booleans_are_equal_or_wrong():
    wanted = torch.tensor([True, False, True])
    assert accepts(wanted.clone(), wanted, wanted)
    assert failure(~wanted, wanted, wanted).evidence.mismatched == 3


def test_a_tie_may_fall_as_in_either_precision():
    precise, same = torch.tensor([3, 5]), torch.tensor([3, 9])
    assert accepts(torch.tensor([3, 9]), precise, same)
    assert accepts(torch.tensor([3, 5]), precise, same)
    assert not accepts(torch.tensor([3, 7]), precise, same)


@pytest.mark.parametrize("part", ["real", "imag"])
def test_complex_parts_both_count_and_are_named_as_one(part):
    wanted = torch.complex(randn(4, 5), randn(4, 5, seed=1))
    trusted = wanted.to(torch.complex64)
    assert accepts(trusted.clone(), wanted, trusted)
    got = trusted.clone()
    getattr(got, part)[2, 3] += 0.5
    evidence = failure(got, wanted, trusted).evidence
    assert evidence.index == (2, 3)
    assert complex(evidence.got) == complex(got[2, 3])
    assert complex(evidence.expected) == complex(wanted[2, 3])


def test_no_elements_have_no_error():
    empty = torch.empty(0, 3)
    assert accepts(empty, empty.double())
    assert measure(call_of(empty, empty.double(), empty)) == (0.0, 0.0)
    nothing = torch.empty(0, dtype=torch.int64)
    assert accepts(nothing, nothing, nothing)


@pytest.mark.parametrize("make", [lambda t: t.T, lambda t: t[:, ::2], lambda t: t.expand(3, 4, 6)[:, :2]])
def test_strides_do_not_matter(make):
    wanted = randn(4, 6)
    got = make(wanted.float()).clone().contiguous()
    got[-1, -1] += 0.5
    place = tuple(size - 1 for size in got.shape[:2])
    index = failure(got, make(wanted), make(wanted.float())).evidence.index
    assert index[:2] == place
    assert got.shape[-1] > index[-1] >= 0


# --- several outputs, evidence ---------------------------------------------------------------------------------------


def test_the_first_wrong_output_is_named():
    wanted = [randn(4), randn(5), randn(6)]
    got = [t.float() for t in wanted]
    got[1][2] += 1
    got[2][0] += 9
    evidence = failure(got, wanted, [t.float() for t in wanted]).evidence
    assert (evidence.output, evidence.index) == (1, (2,))


def test_a_judgement_measures_what_passed_and_what_failed():
    wanted = [torch.ones(10, dtype=torch.float64), torch.ones(10, dtype=torch.float64) * 4]
    got = [t.float() for t in wanted]
    got[1] += 1e-5
    passed = judge_call(call_of(got, wanted, [t.float() for t in wanted]))
    assert passed.failed is None
    assert passed.max_error == pytest.approx(1e-5, rel=0.05)
    assert passed.error_ratio == pytest.approx(1e-5 / 8e-5, rel=0.05)
    got[1] += 1
    failed = judge_call(call_of(got, wanted, [t.float() for t in wanted]))
    assert failed.failed.status is Status.INCORRECT_VALUES
    assert failed.max_error == pytest.approx(1, rel=1e-3)
    assert failed.error_ratio > 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64])
def test_an_element_never_written_is_named_as_such(dtype):
    wanted = randn(8).to(torch.complex128 if dtype.is_complex else torch.float64)
    trusted = wanted.to(dtype)
    got = trusted.clone()
    got[5:6].view(torch.uint8).fill_(0xFF)
    failed = failure(got, wanted, trusted)
    assert failed.status is Status.NONFINITE
    assert "never written" in failed.evidence.message
    got[5] = NAN
    assert "never written" not in failure(got, wanted, trusted).evidence.message


# --- in pieces -------------------------------------------------------------------------------------------------------

VALUES = st.one_of(st.floats(-4, 4, width=32), st.sampled_from([0.0, INF, -INF, NAN, 1e30]))


@settings(deadline=None, max_examples=50)
@given(rows=st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=20), chunk=st.integers(1, 21))
def test_a_comparison_in_pieces_says_the_same_as_in_one(rows, chunk):
    got, wanted, trusted = (torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True))

    def compared():
        allowed = allowance(wanted, trusted.float(), Tolerance.of(Dtype.FP32, {}))
        return compare(got.float(), wanted, trusted.float(), allowed)

    whole = compared()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tolerance_module, "CHUNK", chunk)
        pieces = compared()
    places = ("nonfinite", "mismatched", "elements", "worst_index")
    assert [getattr(pieces, name) for name in places] == [getattr(whole, name) for name in places]
    for name in ("worst_error", "worst_allowed", "worst_ratio"):  # sums in another order
        assert getattr(pieces, name) == pytest.approx(getattr(whole, name), rel=1e-12, nan_ok=True)


def test_an_allowance_is_eased_in_the_spread_of_each():
    narrow = AllowedError(1e-5, everywhere=1e-3, strays=2, astray=1e-2, spread=1.0)
    wide = AllowedError(1e-5, everywhere=1e-1, strays=7, astray=1e-1, spread=20.0)
    assert narrow.eased(wide) == AllowedError(1e-5, pytest.approx(5e-3), 7, 1e-2, 1.0)
    assert narrow.eased(replace(wide, spread=0.5)) == AllowedError(1e-5, 1e-1, 7, 1e-1, 1.0), (
        "never by more than it was"
    )
    assert narrow.eased(replace(wide, spread=0.0)) == replace(narrow, strays=7)


def test_eased_applies_to_each_output_and_written_input():
    tolerance, structure = Tolerance.of(Dtype.FP32, {}), Structure.TENSOR
    wanted = randn(64)
    near, off = wanted.float(), wanted.float() + 1e-3
    left = ExpectedOutput(structure, (wanted,), (near,))
    lucky = ExpectedOutput(structure, (wanted,), (near,), left=left)
    unlucky = ExpectedOutput(structure, (wanted,), (off,), left=ExpectedOutput(structure, (wanted,), (off,)))
    eased = lucky.eased(unlucky, tolerance)
    assert eased.allowances(tolerance) == unlucky.allowances(tolerance) != lucky.allowances(tolerance)
    assert eased.left.allowances(tolerance) == unlucky.left.allowances(tolerance)
    assert lucky.eased(left, tolerance).left is left


def test_allowance_of_a_bad_reference_is_half_the_spread():
    wanted = randn(1000)
    rtol = 0.01  # so that the share is less than the multiple of it
    allowed = allowance(wanted, wanted + 100, Tolerance(rtol))
    assert allowed.everywhere / allowed.spread == pytest.approx(rtol + 0.5)


class _LargestStorage(TorchDispatchMode):
    """Watch the largest storage that an operator makes, in bytes."""

    def __init__(self, *known):
        super().__init__()
        self._known = {tensor.untyped_storage().data_ptr() for tensor in known}
        self.nbytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, (tuple, list)) else (made,):
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in self._known:
                self.nbytes = max(self.nbytes, tensor.untyped_storage().nbytes())
        return made


FORMS = {
    "contiguous": lambda like: torch.randn(6, 5, 8).to(like),
    "transposed": lambda like: torch.randn(8, 5, 6).to(like).permute(2, 1, 0),
    "one row": lambda like: torch.randn(1, 8, 30).to(like).transpose(1, 2),
    "every second": lambda like: torch.randn(240, 2).to(like)[:, 0],
    "conjugate": lambda like: torch.randn(8, 30).to(like).conj(),
    "transposed conjugate": lambda like: torch.randn(30, 8).to(like).t().conj(),
    "expanded": lambda like: torch.randn(6, 1, 8).to(like).expand(6, 5, 8),
    "one number": lambda like: torch.randn(()).to(like),
    "empty": lambda like: torch.randn(0, 7).to(like).t(),
}


@pytest.mark.parametrize("chunk", [1, 7, 8, 100, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("form", FORMS)
def test_chunks_are_the_numbers_in_order(form, dtype, chunk, monkeypatch):
    monkeypatch.setattr(tolerance_module, "CHUNK", chunk)
    tensor = FORMS[form](dtype)
    made = list(tolerance_module.chunks(tensor, tensor))
    assert [start for start, _ in made] == list(range(0, tolerance_module.count_of(tensor), chunk))
    for place in (0, 1):
        numbers = torch.cat([pieces[place] for _, pieces in made]) if made else torch.empty(0)
        assert torch.equal(numbers, tolerance_module.floats(tensor))


@pytest.mark.parametrize("form", ["contiguous", "transposed"])
@pytest.mark.parametrize("wrong", [0.0, 1e-2], ids=["right", "wrong"])
def test_compare_takes_memory_of_a_chunk_only(wrong, form, monkeypatch):
    monkeypatch.setattr(tolerance_module, "CHUNK", 1024)
    drawn = torch.randn(64, 1024, dtype=torch.float64)
    want = drawn.t() if form == "transposed" else drawn
    same = want.float()
    got = same + wrong
    with _LargestStorage(want, same, got) as seen:
        allowed = allowance(want, same, Tolerance.of(Dtype.FP32, {}))
        assert bool(compare(got, want, same, allowed).mismatched) is bool(wrong)
    assert seen.nbytes <= 1024 * want.element_size()
