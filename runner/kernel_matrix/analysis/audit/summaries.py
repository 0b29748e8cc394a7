"""Checks of summaries against the rows they are made of."""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import ROW, WHERE, claimed, figure, make_findings, micro, with_cells
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.measure.objections import FAR, FAR_SHARE, FEWEST_CALLS
from kernel_matrix.model.enums import Implementation, Regime, Role

_ROUNDING: Final = 1e-6
_OF_SINGLE_CALLS: Final = pl.col("candidate_median_ns") == claimed("candidate")
"""Whether the time of a row is the median of its single calls, not a time in batches."""


def against_samples(tables: Tables) -> pl.LazyFrame:
    """Find medians and numbers of calls that contradict the table of calls.

    A value is a median of ``n`` calls if and only if at most ``n/2`` lie below it and at most ``n/2`` above.
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
        "session {}: the median of {} is given as {} ns, but of its {} calls {} are below that and {} above",
        "session", "contestant", figure(pl.col("median"), digits=6), "calls", "below", "above",
    )  # fmt: skip
    of_number = sentence(
        "session {}: {} calls of {} are given as counted, but there are {}", "session", "number", "contestant", "calls"
    )
    parts = [pl.when(off).then(of_median), pl.when(pl.col("number") != pl.col("calls")).then(of_number)]
    evidence = pl.concat_str(parts, separator="; ", ignore_nulls=True)
    return make_findings(with_cells(found, tables), evidence, count=pl.col("calls"), worst=off.cast(pl.Float64))


def scattered(tables: Tables) -> pl.LazyFrame:
    """Find medians of calls that differ by factors: such medians, and their speed-ups, depend on chance.

    The host was late with its launches, or the code does not always do the same work. Times in batches do not rest on
    these calls.
    """
    time, median = pl.col("device_ns"), pl.col("median")
    far = (time > median * FAR) | (time * FAR < median)
    counted = _calls(tables).filter("of_single_calls").group_by(*ROW, "contestant").agg(
        pl.len().alias("calls"),
        far.sum().alias("far"),
        time.min().alias("least"),
        median.max().alias("median"),
    )  # fmt: skip
    share = pl.col("far") / pl.col("calls")
    evidence = sentence(
        f"session {{}}: {{}} of {{}} calls of {{}} are at least {FAR}× off their median of {{}}; the least took {{}}",
        "session", "far", "calls", "contestant", micro(pl.col("median")), micro(pl.col("least")),
    )  # fmt: skip
    found = counted.filter((share > FAR_SHARE) & (pl.col("calls") >= FEWEST_CALLS))
    return make_findings(with_cells(found, tables), evidence, worst=share)


def _calls(tables: Tables) -> pl.LazyFrame:
    """Read kept cold calls of candidate and baseline with the ``median`` (ns) and ``number`` of calls in their row."""
    sides = [Role.CANDIDATE.value, Implementation.EAGER.value]
    cold = (pl.col("regime") == Regime.COLD.value) & pl.col("contestant").is_in(sides) & pl.col("discarded").is_null()
    medians = {"candidate": claimed("candidate"), "baseline": claimed("baseline")}
    summaries = tables.cells.select(
        *ROW, "candidate_samples", "baseline_samples", **medians, of_single_calls=_OF_SINGLE_CALLS
    ).unique(ROW)
    ours = pl.col("contestant") == Role.CANDIDATE.value
    return tables.samples.filter(cold).select(*ROW, "contestant", "device_ns").join(summaries, on=ROW).select(
        *ROW, "contestant", "device_ns",
        pl.when(ours).then("candidate").otherwise("baseline").alias("median"),
        "of_single_calls",
        pl.when(ours).then("candidate_samples").otherwise("baseline_samples").alias("number"),
    )  # fmt: skip


def against_rows(tables: Tables) -> pl.LazyFrame:
    """Find speed-ups that are not what medians and batches give, and verdicts that contradict interval or sessions."""
    cells = tables.cells
    ratio = pl.col("baseline_median_ns") / pl.col("candidate_median_ns")
    off = (pl.col("speedup") / pl.min_horizontal(ratio, "speedup_limit") - 1).abs()
    wrong = cells.with_columns(off=off, ratio=ratio).filter((pl.col("off") > _ROUNDING) & pl.col("off").is_finite())
    of_ratio = sentence(
        "session {}: the speed-up is given as {}, but the medians' ratio is {}",
        pl.col("session").cast(pl.String).fill_null("unknown"), figure(pl.col("speedup")), figure(pl.col("ratio")),
    )  # fmt: skip
    low, high, middle = pl.col("verdict_low"), pl.col("verdict_high"), pl.col("verdict_speedup")
    outside = cells.filter((middle < low * (1 - _ROUNDING)) | (middle > high * (1 + _ROUNDING))).unique(
        ("record", "workload")
    )
    of_interval = sentence(
        "verdict {} lies outside its own interval {} … {}", figure(middle), figure(low), figure(high)
    )
    counted = cells.filter(pl.col("verdict_sessions").is_not_null()).group_by("record", "workload").agg(
        pl.col([name for name in WHERE if name != "workload"]).first(),
        pl.col("verdict_sessions").max().alias("given"),
        pl.col("session").filter(ratio.is_not_null()).n_unique().alias("there"),
    )  # fmt: skip
    of_sessions = sentence("the verdict is given for {} sessions, but {} were timed", "given", "there")
    return pl.concat(
        [
            make_findings(wrong, of_ratio, worst=pl.col("off")),
            make_findings(outside, of_interval),
            make_findings(counted.filter(pl.col("given") != pl.col("there")), of_sessions),
        ]
    )
