"""Checks for GPUs that were timed on different versions of the problems."""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import figure, make_findings, passed, percent
from kernel_matrix.analysis.audit.outliers import polished
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables

_FACTOR: Final = 6.0
"""Factor by which a problem is far off."""
_SHARE: Final = 0.15
"""Share of a GPU's problems that must be far off: between very different GPUs, as B200 and T4, 11 % are."""
_FEWEST: Final = 3
"""Problems that must be far off; fewer are single odd cells."""


def mixed_problems(tables: Tables) -> pl.LazyFrame:
    """Find GPUs on which problems have another content than on most GPUs, or seem to by the pattern of their times."""
    return pl.concat([_other_contents(tables), _two_kinds(tables)])


def _other_contents(tables: Tables) -> pl.LazyFrame:
    """Find GPUs whose problems have another digest than those of the same name have on most GPUs."""
    digest, gpus, problem = pl.col("problem_sha256"), pl.col("gpus"), ("problem", "ranks")
    known = passed(tables.cells).filter(pl.col("gpu").is_not_null() & digest.is_not_null())
    each = known.select("gpu", "problem", "ranks", "problem_sha256").unique()
    spread = each.group_by(*problem, "problem_sha256").agg(gpus=pl.col("gpu").n_unique())
    usual = spread.sort("gpus", "problem_sha256", descending=[True, False]).group_by(problem, maintain_order=True).agg(
        pl.col("problem_sha256").first().alias("usual"), gpus.first(), pl.len().alias("contents")
    )  # fmt: skip
    has_usual = (digest == pl.col("usual")).any()
    held = each.join(usual.filter(pl.col("contents") > 1), on=problem, nulls_equal=True).group_by("gpu", *problem).agg(
        has_usual.alias("as_usual"), gpus.first()
    )  # fmt: skip
    found = (
        held.filter(~pl.col("as_usual"))
        .group_by("gpu")
        .agg(pl.len().alias("problems"), gpus.max(), pl.col("problem").cast(pl.String).min().alias("example"))
    )
    of_gpu = each.group_by("gpu").agg(pl.col("problem").n_unique().alias("all"))
    evidence = sentence(
        "{} of {} problems have another content than on {} other GPUs, for example {}",
        "problems", "all", gpus, "example",
    )  # fmt: skip
    return make_findings(found.join(of_gpu, on="gpu"), evidence, count=pl.col("problems"))


def _two_kinds(tables: Tables) -> pl.LazyFrame:
    """Find GPUs of whose problems a part is far slower or faster, relative to other GPUs, than the rest."""
    left = pl.col("left")
    by_problem = polished(tables).group_by("gpu", "problem").agg(left.median())
    far = left.abs() > pl.lit(_FACTOR).log()
    found = by_problem.group_by("gpu").agg(
        pl.len().alias("all"), far.sum().alias("far"), left.filter(far).abs().median().exp().alias("factor"),
        (left.filter(far) > 0).mean().alias("slower"),
        pl.col("problem").cast(pl.String).sort_by(left.abs(), descending=True).first().alias("example"),
    )  # fmt: skip
    number = pl.col("far")
    odd = (number >= _FEWEST) & (number >= pl.col("all") * _SHARE)
    evidence = sentence(
        f"{{}} of {{}} problems are at least {_FACTOR:g}× off, {{}} of these slower, in the median {{}}×, from what "
        "other GPUs and this GPU's other problems imply, for example {}: another version of the problems?",
        number, "all", percent(pl.col("slower")), figure(pl.col("factor"), digits=3), "example",
    )  # fmt: skip
    return make_findings(found.filter(odd), evidence, count=number)
