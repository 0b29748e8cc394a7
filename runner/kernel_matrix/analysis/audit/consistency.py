"""Rows that contradict each other, or that mix what has to be kept apart."""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import ROW, WHERE, figure, listed, micro, named, passed, percent, together, told
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.model.enums import Fault, Status

_CODE: Final = ("candidate_sha256", "problem_sha256", "image_id", "core_sha256", "gpu", "toolchain", "dtype")
_MIXED: Final = {"gpu_uuid": "units", "driver": "drivers", "clock_state": "clock states", "image_id": "images"}
_APART: Final = 1.3
"""Baselines of one problem on one unit that are further apart than this were not the same measurement."""
_CLEAR: Final = frozenset({"proven", "not_applicable"})


def verdict_flips(tables: Tables) -> pl.LazyFrame:
    """The same candidate, problem, image and judge on one GPU: some attempts passed and others did not.

    Clocks that contradicted each other in one attempt of a run are not among these: see :func:`accused_once`.
    """
    evidence = sentence("identical code: {} attempts passed and {} ended as {}", "passed", "failed", "how")
    both = (pl.col("passed") > 0) & (pl.col("failed") > 0)
    return told(_verdicts(tables).filter(both), evidence, count=pl.min_horizontal("passed", "failed"))


def accused_once(tables: Tables) -> pl.LazyFrame:
    """An attempt ended as ``timing_mismatch``, no other of its run did, and identical code passed.

    A process that stays on a slow core leaves time unexplained for a whole session: a run believes what fresh processes
    repeat.
    """
    evidence = sentence("{} attempts at identical code passed, {} did not: {}", "passed", "accused", "accusation")
    found = _verdicts(tables).filter((pl.col("passed") > 0) & (pl.col("accused") > 0))
    return told(found, evidence, count=pl.col("accused"))


def _verdicts(tables: Tables) -> pl.LazyFrame:
    """How many attempts at identical code ``passed``, ``failed``, or were ``accused`` by clocks once in their run."""
    records = tables.cells.filter(pl.col("candidate_sha256").is_not_null() & pl.col("problem_sha256").is_not_null())
    won, lost = pl.col("status") == Status.PASSED.value, pl.col("fault") == Fault.CANDIDATE.value
    mismatch = pl.col("status") == Status.TIMING_MISMATCH.value
    # One row per record first: an attempt with many workloads is one attempt.
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
    """Cells whose times come from several devices, drivers, clock states or images."""
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
    said = [
        pl.when(several[name]).then(sentence(f"{{}} {word} ({{}} … {{}})", f"{name}_n", f"{name}_low", f"{name}_high"))
        for name, word in _MIXED.items()
    ]
    text = pl.concat_str(said, separator=", ", ignore_nulls=True)
    evidence = sentence("{} in one cell; its times are up to {} apart", text, percent(pl.col("apart")))
    return told(
        found.filter(pl.any_horizontal(several.values())), evidence, count=pl.col("rows"), worst=pl.col("apart")
    )


def mixed_versions(tables: Tables) -> pl.LazyFrame:
    """Rows that several versions of the program, or of the judge, wrote; and toolchains that changed meanwhile."""
    cells = tables.cells
    rounds = cells.select(cells=pl.len(), several=pl.struct("version", "core_sha256").n_unique())
    by_version = cells.group_by("version", "core_sha256").agg(pl.len().alias("rows")).join(rounds, how="cross")
    one = sentence(
        "{} of {} rows are of version {}, core {}",
        "rows", "cells", pl.col("version").fill_null("unknown"),
        pl.col("core_sha256").str.head(12).fill_null("unknown"),
    )  # fmt: skip
    versions = told(by_version.filter(pl.col("several") > 1), one, count=pl.col("rows"))
    by_toolchain = cells.group_by("toolchain").agg(
        *(pl.col(name).drop_nulls().n_unique().alias(f"{name}_n") for name in ("torch", "triton", "cuda")),
        *(listed(name).alias(name) for name in ("torch", "triton", "cuda")),
        pl.len().alias("rows"),
    )
    changed = {name: pl.col(f"{name}_n") > 1 for name in ("torch", "triton", "cuda")}
    said = [pl.when(is_so).then(sentence(f"{name} {{}}", name)) for name, is_so in changed.items()]
    text = sentence(
        "one toolchain's name stands for several: {}", pl.concat_str(said, separator="; ", ignore_nulls=True)
    )
    toolchains = told(by_toolchain.filter(pl.any_horizontal(changed.values())), text, count=pl.col("rows"))
    return together([versions, toolchains])


def not_alone(tables: Tables) -> pl.LazyFrame:
    """Times that were taken on a device that nobody has shown to be free of others."""
    shown = pl.col("exclusive").is_in(list(_CLEAR)).fill_null(value=False)
    rows = passed(tables.cells).filter(~shown | (pl.col("foreign_pids").fill_null(0) > 0))
    found = rows.group_by("gpu", "hostname", "exclusive", "exclusive_reason").agg(
        pl.len().alias("rows"), pl.col("foreign_pids").max()
    )
    others = pl.when(pl.col("foreign_pids") > 0).then(sentence(", up to {} processes of others", "foreign_pids"))
    reason = pl.when(pl.col("exclusive_reason") != "").then(sentence(" ({})", "exclusive_reason"))
    evidence = sentence(
        "{} rows on host {}: exclusive is {}{}{}",
        "rows", pl.col("hostname").fill_null("unknown"), pl.col("exclusive").fill_null("unknown"),
        reason.otherwise(pl.lit("")), others.otherwise(pl.lit("")),
    )  # fmt: skip
    return told(found, evidence, count=pl.col("rows"))


def order_of_time(tables: Tables) -> pl.LazyFrame:
    """Attempts that ended before they began, began before their run or their predecessor, and blocks of that kind."""
    start, end, run = pl.col("started_at"), pl.col("ended_at"), pl.col("run_started_at")
    wrong = tables.cells.filter((end < start) | (start < run)).unique("record").drop("workload")
    what = pl.when(end < start).then(sentence("ended at {}, started at {}", end, start)).otherwise(
        sentence("started at {}, its run at {}", start, run)
    )  # fmt: skip
    attempt = ("run_id", "cell_id", "host_id", "gpu_uuid")
    tries = tables.cells.filter(start.is_not_null()).unique("record").group_by(attempt).agg(
        pl.col([name for name in WHERE if name != "workload"]).first(), pl.len().alias("attempts"),
        (start.sort_by("attempt").diff().dt.total_microseconds() < 0).sum().alias("back"),
    )  # fmt: skip
    went_back = tries.filter((pl.col("attempts") > 1) & (pl.col("back") > 0))
    backwards = sentence("{} of {} attempts started before the attempt they repeat", "back", "attempts")
    blocks = tables.samples.filter(pl.col("block_ended_ns") < pl.col("block_started_ns"))
    by_row = named(blocks.group_by(ROW).agg(pl.len().alias("calls")), tables)
    in_blocks = sentence("{} calls lie in blocks that ended before they started", "calls")
    return together([told(wrong, what), told(went_back, backwards), told(by_row, in_blocks, count=pl.col("calls"))])


def baselines_apart(tables: Tables) -> pl.LazyFrame:
    """Baselines of one problem on one unit that differ by more than a factor between candidates."""
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
    return told(
        found.filter((pl.col("candidates") > 1) & (apart > _APART)), evidence, count=pl.col("rows"), worst=apart
    )
