"""Summaries against the rows they are made of."""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import ROW, WHERE, figure, micro, named, together, told
from kernel_matrix.analysis.audit.times import FEWEST
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.model.enums import Implementation, Regime, Role

_ROUNDING: Final = 1e-6
_FAR: Final = 1.5
"""Times so many times as long as their median, or as short, are not of the same device doing the same work."""
_FAR_SHARE: Final = 0.2
"""The first call of each block is often late by itself: one in eight."""


def against_samples(tables: Tables) -> pl.LazyFrame:
    """Medians that are none of their calls, and numbers of calls that are not those in the table of calls.

    A value is a median of ``n`` calls exactly where at most ``n/2`` lie below it and at most ``n/2`` above.
    """
    median, number = pl.col("median"), pl.col("number")
    slack = median * _ROUNDING
    counted = _calls(tables).group_by(*ROW, "contestant").agg(
        pl.len().alias("calls"),
        (pl.col("device_ns") < median - slack).sum().alias("below"),
        (pl.col("device_ns") > median + slack).sum().alias("above"),
        number.max().alias("number"),
        median.max().alias("median"),
    )  # fmt: skip
    half = pl.col("calls") / 2
    off = pl.max_horizontal("below", "above") > half
    wrong_number = pl.col("number") != pl.col("calls")
    found = counted.filter(off | wrong_number.fill_null(value=False))
    of_median = sentence(
        "session {}: the median of {} is said to be {} ns; of its {} calls {} are below that and {} above",
        "session", "contestant", figure(pl.col("median"), digits=6), "calls", "below", "above",
    )  # fmt: skip
    of_number = sentence(
        "session {}: {} calls of {} are said to count, and {} are there", "session", "number", "contestant", "calls"
    )
    said_off = [pl.when(off).then(of_median), pl.when(pl.col("number") != pl.col("calls")).then(of_number)]
    evidence = pl.concat_str(said_off, separator="; ", ignore_nulls=True)
    return told(named(found, tables), evidence, count=pl.col("calls"), worst=off.cast(pl.Float64))


def scattered(tables: Tables) -> pl.LazyFrame:
    """Medians of calls that differ by factors, which chance decides, and the speed-ups with them.

    The host was late with its launches, or the code does not always do the same.
    """
    time, median = pl.col("device_ns"), pl.col("median")
    far = (time > median * _FAR) | (time * _FAR < median)
    counted = _calls(tables).group_by(*ROW, "contestant").agg(
        pl.len().alias("calls"),
        far.sum().alias("far"),
        time.min().alias("least"),
        median.max().alias("median"),
    )  # fmt: skip
    share = pl.col("far") / pl.col("calls")
    evidence = sentence(
        f"session {{}}: {{}} of {{}} calls of {{}} are {_FAR}× off their median of {{}} or more; the least took {{}}",
        "session", "far", "calls", "contestant", micro(pl.col("median")), micro(pl.col("least")),
    )  # fmt: skip
    found = counted.filter((share > _FAR_SHARE) & (pl.col("calls") >= FEWEST))
    return told(named(found, tables), evidence, worst=share)


def _calls(tables: Tables) -> pl.LazyFrame:
    """Kept cold calls of the candidate and the baseline, with their row's ``median``, ns, and ``number`` of calls."""
    sides = [Role.CANDIDATE.value, Implementation.EAGER.value]
    cold = (pl.col("regime") == Regime.COLD.value) & pl.col("contestant").is_in(sides) & pl.col("discarded").is_null()
    columns = ("candidate_median_ns", "baseline_median_ns", "candidate_samples", "baseline_samples")
    said = tables.cells.select(*ROW, *columns).unique(ROW)
    ours = pl.col("contestant") == Role.CANDIDATE.value
    return tables.samples.filter(cold).select(*ROW, "contestant", "device_ns").join(said, on=ROW).select(
        *ROW, "contestant", "device_ns",
        pl.when(ours).then("candidate_median_ns").otherwise("baseline_median_ns").alias("median"),
        pl.when(ours).then("candidate_samples").otherwise("baseline_samples").alias("number"),
    )  # fmt: skip


def against_rows(tables: Tables) -> pl.LazyFrame:
    """Speed-ups that are not the ratio of their medians, verdicts outside their own interval or of more sessions."""
    cells = tables.cells
    ratio = pl.col("baseline_median_ns") / pl.col("candidate_median_ns")
    off = (pl.col("speedup") / ratio - 1).abs()
    wrong = cells.with_columns(off=off, ratio=ratio).filter((pl.col("off") > _ROUNDING) & pl.col("off").is_finite())
    of_ratio = sentence(
        "session {}: speed-up {} is said, the medians' ratio is {}",
        pl.col("session").cast(pl.String).fill_null("unknown"), figure(pl.col("speedup")), figure(pl.col("ratio")),
    )  # fmt: skip
    low, high, middle = pl.col("verdict_low"), pl.col("verdict_high"), pl.col("verdict_speedup")
    outside = cells.filter((middle < low * (1 - _ROUNDING)) | (middle > high * (1 + _ROUNDING))).unique(
        ("record", "workload")
    )
    of_interval = sentence(
        "verdict {} lies outside of its own interval {} … {}", figure(middle), figure(low), figure(high)
    )
    counted = cells.filter(pl.col("verdict_sessions").is_not_null()).group_by("record", "workload").agg(
        pl.col([name for name in WHERE if name != "workload"]).first(),
        pl.col("verdict_sessions").max().alias("said"),
        pl.col("session").filter(ratio.is_not_null()).n_unique().alias("there"),
    )  # fmt: skip
    of_sessions = sentence("the verdict is said to be of {} sessions; {} were timed", "said", "there")
    return together(
        [
            told(wrong, of_ratio, worst=pl.col("off")),
            told(outside, of_interval),
            told(counted.filter(pl.col("said") != pl.col("there")), of_sessions),
        ]
    )
