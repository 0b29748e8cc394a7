"""Price files."""

from __future__ import annotations

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.generation.answers import TokenCounts
from kernel_matrix.generation.prices import BUNDLED_PRICES, ModelPrice, read_price


def test_cost_counts_cached_tokens_at_their_own_price():
    price = ModelPrice(prompt=2.0, cached=0.5, completion=8.0)
    assert price.cost_usd(TokenCounts(prompt=1_000_000, cached=400_000, completion=250_000)) == pytest.approx(3.4)


def test_bundled_prices_have_an_example_alone():
    assert read_price(BUNDLED_PRICES, "example-model") == ModelPrice(prompt=1.0, cached=0.1, completion=4.0)
    assert read_price(BUNDLED_PRICES, "another") is None


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("date = ", "cannot be read as prices: not valid TOML"),
        ("[models.a]\nprompt = 1\n", "has no date"),
        ('date = "2026-01-31"\nmodels = 3\n', "models is no table"),
        ('date = "2026-01-31"\n[models.a]\nprompt = 1\ncached = 1\n', "a needs prompt, cached, completion"),
        ('date = "2026-01-31"\n[models.a]\nprompt = 1\ncached = -1\ncompletion = 1\n', "a needs prompt"),
        ('date = "2026-01-31"\n[models.a]\nprompt = 1\ncached = nan\ncompletion = 1\n', "a needs prompt"),
        ('date = "2026-01-31"\n[models.a]\nprompt = "1"\ncached = 1\ncompletion = 1\n', "a needs prompt"),
    ],
)
def test_bad_price_file_is_told(tmp_path, text, what):
    (tmp_path / "prices.toml").write_text(text)
    with pytest.raises(UsageError, match=what):
        read_price(tmp_path / "prices.toml", "a")


def test_absent_price_file_is_told(tmp_path):
    with pytest.raises(UsageError, match=r"absent.toml cannot be read"):
        read_price(tmp_path / "absent.toml", "a")
