"""Checks for rows that are missing, have no partner, or occur twice."""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import ROW, WHERE, make_findings
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.model.enums import Fault

_KEY: Final = ("toolchain", "dtype", "problem", "ranks", "workload", "candidate")


def holes(tables: Tables) -> pl.LazyFrame:
    """Find cells that one GPU has rows of and another has not.

    One finding per GPU and candidate where all of a candidate's problems are missing, as for a baseline that was never
    measured there; else per GPU and problem. A cell that failed before any workload has a row and is no hole.
    """
    key = [name for name in _KEY if name != "workload"]
    # Cells are numbered by a hash: a row index could differ each time the lazy plan is evaluated.
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
        "{} cells that other GPUs have rows of are missing, for example {} {} {}",
        "missing", *(f"_{name}" for name in first),
    )  # fmt: skip
    parts = ((whole, of_whole), (found, of_rest))
    return pl.concat([make_findings(rows, evidence, count=pl.col("missing")) for rows, evidence in parts])


def no_partner(tables: Tables) -> pl.LazyFrame:
    """Find times of a candidate or baseline without the other's: joins of the two drop them."""
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
    return make_findings(found.filter(number > 0), evidence, count=number)


def orphans(tables: Tables) -> pl.LazyFrame:
    """Find calls and kernels without a row of cells, and rows without a host: joins drop them."""
    cells = tables.cells
    calls = tables.samples.group_by(ROW).agg(pl.len().alias("number"))
    lost = calls.join(cells.select(ROW).unique(), on=ROW, how="anti").group_by("workload")
    of_calls = make_findings(
        lost.agg(pl.col("number").sum(), pl.len().alias("sessions"), pl.col("record").min()),
        sentence(
            "{} timed calls of {} sessions belong to no row of cells, first in record {}",
            "number",
            "sessions",
            "record",
        ),
        count=pl.col("number"),
    )
    kernels = tables.kernels.join(cells.select("record").unique(), on="record", how="anti")
    of_kernels = make_findings(
        kernels.select(number=pl.len(), record=pl.col("record").min()).filter(pl.col("number") > 0),
        sentence("{} kernels belong to no row of cells, first in record {}", "number", "record"),
        count=pl.col("number"),
    )
    hosts = cells.filter(pl.col("host_id").is_not_null()).join(tables.hosts.select("host_id"), on="host_id", how="anti")
    of_hosts = make_findings(
        hosts.group_by("gpu", "host_id").agg(pl.len().alias("number")),
        sentence("host {} of {} rows is not in the table hosts", "host_id", "number"),
        count=pl.col("number"),
    )
    return pl.concat([of_calls, of_kernels, of_hosts])


def twice(tables: Tables) -> pl.LazyFrame:
    """Find rows that occur several times: joins multiply them, and means count them twice."""
    key = ("run_id", "cell_id", "attempt", "host_id", "gpu_uuid", "session", "workload")
    found = tables.cells.group_by(key).agg(pl.len().alias("rows"), pl.col([n for n in WHERE if n not in key]).first())
    evidence = sentence(
        "run {}, attempt {}, session {} has {} rows of this workload",
        pl.col("run_id").fill_null("unknown"), pl.col("attempt").cast(pl.String).fill_null("unknown"),
        pl.col("session").cast(pl.String).fill_null("unknown"), "rows",
    )  # fmt: skip
    return make_findings(found.filter(pl.col("rows") > 1), evidence, count=pl.col("rows") - 1)


def nothing_passed(tables: Tables) -> pl.LazyFrame:
    """Find GPUs on which nothing passed: more likely the machine's fault than every candidate's."""
    by_gpu = tables.cells.group_by("gpu").agg(
        pl.len().alias("rows"),
        (pl.col("fault") == Fault.NONE.value).sum().alias("passed"),
        pl.col("status").cast(pl.String).mode().sort().first().alias("usual"),
    )
    found = by_gpu.filter(pl.col("passed") == 0)
    return make_findings(
        found, sentence("none of {} rows passed; most ended as {}", "rows", "usual"), count=pl.col("rows")
    )
