"""Quality of a quantised output: values that honest quantising reaches, and errors that must show."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import math

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge import quality
from kernel_matrix.inside.judge.quality import SNR_CEILING, Quality, breach, measure_quality, worst_of
from kernel_matrix.model.messages import ContractSpec

pytestmark = pytest.mark.torch

W8A8 = ContractSpec(kind="w8a8", cosine_min=0.999, relative_l1_max=0.02, rmse_max=0.02, snr_db_min=34, snr_db_max=50)


def randn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def noisy(level, rows=64, columns=64):
    wanted = randn(rows, columns)
    return wanted + level * randn(rows, columns, seed=1), wanted


def quantize(rows, *, scale=None):
    scale = rows.abs().amax(-1, keepdim=True) / 127 if scale is None else scale
    return torch.round(rows / scale).clamp(-127, 127) * scale


def product(quantize_rows):
    x = randn(64, 256) * 1000 ** torch.rand(64, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    w = randn(48, 256, seed=2) * 1000 ** torch.rand(48, 1, generator=torch.Generator().manual_seed(4))
    return quantize_rows(x) @ quantize_rows(w).T, x @ w.T


@pytest.mark.parametrize("level", [0.1, 0.01, 0.001])
def test_noise_of_a_known_size_has_the_figures_it_must_have(level):
    quality = measure_quality(*noisy(level))
    assert quality.rmse == pytest.approx(level, rel=0.1)
    assert quality.snr_db == pytest.approx(-20 * math.log10(level), abs=1)
    assert quality.cosine == pytest.approx(1 - level**2 / 2, abs=level**2)
    assert quality.relative_l1 == pytest.approx(level, rel=0.3)


def test_quality_exact_answer_exceeds_every_contract():
    wanted = randn(64, 64)
    quality = measure_quality(wanted.clone(), wanted)
    assert quality == Quality(pytest.approx(1.0), 0.0, 0.0, SNR_CEILING)
    assert "nothing was quantised" in breach(W8A8, quality)


def test_honest_quantising_by_row_keeps_the_contract():
    assert breach(W8A8, measure_quality(*product(quantize))) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_arithmetic_without_quantising_does_not(dtype):
    _, wanted = product(quantize)
    assert "nothing was quantised" in breach(W8A8, measure_quality((wanted / 1e4).to(dtype).double() * 1e4, wanted))


def test_quality_one_scale_for_all_rows_is_visible():
    got, wanted = product(lambda rows: quantize(rows, scale=rows.abs().max() / 127))
    overall = float(torch.linalg.vector_norm(got - wanted) / torch.linalg.vector_norm(wanted))
    assert overall < 0.05, "unless rows are brought to one size, little would be seen of it"
    assert measure_quality(got, wanted).snr_db < 10


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_a_number_keeps_no_contract(value):
    got, wanted = noisy(0.01)
    got[3, 4] = value
    quality = measure_quality(got, wanted)
    assert breach(W8A8, quality) is not None
    assert worst_of([quality]) == {"cosine": -1.0}, "records hold no infinity"


def test_zeros_keep_no_contract():
    wanted = randn(64, 64)
    assert "cosine" in breach(W8A8, measure_quality(torch.zeros_like(wanted), wanted))


BROKEN = {
    "cosine": (0.9, 0.01, 0.01, 40.0),
    "SNR is 30": (1.0, 0.01, 0.01, 30.0),
    "relative L1": (1.0, 0.03, 0.01, 40.0),
    "RMSE": (1.0, 0.01, 0.03, 40.0),
    "nothing was quantised": (1.0, 0.01, 0.01, 51.0),
}


@pytest.mark.parametrize("words", BROKEN)
def test_every_threshold_counts_and_is_named(words):
    assert words in breach(W8A8, Quality(*BROKEN[words]))
    assert breach(W8A8, Quality(1.0, 0.01, 0.01, 40.0)) is None


@pytest.mark.parametrize("shape", [(), (5,), (1, 5), (2, 3, 64), (64, 3)])
def test_outputs_of_every_form_have_a_quality(shape):
    wanted = randn(*shape)
    assert measure_quality(wanted * 1.01, wanted).rmse == pytest.approx(0.01, rel=0.01)


@pytest.mark.parametrize("shape", [(40, 33), (40, 3), (3, 40)])
def test_quality_in_pieces_is_that_of_the_whole(shape, monkeypatch):
    wanted = randn(*shape)
    got = wanted + 0.01 * randn(*shape, seed=1)
    whole = measure_quality(got, wanted)
    monkeypatch.setattr(quality, "PIECE", 70)
    for name, figure in vars(measure_quality(got, wanted)).items():
        assert figure == pytest.approx(getattr(whole, name), rel=1e-12), name


def test_the_worst_of_several_is_the_worst_of_each_figure():
    found = worst_of([Quality(0.99, 0.1, 0.2, 20.0), Quality(0.9, 0.05, 0.3, 30.0)])
    assert found == {"cosine": 0.9, "relative_l1": 0.1, "rmse": 0.3, "snr_db": 20.0}
    assert worst_of([]) == {}
