"""Checks for rows that contradict each other, or that mix measurements under different conditions."""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import (
    ROW,
    WHERE,
    figure,
    listed,
    make_findings,
    micro,
    passed,
    percent,
    with_cells,
)
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.model.enums import Fault, Status

_CODE: Final = ("candidate_sha256", "problem_sha256", "image_id", "measurement_version", "gpu", "toolchain", "dtype")
_MIXED: Final = {"gpu_uuid": "units", "driver": "drivers", "clock_state": "clock states", "image_id": "images"}
_APART: Final = 1.3
"""Largest ratio between baselines of one problem on one unit."""
_CLEAR: Final = frozenset({"proven", "not_applicable"})


def verdict_flips(tables: Tables) -> pl.LazyFrame:
    """Find identical code, image and judge on one GPU of which some attempts passed and others failed.

    A single ``timing_mismatch`` in a run does not count as failed here; see :func:`accused_once`.
    """
    evidence = sentence("identical code: {} attempts passed and {} ended as {}", "passed", "failed", "how")
    both = (pl.col("passed") > 0) & (pl.col("failed") > 0)
    return make_findings(_verdicts(tables).filter(both), evidence, count=pl.min_horizontal("passed", "failed"))


def accused_once(tables: Tables) -> pl.LazyFrame:
    """Find single attempts of a run that ended as ``timing_mismatch`` although identical code passed.

    A process on a slow core can cause a mismatch for a whole session, so a mismatch needs a repetition in a fresh
    process.
    """
    evidence = sentence("{} attempts at identical code passed, {} did not: {}", "passed", "accused", "accusation")
    found = _verdicts(tables).filter((pl.col("passed") > 0) & (pl.col("accused") > 0))
    return make_findings(found, evidence, count=pl.col("accused"))


def _verdicts(tables: Tables) -> pl.LazyFrame:
    """Count attempts at identical code that ``passed``, ``failed``, or had the run's only mismatch (``accused``)."""
    records = tables.cells.filter(pl.col("candidate_sha256").is_not_null() & pl.col("problem_sha256").is_not_null())
    won, lost = pl.col("status") == Status.PASSED.value, pl.col("fault") == Fault.CANDIDATE.value
    mismatch = pl.col("status") == Status.TIMING_MISMATCH.value
    # One row per record first, since an attempt with many workloads is one attempt.
    by_record = records.filter(won | lost).group_by("record").agg(
        pl.col(*_CODE, "run_id", "problem", "candidate", "status", "message").first(), won.first().alias("won")
    )  # fmt: skip
    once = mismatch & (mismatch.sum().over(*_CODE, "run_id") == 1)
    failed = ~pl.col("won") & ~pl.col("once")
    return by_record.with_columns(once=once).group_by(_CODE).agg(
        pl.col("problem", "candidate").first(),
        pl.col("won").sum().alias("passed"),
        failed.sum().alias("failed"),
        pl.col("status").filter(failed).cast(pl.String).unique().sort().implode().list.join(", ").alias("how"),
        pl.col("once").sum().alias("accused"),
        pl.col("message").filter("once").sort().first().alias("accusation"),
    )  # fmt: skip


def mixed_units(tables: Tables) -> pl.LazyFrame:
    """Find cells whose times come from several devices, drivers, clock states or images."""
    rows = passed(tables.cells)
    time = pl.col("candidate_median_ns")
    found = rows.group_by(WHERE).agg(
        *(pl.col(name).drop_nulls().n_unique().alias(f"{name}_n") for name in _MIXED),
        *(pl.col(name).cast(pl.String).min().alias(f"{name}_low") for name in _MIXED),
        *(pl.col(name).cast(pl.String).max().alias(f"{name}_high") for name in _MIXED),
        (time.max() / time.min() - 1).alias("apart"),
        pl.len().alias("rows"),
    )
    several = {name: pl.col(f"{name}_n") > 1 for name in _MIXED}
    parts = [
        pl.when(several[name]).then(sentence(f"{{}} {word} ({{}} … {{}})", f"{name}_n", f"{name}_low", f"{name}_high"))
        for name, word in _MIXED.items()
    ]
    text = pl.concat_str(parts, separator=", ", ignore_nulls=True)
    evidence = sentence("{} in one cell; its times are up to {} apart", text, percent(pl.col("apart")))
    return make_findings(
        found.filter(pl.any_horizontal(several.values())), evidence, count=pl.col("rows"), worst=pl.col("apart")
    )


def mixed_versions(tables: Tables) -> pl.LazyFrame:
    """Find rows written by several versions of the program or the judge, and toolchains that changed."""
    cells = tables.cells
    rounds = cells.select(cells=pl.len(), several=pl.struct("version", "measurement_version").n_unique())
    by_version = cells.group_by("version", "measurement_version").agg(pl.len().alias("rows")).join(rounds, how="cross")
    one = sentence(
        "{} of {} rows are of version {}, measurement version {}",
        "rows", "cells", pl.col("version").fill_null("unknown"),
        pl.col("measurement_version").str.head(12).fill_null("unknown"),
    )  # fmt: skip
    versions = make_findings(by_version.filter(pl.col("several") > 1), one, count=pl.col("rows"))
    by_toolchain = cells.group_by("toolchain").agg(
        *(pl.col(name).drop_nulls().n_unique().alias(f"{name}_n") for name in ("torch", "triton", "cuda")),
        *(listed(name).alias(name) for name in ("torch", "triton", "cuda")),
        pl.len().alias("rows"),
    )
    changed = {name: pl.col(f"{name}_n") > 1 for name in ("torch", "triton", "cuda")}
    parts = [pl.when(is_so).then(sentence(f"{name} {{}}", name)) for name, is_so in changed.items()]
    text = sentence("several toolchains have this name: {}", pl.concat_str(parts, separator="; ", ignore_nulls=True))
    toolchains = make_findings(by_toolchain.filter(pl.any_horizontal(changed.values())), text, count=pl.col("rows"))
    return pl.concat([versions, toolchains])


def not_alone(tables: Tables) -> pl.LazyFrame:
    """Find times from a device that was not proven to be free of other processes."""
    shown = pl.col("exclusive").is_in(list(_CLEAR)).fill_null(value=False)
    rows = passed(tables.cells).filter(~shown | (pl.col("foreign_pids").fill_null(0) > 0))
    found = rows.group_by("gpu", "hostname", "exclusive", "exclusive_reason").agg(
        pl.len().alias("rows"), pl.col("foreign_pids").max()
    )
    others = pl.when(pl.col("foreign_pids") > 0).then(sentence(", up to {} foreign processes", "foreign_pids"))
    reason = pl.when(pl.col("exclusive_reason") != "").then(sentence(" ({})", "exclusive_reason"))
    evidence = sentence(
        "{} rows on host {}: exclusive is {}{}{}",
        "rows", pl.col("hostname").fill_null("unknown"), pl.col("exclusive").fill_null("unknown"),
        reason.otherwise(pl.lit("")), others.otherwise(pl.lit("")),
    )  # fmt: skip
    return make_findings(found, evidence, count=pl.col("rows"))


def order_of_time(tables: Tables) -> pl.LazyFrame:
    """Find attempts that ended before they started, or started before their run or predecessor, and such blocks."""
    start, end, run = pl.col("started_at"), pl.col("ended_at"), pl.col("run_started_at")
    wrong = tables.cells.filter((end < start) | (start < run)).unique("record").drop("workload")
    what = pl.when(end < start).then(sentence("ended at {}, started at {}", end, start)).otherwise(
        sentence("started at {}, its run at {}", start, run)
    )  # fmt: skip
    attempt = ("run_id", "cell_id", "host_id", "gpu_uuid")
    tries = tables.cells.filter(start.is_not_null()).unique("record").group_by(attempt).agg(
        pl.col([name for name in WHERE if name != "workload"]).first(), pl.len().alias("attempts"),
        (start.sort_by("attempt").diff().dt.total_microseconds() < 0).sum().alias("early"),
    )  # fmt: skip
    repeated = tries.filter((pl.col("attempts") > 1) & (pl.col("early") > 0))
    too_early = sentence("{} of {} attempts started before the attempt they repeat", "early", "attempts")
    blocks = tables.samples.filter(pl.col("block_ended_ns") < pl.col("block_started_ns"))
    by_row = with_cells(blocks.group_by(ROW).agg(pl.len().alias("calls")), tables)
    in_blocks = sentence("{} calls lie in blocks that ended before they started", "calls")
    return pl.concat(
        [
            make_findings(wrong, what),
            make_findings(repeated, too_early),
            make_findings(by_row, in_blocks, count=pl.col("calls")),
        ]
    )


def baselines_apart(tables: Tables) -> pl.LazyFrame:
    """Find baselines of one problem on one unit that differ by more than a factor between candidates."""
    time = pl.col("baseline_median_ns")
    unit = ("gpu", "gpu_uuid", "toolchain", "dtype", "problem", "problem_sha256", "workload")
    rows = passed(tables.cells).filter((time > 0) & time.is_finite())
    found = rows.group_by(unit).agg(
        pl.col("candidate").n_unique().alias("candidates"),
        time.min().alias("least"),
        time.max().alias("most"),
        pl.col("candidate").get(time.arg_min()).alias("fast"),
        pl.col("candidate").get(time.arg_max()).alias("slow"),
        pl.len().alias("rows"),
    )
    apart = pl.col("most") / pl.col("least")
    evidence = sentence(
        "the same baseline took {} beside {} and {} beside {}: {}×",
        micro(pl.col("least")), "fast", micro(pl.col("most")), "slow", figure(apart, digits=3),
    )  # fmt: skip
    return make_findings(
        found.filter((pl.col("candidates") > 1) & (apart > _APART)), evidence, count=pl.col("rows"), worst=apart
    )
