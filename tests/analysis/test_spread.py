"""Components of variance of slices and of cells."""

import numpy as np
import polars as pl
import pytest

from kernel_matrix.measure.grade import spread_within
from tests.analysis.made import frame, over_sessions
from tests.analysis.noisy import CANDIDATE_NS, answers, measured


def level(answer, name, of="candidate"):
    return answer.table.filter((pl.col("varies") == name) & (pl.col("of") == of)).row(0, named=True)


def usual(logs):
    """The spread of the usual session."""
    return np.median([spread_within(times) for times in np.exp(logs).reshape(len(logs), -1)])


def test_levels_are_told_apart_with_samples():
    rng = np.random.default_rng(1)
    rows, samples = [], []
    for number in range(40):
        logs = np.log(CANDIDATE_NS) + rng.normal(0, 0.01, (5, 1, 1)) + rng.normal(0, 0.004, (5, 4, 1))
        logs = logs + rng.normal(0, 0.006, (5, 4, 25))
        medians = np.exp(np.median(logs, axis=(1, 2)))
        rows += over_sessions([(2e5, ns) for ns in medians], candidate=f"softmax/{number}", spread_within=usual(logs))
        for session, block, index in np.ndindex(logs.shape):
            samples.append(
                {
                    "record": number,
                    "session": session,
                    "workload": "default",
                    "role": "candidate",
                    "contestant": "candidate",
                    "regime": "cold",
                    "calls_per_sample": 1,
                    "block": block,
                    "block_started_ns": 0,
                    "block_ended_ns": 25_000_000,
                    "index": index,
                    "wall_ns": 1,
                    "device_ns": round(float(np.exp(logs[session, block, index]))),
                }
            )
    samples.append(samples[0] | {"device_ns": 10**9, "discarded": "throttled"})
    samples.append(samples[0] | {"device_ns": 10**9, "regime": "warm"})
    samples.append(samples[0] | {"device_ns": 0})
    found = answers(rows, frame("samples", samples))
    pooled = found["components"]
    assert level(pooled, "sample")["sd_percent"] == pytest.approx(0.6, rel=0.03)
    assert level(pooled, "block")["sd_percent"] == pytest.approx(0.4, rel=0.1)
    row = level(pooled, "session")
    assert row["sd_percent"] == pytest.approx(1.0, rel=0.12)
    assert row["low_percent"] < 1.0 < row["high_percent"]
    assert "one night at most" in level(pooled, "night")["note"]
    assert level(pooled, "night")["sd_percent"] is None
    noise = found["noise"].table
    assert noise["sd_within_percent"].mean() == pytest.approx(0.6, rel=0.03)
    assert noise["call_cost_s"].to_list() == pytest.approx([0.001] * 40, rel=0.05)


@pytest.mark.parametrize("late", [0.0, 0.05], ids=["punctual", "late"])
def test_levels_are_those_of_batches_where_there_are_any(late):
    rng = np.random.default_rng(7)
    rows, batches, calls = [], [], []
    for number in range(40):
        logs = np.log(CANDIDATE_NS) + rng.normal(0, 0.01, (5, 1, 1)) + rng.normal(0, 0.004, (5, 8, 2))
        logs += np.where(rng.random(logs.shape) < late, np.log(rng.uniform(1.5, 10, logs.shape)), 0.0)
        medians = np.exp(np.median(logs, axis=(1, 2)))
        rows += over_sessions([(2e5, ns) for ns in medians], candidate=f"softmax/{number}", spread_within=usual(logs))
        for session, block, index in np.ndindex(logs.shape):
            where = {"record": number, "session": session, "workload": "default", "block": block, "index": index}
            one = {**where, "contestant": "candidate", "block_started_ns": 0, "block_ended_ns": 1000}
            batches.append({**one, "call_ns": float(np.exp(logs[session, block, index]))})
            batches.append({**one, "contestant": "eager", "call_ns": None})
            calls.append({**one, "regime": "cold", "device_ns": int(CANDIDATE_NS * rng.uniform(1, 3))})
    found = answers(rows, frame("samples", calls), frame("batches", batches))["components"]
    assert level(found, "sample")["sd_percent"] == pytest.approx(0.4, rel=0.03 if not late else 0.3)
    assert level(found, "session")["sd_percent"] == pytest.approx(1.0, rel=0.12)


def test_components_by_slice_and_by_cell():
    rng = np.random.default_rng(2)
    rows = [
        row
        for dtype, spread in (("fp32", 0.002), ("bf16", 0.02))
        for number in range(30)
        for row in measured(rng, spread=spread, dtype=dtype, candidate=f"softmax/{number}")
    ]
    found = answers(rows, by=("dtype", "level", "source"))
    of_sessions = (pl.col("varies") == "session") & (pl.col("of") == "candidate")
    table = found["components"].table.filter(of_sessions)
    assert table.select("level", "source").unique().rows() == [(1, "folder")]
    pooled = dict(table.select("dtype", "sd_percent").iter_rows())
    assert (pooled["fp32"], pooled["bf16"]) == (pytest.approx(0.2, rel=0.2), pytest.approx(2.0, rel=0.2))
    assert found["components_by_cell"].table.height == 60 * 3


def test_cells_without_any_level_are_counted_not_shown():
    rng = np.random.default_rng(11)
    rows = [*measured(rng, candidate="softmax/a"), *measured(rng, candidate="softmax/b", sessions=1)]
    found = answers(rows)["components_by_cell"]
    assert found.table["candidate"].unique().to_list() == ["softmax/a"]
    assert found.notes[1].startswith("3 of 6 rows are not shown")
