"""Blocks and samples within sessions, against numpy, in any order and with any numbering."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from kernel_matrix.analysis.timed_sessions import measured_in
from kernel_matrix.analysis.within import within
from kernel_matrix.measure.grade import spread_within
from tests.analysis.made import cell, frame, tables


def sessions_of(records, workloads):
    """One row of ``cells`` per record, two sessions, and workload; a candidate each."""
    return [
        cell(
            record=record,
            session=session,
            workload=workload,
            candidate=f"softmax/{record}",
        )
        for record in records
        for session in (0, 1)
        for workload in workloads
    ]


def samples_of(rows, rng, blocks):
    """Four samples per block of both contestants, in no order."""
    made = [
        {
            "record": row["record"],
            "session": row["session"],
            "workload": row["workload"],
            "contestant": contestant,
            "regime": "cold",
            "block": block,
            "block_started_ns": 0,
            "block_ended_ns": 1000,
            "device_ns": int(1e5 * np.exp(rng.normal(0, 0.05))),
        }
        for row in rows
        for contestant in ("candidate", "eager", "compile")
        for block in blocks
        for _ in range(4)
    ]
    return [made[i] for i in rng.permutation(len(made))]


def with_medians(rows, samples):
    """``rows`` with what ``cells`` says of these samples."""
    times = defaultdict(list)
    for one in samples:
        times[one["record"], one["session"], one["workload"], one["contestant"]].append(one["device_ns"])
    for row in rows:
        ours, theirs = (times[row["record"], row["session"], row["workload"], side] for side in ("candidate", "eager"))
        row |= {"candidate_median_ns": np.median(ours), "baseline_median_ns": np.median(theirs)}
        yield row | {"spread_within": spread_within(ours), "baseline_spread_within": spread_within(theirs)}


def limited(sessions):
    """Blocks of each session, their samples within three standard deviations of the session's median."""
    times = [np.exp(np.concatenate(list(groups.values()))) for groups in sessions]
    reach = 3 * np.median([spread_within(one) for one in times])
    for groups, one in zip(sessions, times, strict=True):
        middle = np.log(np.median(one))
        yield [np.clip(group, middle - reach, middle + reach) for group in groups.values()]


@pytest.mark.parametrize(
    ("records", "blocks"),
    [
        pytest.param((0, 1, 260_000, 600_000), (0, 1, 2), id="ranges"),
        pytest.param((0, 5), (None,), id="no-block"),
        pytest.param((7, 2**32 - 1), (3, 2**31 - 1), id="beyond-64-bits"),
    ],
)
def test_sums_are_those_of_numpy(records, blocks):
    rng = np.random.default_rng(14)
    rows = sessions_of(records, ("small", "gro\u00df"))
    samples = samples_of(rows, rng, blocks)
    stray = next(one for one in samples if one["record"] == records[0] and one["contestant"] == "candidate")
    elsewhere = [stray | {"workload": "other"}, stray | {"session": 2}, stray | {"session": None}]
    made = replace(tables([*with_medians(rows, samples)]), samples=frame("samples", [*samples, *elsewhere]).lazy())
    measured = measured_in(made.cells, [])
    found = within(made, measured)
    assert found.height == len(records) * 2 * 2
    names = {row["cell"]: (row["candidate"], row["workload"]) for row in measured.cells.iter_rows(named=True)}
    for row in found.iter_rows(named=True):
        candidate, workload = names[row["cell"]]
        contestant = {"candidate": "candidate", "baseline": "eager"}[row["of"]]
        sessions = [{}, {}]
        for one in samples:
            if (f"softmax/{one['record']}", one["workload"], one["contestant"]) == (candidate, workload, contestant):
                sessions[one["session"]].setdefault(one["block"], []).append(np.log(one["device_ns"]))
        squares, between = 0.0, 0.0
        for groups in limited(sessions):
            squares += sum(np.var(group) * len(group) for group in groups)
            between += 4 * np.var([np.mean(group) for group in groups]) * len(groups)
        assert row["sample_squares"] == pytest.approx(squares)
        assert row["block_squares"] == pytest.approx(between, abs=1e-9)
        assert (row["sessions"], row["blocks"], row["samples"]) == (2, 2 * len(blocks), 8 * len(blocks))
        assert row["call_ns"] == 2000 * len(blocks)


def test_without_samples_there_is_nothing():
    rows = sessions_of((0,), ("default",))
    made = tables([*with_medians(rows, samples_of(rows, np.random.default_rng(14), (0,)))])
    found = within(made, measured_in(made.cells, []))
    assert isinstance(found, pl.DataFrame)
    assert found.is_empty()
