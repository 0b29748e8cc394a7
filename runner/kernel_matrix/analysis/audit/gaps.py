"""Rows that are missing, that have no partner, or that are there twice."""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import ROW, WHERE, together, told
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.model.enums import Status

_KEY: Final = ("toolchain", "dtype", "problem", "workload", "candidate")


def holes(tables: Tables) -> pl.LazyFrame:
    """What one GPU has rows of and another has none of.

    Per GPU and candidate where all of a candidate's problems are missing, as with a baseline that was never measured
    there; else per GPU and problem. A cell that got to no workload has a row all the same, and is no hole.
    """
    key = [name for name in _KEY if name != "workload"]
    # Cells are told apart by a hash: a running number could be another one each time the plan makes it.
    numbered = tables.cells.select("gpu", *key, pl.struct(key).hash().alias("number"))
    there = numbered.filter(pl.col("gpu").is_not_null()).unique(("gpu", "number"))
    cells = there.select(*key, "number").unique("number")
    every = there.select("gpu").unique().join(cells, how="cross")
    missing = every.join(there.select("gpu", "number"), on=["gpu", "number"], how="anti")
    in_all = cells.group_by("candidate").agg(pl.len().alias("all"), pl.col("problem").n_unique().alias("problems"))
    lost = missing.group_by("gpu", "candidate").agg(pl.len().alias("missing")).join(in_all, on="candidate")
    whole = lost.filter((pl.col("missing") == pl.col("all")) & (pl.col("problems") > 1))
    of_whole = sentence("no row at all; other GPUs have {} cells of it, over {} problems", "missing", "problems")
    rest = missing.join(whole, on=["gpu", "candidate"], how="anti").group_by("gpu", "problem")
    first = {name: pl.col(name).cast(pl.String).min() for name in ("candidate", "dtype", "toolchain")}
    found = rest.agg(
        pl.len().alias("missing"), *(value.fill_null("unknown").alias(f"_{name}") for name, value in first.items())
    )
    of_rest = sentence(
        "{} of the cells that other GPUs have rows of are not there, as {} {} {}",
        "missing", *(f"_{name}" for name in first),
    )  # fmt: skip
    return together([told(whole, of_whole, count=pl.col("missing")), told(found, of_rest, count=pl.col("missing"))])


def no_partner(tables: Tables) -> pl.LazyFrame:
    """Times of one side without the other's: whatever joins the two drops them."""
    ours, theirs = pl.col("candidate_median_ns").is_not_null(), pl.col("baseline_median_ns").is_not_null()
    timed = tables.cells.filter(ours | theirs)
    found = timed.group_by("gpu", "toolchain", "dtype", "candidate").agg(
        pl.len().alias("rows"), (ours & ~theirs).sum().alias("alone"), (theirs & ~ours).sum().alias("unmatched")
    )
    number = pl.col("alone") + pl.col("unmatched")
    evidence = sentence(
        "of {} timed rows {} have a candidate's time without a baseline's, {} a baseline's alone",
        "rows", "alone", "unmatched",
    )  # fmt: skip
    return told(found.filter(number > 0), evidence, count=number)


def orphans(tables: Tables) -> pl.LazyFrame:
    """Calls, kernels and hosts that no row of the cells belongs to, or the other way round: joins drop them."""
    cells = tables.cells
    calls = tables.samples.group_by(ROW).agg(pl.len().alias("number"))
    lost = calls.join(cells.select(ROW).unique(), on=ROW, how="anti").group_by("workload")
    of_calls = told(
        lost.agg(pl.col("number").sum(), pl.len().alias("sessions"), pl.col("record").min()),
        sentence(
            "{} timed calls of {} sessions belong to no row of cells, as of record {}", "number", "sessions", "record"
        ),
        count=pl.col("number"),
    )
    kernels = tables.kernels.join(cells.select("record").unique(), on="record", how="anti")
    of_kernels = told(
        kernels.select(number=pl.len(), record=pl.col("record").min()).filter(pl.col("number") > 0),
        sentence("{} kernels belong to no row of cells, as of record {}", "number", "record"),
        count=pl.col("number"),
    )
    hosts = cells.filter(pl.col("host_id").is_not_null()).join(tables.hosts.select("host_id"), on="host_id", how="anti")
    of_hosts = told(
        hosts.group_by("gpu", "host_id").agg(pl.len().alias("number")),
        sentence("host {} of {} rows is not in the table hosts", "host_id", "number"),
        count=pl.col("number"),
    )
    return together([of_calls, of_kernels, of_hosts])


def twice(tables: Tables) -> pl.LazyFrame:
    """Rows that stand there several times: joins multiply them, and means count them twice."""
    key = ("run_id", "cell_id", "attempt", "host_id", "gpu_uuid", "session", "workload")
    found = tables.cells.group_by(key).agg(pl.len().alias("rows"), pl.col([n for n in WHERE if n not in key]).first())
    evidence = sentence(
        "run {}, attempt {}, session {} has {} rows of this workload",
        pl.col("run_id").fill_null("unknown"), pl.col("attempt").cast(pl.String).fill_null("unknown"),
        pl.col("session").cast(pl.String).fill_null("unknown"), "rows",
    )  # fmt: skip
    return told(found.filter(pl.col("rows") > 1), evidence, count=pl.col("rows") - 1)


def nothing_passed(tables: Tables) -> pl.LazyFrame:
    """GPUs on which nothing at all passed: more likely the machine's fault than every candidate's."""
    by_gpu = tables.cells.group_by("gpu").agg(
        pl.len().alias("rows"),
        (pl.col("status") == Status.PASSED.value).sum().alias("passed"),
        pl.col("status").cast(pl.String).mode().sort().first().alias("usual"),
    )
    found = by_gpu.filter(pl.col("passed") == 0)
    return told(found, sentence("none of {} rows passed; most ended as {}", "rows", "usual"), count=pl.col("rows"))
