"""Size and complexity of candidates' sources, and whether they go with correctness and speed.

Sources are compared within *groups*: candidates in one language for the same problem, dtype, GPU and toolchain. So
neither a hard problem nor a language, of which radon reads more or less, makes an association.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from kernel_matrix.analysis.outcomes import ordinary, outcomes
from kernel_matrix.analysis.quantiles import of_sessions
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.slices import columns_of
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.analysis.timed_sessions import ALL, SLICE
from kernel_matrix.errors import NothingSelectedError

LEAST_PROBLEMS: Final = 10
"""Problems that an interval takes. From here on intervals cover 93 to 97 % in simulations, and more of pairs alone."""

_LAUNCHES: Final = pl.col("launches_per_call")
_TRACED: Final = {
    "launches": _LAUNCHES.median(),
    "fused": (pl.col("eager_launches") / _LAUNCHES).filter(_LAUNCHES > 0).median(),
}
"""Measure of a traced call → its value in a record, from rows of ``cells``."""
_MEASURES: Final = {
    "lines": pl.col("code_lines").first(),
    "complexity": pl.col("code_complexity").first(),
    "complexity_mean": pl.col("code_complexity_mean").first(),
    "maintainability": pl.col("code_maintainability").first(),
    **_TRACED,
}
"""Measure of a candidate, likewise."""
_COMPILED: Final = "compile_fused"
"""What ``torch.compile`` makes of the reference, beside ``fused``; no measure of a candidate."""
_OUTCOMES: Final = ("correct", "speed")
_GROUP: Final = ("problem", "ranks", "dtype", "gpu", "toolchain", "language")
_CANDIDATE: Final = ("candidate", "candidate_sha256", "language")
_NEEDED: Final = ("record", *_GROUP, "candidate", "candidate_sha256", "candidate_kind", "counted", "passed")
_UNMEASURED: Final = (
    "No source was measured: imported results and records of earlier versions have no measures of the source."
)
_ROUNDING: Final = 1e-9
"""Correlations are kept this far from ±1, where Fisher's transform is infinite."""


def code(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Answer ``code``, measures of sources per slice, and ``associations`` with correctness and speed.

    Raises:
        NothingSelectedError: The tables hold no cell.
        UsageError: A slice is unknown.
    """
    by = list(request.by) or [SLICE]
    cells = _cells(tables, request)
    notes = [] if cells["lines"].count() else [_UNMEASURED]
    if not any(cells[name].count() for name in _MEASURES):
        cells = cells.clear()
    return [_sizes(cells, by, notes), _associations(cells, by)]


def _cells(tables: Tables, request: QuestionOptions) -> pl.DataFrame:
    """Make one row per counted cell and slice, with hosts and units averaged.

    Its columns are the slices, those that name the cell and the source, the measures, ``correct`` (1 if it passed, else
    0) and ``speed``, the logarithm of its speed-up over its workloads, null unless it passed.
    """
    slices = [pl.col(column).alias(name) for name, column in zip(request.by, columns_of(request.by), strict=True)]
    named = slices or [pl.lit(ALL).alias(SLICE)]
    speedup = pl.col("speedup")
    found = (
        outcomes(tables.cells)
        .select(
            *(pl.col(name) for name in _NEEDED if name not in request.by),
            *named,
            log=pl.when(pl.col("passed") & speedup.is_finite() & (speedup > 0)).then(speedup.log()),
        )
        .collect(engine="streaming")
    )
    if found.is_empty():
        raise NothingSelectedError("the tables hold no cell", next_step="Name a folder with results.")
    kept = (found if "kind" in request.by else ordinary(found)).filter("counted")
    compiled = (pl.col("eager_launches") / pl.col("compile_launches")).filter(pl.col("compile_launches") > 0).median()
    measures = tables.cells.group_by("record").agg(
        *(value.cast(pl.Float64).alias(name) for name, value in (_MEASURES | {_COMPILED: compiled}).items())
    )
    keys = list(dict.fromkeys((*(request.by or (SLICE,)), *_GROUP, *_CANDIDATE)))
    return (
        kept.lazy()
        .group_by([*keys, "record"])
        .agg(pl.col("passed").first().cast(pl.Float64).alias("correct"), pl.col("log").mean().alias("speed"))
        .join(measures, on="record", how="left")
        .group_by(keys)
        .agg(pl.col(*_OUTCOMES, *_MEASURES, _COMPILED).mean())
        .collect(engine="streaming")
    )


def _sizes(cells: pl.DataFrame, by: Sequence[str], notes: Sequence[str]) -> Answer:
    """Compute medians of the measures over candidates."""
    measured = pl.col(*_MEASURES, _COMPILED)
    candidates = cells.group_by(list(dict.fromkeys((*by, "problem", *_CANDIDATE)))).agg(measured.mean())
    table = candidates.group_by(by).agg(
        pl.len().alias("candidates"),
        pl.col("lines").count().alias("measured"),
        pl.col("complexity").count().alias("parsed"),
        pl.col("launches").count().alias("traced"),
        measured.median(),
    )
    return Answer(
        name="code",
        title="Size and complexity of sources",
        table=table.sort(by, nulls_last=True),
        meanings={
            "candidates": "distinct sources of cells that count",
            "measured": "sources whose lines are known",
            "parsed": "sources with Python functions that could be measured",
            "traced": "sources of which a tracer saw the kernels",
            "lines": "median of the lines that are not blank, of all files",
            "complexity": "median of the largest cyclomatic complexity of a Python function (radon)",
            "complexity_mean": "median of the mean cyclomatic complexity of Python functions",
            "maintainability": "median of the maintainability index, 0 to 100 (radon)",
            "launches": "median of the kernels launched per call",
            "fused": "median of the kernels that the reference launches for each one of the candidate's",
            _COMPILED: "the same for the reference through torch.compile: how much it fused",
        },
        notes=[*notes, *_size_notes(candidates)],
    )


def _size_notes(candidates: pl.DataFrame) -> Iterator[str]:
    if candidates.is_empty():
        return
    yield (
        "Complexity and maintainability are of Python, Triton kernels included. CUDA and C++ are not measured: of such"
        " a candidate they describe the Python around its kernels. Compare candidates of one language (--by language)."
    )
    if candidates["launches"].count():
        yield "Launches of a candidate are claims of a tracer in its process."
        if not candidates["fused"].count():
            yield "Records of earlier versions lack the launches of the reference, so how much was fused is not known."


def _associations(cells: pl.DataFrame, by: Sequence[str]) -> Answer:
    """Correlate the ranks of each measure with those of correctness and speed, within groups."""
    parts = [
        _correlated(cells, by, measure, outcome)
        for outcome in _OUTCOMES
        for measure in _MEASURES
        # Kernels are traced only once the candidate's answers were right.
        if outcome != "correct" or measure not in _TRACED
    ]
    table = pl.concat(parts)
    return Answer(
        name="associations",
        title="Do size and complexity go with correctness and speed?",
        table=table.sort([*by, "outcome", "measure"], nulls_last=True),
        meanings={
            "outcome": "correct: the cell passed; speed: logarithm of the speed-up of cells that passed",
            "measure": "measure of the source",
            "cells": "cells in groups (problem, dtype, GPU, toolchain, language) whose candidates differ in both",
            "problems": "problems of these groups",
            "rho": "Spearman's rank correlation within groups, -1 to 1; 0: they do not go together",
            "low": "lower end of its 95 % interval, from problems left out one by one (jackknife, Fisher's z)",
            "high": "upper end",
        },
        notes=list(_association_notes(table)),
    )


def _correlated(cells: pl.DataFrame, by: Sequence[str], measure: str, outcome: str) -> pl.DataFrame:
    """Compute the pooled rank correlation of two columns within groups, per slice, with an interval over problems.

    Ranks are divided by the size of their group, so that a group weighs as much as it has candidates.
    """
    group = list(dict.fromkeys((*by, *_GROUP)))
    problem = list(dict.fromkeys((*by, "problem")))
    x, y = ((pl.col(name).rank() - pl.col(name).rank().mean()) / pl.len() for name in (measure, outcome))
    sums = (
        cells.drop_nulls([measure, outcome])
        .group_by(group)
        .agg(pl.len().alias("cells"), (x * y).sum().alias("xy"), (x * x).sum().alias("xx"), (y * y).sum().alias("yy"))
        .filter((pl.col("xx") > 0) & (pl.col("yy") > 0))
        .group_by(problem)
        .agg(pl.col("cells", "xy", "xx", "yy").sum())
        .with_columns(**{f"rest_{name}": pl.col(name).sum().over(by) - pl.col(name) for name in ("xy", "xx", "yy")})
        .with_columns(z=_fisher(_rho("rest_")))
    )
    found = sums.group_by(by).agg(
        pl.col("cells").sum().cast(pl.Int64),
        pl.len().cast(pl.Int64).alias("problems"),
        pl.col("xy", "xx", "yy").sum(),
        (pl.col("z").var(ddof=0) * (pl.len() - 1)).sqrt().alias("error"),
    )
    # Equal problems have no variance, which says nothing about further ones.
    enough = (pl.col("problems") >= LEAST_PROBLEMS) & (pl.col("error") > _ROUNDING)
    reach = pl.when(enough).then(pl.col("error") * of_sessions(pl.col("problems")))
    slices = cells.select(by).unique()
    return (
        slices.join(found, on=by, how="left", nulls_equal=True)
        .with_columns(pl.col("cells", "problems").fill_null(0), rho=_rho(""))
        .select(
            *by,
            pl.lit(outcome).alias("outcome"),
            pl.lit(measure).alias("measure"),
            "cells",
            "problems",
            "rho",
            low=(_fisher(pl.col("rho")) - reach).tanh(),
            high=(_fisher(pl.col("rho")) + reach).tanh(),
        )
    )


def _rho(prefix: str) -> pl.Expr:
    xy, xx, yy = (pl.col(f"{prefix}{name}") for name in ("xy", "xx", "yy"))
    return (xy / (xx * yy).sqrt()).fill_nan(None).clip(-1, 1)


def _fisher(rho: pl.Expr) -> pl.Expr:
    return rho.clip(_ROUNDING - 1, 1 - _ROUNDING).arctanh()


def _association_notes(table: pl.DataFrame) -> Iterator[str]:
    if table.is_empty():
        return
    yield (
        "Candidates are compared in one language for the same problem, dtype, GPU and toolchain. Groups whose"
        " candidates are all equal in either column are left out. An association is no effect: neither need cause the"
        " other."
    )
    unknown = table.filter(pl.col("rho").is_null()).height
    if unknown:
        yield f"{unknown} of {table.height} rows have no such group, and so no correlation."
    few = table.filter(pl.col("rho").is_not_null() & (pl.col("problems") < LEAST_PROBLEMS)).height
    if few:
        yield f"{few} of {table.height} rows have no interval: it takes {LEAST_PROBLEMS} problems with such groups."
    equal = table.filter((pl.col("problems") >= LEAST_PROBLEMS) & pl.col("low").is_null()).height
    if equal:
        yield f"{equal} of {table.height} rows have no interval, because all their problems agree exactly."
    intervals = table["low"].count()
    if intervals > 1:
        yield f"Each interval holds by itself: of {intervals} intervals, {intervals * 0.05:.1f} leave out 0 by chance."
