"""The noise floor of identical code."""

import numpy as np
import polars as pl
import pytest

from tests.analysis.noisy import answers, measured


def test_identical_code_is_the_noise_floor():
    rng = np.random.default_rng(3)
    rows = []
    for number in range(150):
        where = {"problem": f"p{number}"}
        rows += measured(rng, sessions=1, candidate=f"p{number}/@reference", language="torch", **where)
        for name in ("a", "b"):
            own = {"candidate": f"p{number}/{name}", "candidate_sha256": f"same {number}"}
            rows += measured(rng, sessions=1, **own, **where)
        for name in ("c", "d"):
            own = {"candidate": f"p{number}/{name}", "code_sha256": f"code {number}"}
            rows += measured(rng, sessions=1, **own, **where)
    found = answers(cells_at_parity(rows))["noise_floor"].table
    assert dict(found.select("kind", "pairs").iter_rows()) == {
        "all": 450,
        "machine code": 150,
        "reference": 150,
        "source": 150,
    }
    row = found.filter(pl.col("kind") == "source").row(0, named=True)
    assert row["p95_percent"] == pytest.approx(100 * 1.96 * 0.01 * np.sqrt(2), rel=0.25)
    assert row["p95_percent"] < row["p99_percent"] <= row["max_percent"]


def cells_at_parity(rows):
    """References run as fast as their baselines."""
    return [
        row | {"candidate_median_ns": 2 * row["candidate_median_ns"], "speedup": row["speedup"] / 2}
        if row["candidate"].endswith("@reference")
        else row
        for row in rows
    ]


def test_name_that_ends_like_the_reference_is_no_pair():
    rows = measured(np.random.default_rng(5), candidate="softmax/my@reference")
    assert "No two cells have identical code" in answers(rows)["noise_floor"].notes[0]


def test_few_pairs_have_no_quantile_and_none_is_said():
    rng = np.random.default_rng(4)
    twins = [row for name in ("a", "b") for row in measured(rng, candidate=f"softmax/{name}", candidate_sha256="same")]
    row = answers(twins)["noise_floor"].table.row(0, named=True)
    assert (row["pairs"], row["p95_percent"], row["p99_percent"]) == (1, None, None)
    elsewhere = [twin | {"gpu_uuid": twin["candidate"]} for twin in twins]
    assert "No two cells have identical code" in answers(elsewhere)["noise_floor"].notes[0]


def test_a_source_is_one_name_among_those_of_its_machine_code():
    rng = np.random.default_rng(9)
    names = (("a", "s1", None), ("b", "s1", "code"), ("c", "s2", "code"), ("d", "s2", "code"), ("e", "s3", "other"))
    rows = [
        row
        for name, source, code in names
        for row in measured(rng, candidate=f"softmax/{name}", candidate_sha256=source, code_sha256=code)
    ]
    found = answers(rows)["noise_floor"].table
    # a–b and c–d by source; of s1 the name is a, whose machine code is not known, so that c has no partner
    assert dict(found.select("kind", "pairs").iter_rows()) == {"all": 2, "source": 2}
    rows = [row | {"code_sha256": "code"} for row in rows]
    found = answers(rows)["noise_floor"].table
    assert dict(found.select("kind", "pairs").iter_rows()) == {"all": 4, "machine code": 2, "source": 2}
