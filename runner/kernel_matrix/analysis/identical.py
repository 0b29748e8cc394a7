"""Noise floor: the measured difference between identical code under several names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from kernel_matrix.analysis.outcomes import is_reference
from kernel_matrix.analysis.questions import Answer
from kernel_matrix.analysis.timed_sessions import log_of

_AT: Final = ("gpu", "host_id", "gpu_uuid", "toolchain", "dtype", "problem", "problem_sha256", "workload")
NEEDED: Final = (*_AT, "candidate", "candidate_sha256", "code_sha256", "candidate_ns", "speedup")
"""Columns of ``OUTCOMES`` that this module reads."""
_KINDS: Final = {
    "reference": "the reference as a candidate, against the baseline of the same sessions",
    "source": "one source under several names, candidate against candidate",
    "machine code": "equal machine code under several names, candidate against candidate",
}
_FLOOR: Final = 0.95
_FEWEST_PAIRS: Final = 20
"""Pairs needed for a noise floor: the 95 % quantile of fewer would be their maximum."""
_FEWEST: Final = {_FLOOR: _FEWEST_PAIRS, 0.99: 100}
"""Share → pairs needed for that quantile."""


def noise_floor(passed: pl.DataFrame, labels: Sequence[str]) -> Answer:
    """Measure the difference between identical code, per slice: smaller differences should not be claimed.

    ``passed`` holds passed outcomes with the columns :data:`NEEDED` and ``labels``, the columns of the slice.
    """
    pairs = _pairs(passed, labels)
    table = _by_kind(pl.concat([pairs, pairs.with_columns(kind=pl.lit("all"))]), labels)
    return Answer(
        name="noise_floor",
        title="Noise floor: measured differences between identical code",
        table=table,
        meanings={
            "kind": "The reason why the code is identical; all: every pair.",
            "pairs": "Pairs of outcomes on one unit; k names for one code make k − 1 pairs, neighbours by name.",
            "p95_percent": "95 % of identical pairs differ by less: do not claim smaller differences.",
            "p99_percent": "99 % of identical pairs differ by less.",
            "bias_percent": "Mean signed difference; not 0 if one side has an advantage.",
        },
        notes=_notes(table),
    )


def _pairs(passed: pl.DataFrame, labels: Sequence[str]) -> pl.DataFrame:
    timed = passed.filter((pl.col("candidate_ns") > 0) & pl.col("candidate_ns").is_finite())
    references = timed.filter(is_reference()).select(
        *labels, kind=pl.lit("reference"), log_ratio=log_of(pl.col("speedup"))
    )
    # One name per source, so that no pair counts both by its source and by its machine code.
    sources = _several_names(timed, "code_sha256").sort("candidate")
    sources = sources.unique([*_AT, "candidate_sha256"], keep="first", maintain_order=True)
    return pl.concat(
        [
            references.drop_nulls("log_ratio"),
            _twins(_several_names(timed, "candidate_sha256"), labels, "candidate_sha256", "source"),
            _twins(sources, labels, "code_sha256", "machine code"),
        ]
    )


def _by_kind(pairs: pl.DataFrame, labels: Sequence[str]) -> pl.DataFrame:
    size = pl.col("log_ratio").abs()
    quantiles = {
        f"p{100 * share:.0f}_percent": pl.when(pl.len() >= fewest).then(
            _as_percent(size.quantile(share, interpolation="linear"))
        )
        for share, fewest in _FEWEST.items()
    }
    found = pairs.group_by(*labels, "kind").agg(
        pairs=pl.len(),
        median_percent=_as_percent(size.median()),
        **quantiles,
        max_percent=_as_percent(size.max()),
        bias_percent=_as_percent(pl.col("log_ratio").mean()),
    )
    return found.sort(*labels, "kind", nulls_last=True)


def _notes(table: pl.DataFrame) -> list[str]:
    if table.is_empty():
        return ["No two cells have identical code. Add `*/@reference` to the candidates to get a noise floor."]
    kinds = table["kind"].to_list()
    notes = [f"{kind!r}: {meaning}." for kind, meaning in _KINDS.items() if kind in kinds]
    if (table["pairs"] < _FEWEST_PAIRS).any():
        notes.append("A quantile is null with too few pairs: 95 % needs 20, 99 % needs 100.")
    if "machine code" in kinds:
        notes.append("Equal machine code may be launched differently, so such pairs may truly differ.")
    return notes


def _as_percent(log_ratio: pl.Expr) -> pl.Expr:
    return 100 * (log_ratio.exp() - 1)


def _several_names(found: pl.DataFrame, same: str) -> pl.DataFrame:
    """Keep outcomes of sources that share ``same`` with another name: these are few, which keeps sorting cheap."""
    names = found.select(same, "candidate").drop_nulls(same).unique()
    shared = names.filter(pl.col(same).is_duplicated()).select(same).unique()
    sources = found.join(shared, on=same, how="semi").select("candidate_sha256").unique()
    return found.join(sources, on="candidate_sha256", how="semi", nulls_equal=True)


def _twins(found: pl.DataFrame, labels: Sequence[str], same: str, kind: str) -> pl.DataFrame:
    """Pair neighbours by name among outcomes of one place that agree in ``same``."""
    place = [*_AT, same]
    ordered = found.drop_nulls(same).sort(*place, "candidate")
    previous = (pl.col("candidate_ns").log().diff()).over(place)
    other = (pl.col("candidate") != pl.col("candidate").shift()).over(place)
    pairs = ordered.with_columns(previous.alias("log_ratio"), other.alias("_other")).filter(pl.col("_other"))
    return pairs.select(*labels, pl.lit(kind).alias("kind"), "log_ratio").drop_nulls("log_ratio")
