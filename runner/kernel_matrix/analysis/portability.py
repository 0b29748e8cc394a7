"""How well one kernel does on a set of GPUs: coverage, performance portability, spread, and where verdicts differ.

The *platform set* H is the GPUs that the request declares, or all in the tables. A GPU on which a cell is unsupported
for a reason known beforehand is outside of H for that row and named; one where the candidate fails by its own fault is
inside and not supported; one where the machine failed, or that has no cell, is inside and not known. Toolchains are
kept apart, unless each GPU has only one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.bestknown import make, read, with_efficiency
from kernel_matrix.analysis.quantiles import normal_quantile, t_quantile
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.standings import (
    FACTS,
    Floats,
    FoldedTable,
    Places,
    Standing,
    Truths,
    chosen_gpus,
    fold,
    gpus_in,
    one_toolchain_per_gpu,
    slice_columns,
    standings,
)
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import UsageError
from kernel_matrix.measure.intervals import LEVEL

_SUBJECT: Final = ("problem", "dtype", "workload", "candidate")
_PLATFORM_SLICES: Final = ("gpu", "toolchain")
_DESCRIBING: Final = tuple(name for name in FACTS if not name.endswith("sha256"))

SESSIONS_FOR_INTERVAL: Final = 3
"""Fewer cannot be resampled to anything."""
_SEED: Final = 20_160_907
_DRAWS: Final = (200, 2000)
"""Fewest and most resamples; between them, as many as :data:`_EFFORT` allows."""
_EFFORT: Final = 200_000_000
"""Resampled means in all."""
_CHUNK: Final = 4_000_000
"""Resampled means held at once."""

_PASSED: Final = pl.col("standing") == Standing.PASSED.value
_FAILED: Final = pl.col("standing") == Standing.FAILED.value
_EXCLUDED: Final = pl.col("standing") == Standing.EXCLUDED.value

_PP: Final = "Pennycook, Sewall and Lee, A Metric for Performance Portability, 2016, arXiv 1611.07409"


@dataclass(frozen=True, slots=True)
class _Scene:
    """What all tables of the answer are made of."""

    table: pl.DataFrame
    """Standings on the platform set, with ``efficiency`` and ``architectural``."""
    platforms: tuple[str, ...]
    keys: tuple[str, ...]
    """What names a row of the portability table."""


def portability(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Answers ``portability``, ``by_method``, ``cascade``, ``spread``, ``architecture``, ``verdicts`` and its cells.

    :param request: ``by`` slices ``by_method``; by candidates' method if it is empty.
    :raises NothingSelectedError: when no cell is on one of the platforms.
    :raises UsageError: for a slice that tells platforms or hosts apart.
    :raises StoreError: when the best-known table cannot be read.
    """
    by = _method_columns(request)
    found = standings(tables.cells)
    platforms, notes = _platform_set(found.table, request)
    here = found.table.filter(pl.col("gpu").is_in(platforms))
    efficient = with_efficiency(here, read(request.best_known) if request.best_known else make(found.table))
    keys = _SUBJECT if one_toolchain_per_gpu(here) else (*_SUBJECT, "toolchain")
    scene = _Scene(_with_architectural(efficient.table), platforms, keys)
    notes = [*found.notes, *notes, *efficient.notes]
    if request.best_known is None:
        notes.append(
            "The best-known times are those of these tables themselves, so that efficiencies change with every "
            "candidate added; freeze a table and name it to compare with other days."
        )
    rows = _rows(scene)
    rows, about_intervals = _with_intervals(rows, scene)
    return [
        _main(rows, scene, [*notes, *about_intervals, *_notes(rows)]),
        _by_method(rows, by),
        _cascade(scene),
        _spread(scene),
        _architecture(scene),
        *_verdicts(rows, scene),
    ]


def _method_columns(request: QuestionOptions) -> list[str]:
    wrong = [name for name in request.by if name in _PLATFORM_SLICES]
    if wrong:
        raise UsageError(
            f"portability is over GPUs and their toolchains and cannot be sliced by {wrong[0]!r}",
            next_step="Slice by method, model, category, level, source, problem or dtype.",
        )
    return slice_columns(request.by or ("method",), "portability")


def _platform_set(table: pl.DataFrame, request: QuestionOptions) -> tuple[tuple[str, ...], list[str]]:
    """The platform set in order of its names, and what is to be said about it."""
    seen, nameless = gpus_in(table)
    platforms = tuple(sorted(set(request.platforms) or seen))
    present, _ = chosen_gpus(table, platforms)
    absent = sorted(set(platforms) - set(present))
    notes = [f"The platform set is {', '.join(platforms)}.", *nameless]
    if absent:
        notes.append(f"No cell ran on {', '.join(absent)}: what passes elsewhere has no PP.")
    others = sorted(set(seen) - set(platforms))
    if others:
        notes.append(f"Cells on {', '.join(others)} are outside of the platform set and left out.")
    if len(platforms) == 1:
        notes.append("The platform set is one GPU: nothing here says anything about portability.")
    return platforms, notes


def _with_architectural(table: pl.DataFrame) -> pl.DataFrame:
    share = pl.col("share_of_peak")
    believable = _PASSED & _believable("share_of_peak")
    return table.with_columns(architectural=pl.when(believable).then(share), above_peak=_PASSED & (share > 1))


def _believable(share: str) -> pl.Expr:
    """Whether the share in this column can be: none is above 1."""
    return (pl.col(share) > 0) & (pl.col(share) <= 1)


def _rows(scene: _Scene) -> pl.DataFrame:
    """One row per subject: everything but the intervals."""
    size = len(scene.platforms)
    e, named = pl.col("efficiency"), pl.col("gpu")
    support = pl.when(_PASSED).then(e).when(_FAILED).then(0.0)
    grouped = (
        scene.table.lazy()
        .group_by(scene.keys)
        .agg(
            *(pl.col(name).first() for name in _DESCRIBING),
            (size - _EXCLUDED.sum()).cast(pl.Int64).alias("platforms"),
            _PASSED.sum().cast(pl.Int64).alias("passed"),
            _FAILED.sum().cast(pl.Int64).alias("failed"),
            *(named.filter(mask).alias(name) for name, mask in (("excluded_on", _EXCLUDED), ("failed_on", _FAILED))),
            named.filter(_PASSED | _FAILED | _EXCLUDED).alias("_told"),
            e.count().cast(pl.Int64).alias("_measured"),
            (1 / e).sum().alias("_inverse"),
            e.mean().alias("_mean"),
            e.log().mean().exp().alias("geometric_mean"),
            support.min().alias("worst"),
            named.get(support.arg_min()).alias("worst_gpu"),
            (e.max() / e.min()).alias("max_over_min"),
            (1 / pl.col("architectural")).sum().alias("_architectural"),
            pl.col("architectural").count().cast(pl.Int64).alias("_with_share"),
            pl.col("above_peak").sum().cast(pl.Int64),
        )
    )
    missing = pl.col("platforms") - pl.col("passed") - pl.col("failed")
    answered = pl.col("passed") + pl.col("failed")
    complete = (missing == 0) & (pl.col("_measured") == pl.col("passed"))
    return (
        grouped.with_columns(missing=missing)
        .with_columns(
            coverage=pl.when(answered > 0).then(pl.col("passed") / answered),
            pp=_harmonic(complete, "_inverse"),
            pp_supported=pl.when(pl.col("_measured") > 0).then(pl.col("_measured") / pl.col("_inverse")),
            arithmetic=pl.when(complete & (answered > 0)).then(pl.col("_mean").fill_null(0.0)),
            pp_architectural=_harmonic((missing == 0) & (pl.col("_with_share") == pl.col("passed")), "_architectural"),
            worst_gpu=pl.when(pl.col("worst").is_not_null()).then(pl.col("worst_gpu")),
            missing_on=pl.lit(list(scene.platforms), pl.List(pl.String)).list.set_difference("_told"),
        )
        .with_columns(pl.col("missing_on", "failed_on", "excluded_on").list.sort().list.join(", "))
        .sort(scene.keys)
        .collect()
    )


def _harmonic(complete: pl.Expr, inverse: str) -> pl.Expr:
    """Pennycook's harmonic mean over all platforms, of the sum of inverse efficiencies; 0 where one fails."""
    return (
        pl.when(pl.col("failed") > 0)
        .then(0.0)
        .when(complete & (pl.col("platforms") > 0))
        .then(pl.col("platforms") / pl.col(inverse))
    )


def _with_intervals(rows: pl.DataFrame, scene: _Scene) -> tuple[pl.DataFrame, list[str]]:
    """``rows`` with ``pp_low`` and ``pp_high``, and what is to be said about them."""
    counted = (rows["pp"] > 0).fill_null(value=False)
    kept = rows.filter(counted).select(scene.keys)
    cells = scene.table.join(kept, on=list(scene.keys), how="semi", nulls_equal=True)
    wide = fold(cells, "gpu", scene.platforms, scene.keys)
    inverse = 1 / wide.of(wide.table["efficiency"])
    sessions = wide.of(wide.table["sessions"])
    enough: Truths = np.asarray((np.isnan(inverse) | (sessions >= SESSIONS_FOR_INTERVAL)).all(axis=1))
    low, high = _bootstrap(wide, inverse, enough)
    bounds = wide.keys.with_columns(pp_low=pl.Series(low).fill_nan(None), pp_high=pl.Series(high).fill_nan(None))
    joined = rows.join(bounds, on=list(scene.keys), how="left", nulls_equal=True, maintain_order="left")
    few = int((~enough).sum())
    notes = ["Intervals of PP take the best-known times as given; a PP of 0 has none, since no session changes it."]
    if few:
        notes.append(f"{few} values of PP have no interval: a GPU with fewer than {SESSIONS_FOR_INTERVAL} sessions.")
    return joined, notes


def _bootstrap(wide: FoldedTable, inverse: Floats, enough: Truths) -> tuple[Floats, Floats]:
    """Bounds of PP per key by resampling sessions, NaN where they are not ``enough``.

    Expanded percentile intervals (Hesterberg, *What Teachers Should Know About the Bootstrap*, The American
    Statistician 69, 2015): the resampled mean of n sessions is too narrow by √((n−1)/n) and knows nothing of Student's
    t, so that its deviations are stretched by both. Plain percentiles of three sessions hold 72 % instead of 95 %.

    The resamples of one GPU and number of sessions are the same for all keys, which makes them a product of matrices;
    between GPUs they are independent, as the sessions are.

    :param inverse: keys × platforms, one over efficiency; NaN for a GPU outside of the platform set.
    """
    low, high = (np.full(wide.keys.height, np.nan) for _ in range(2))
    chosen = np.flatnonzero(enough)
    if not len(chosen):
        return low, high
    draws = int(np.clip(_EFFORT // (len(chosen) * len(wide.names)), *_DRAWS))
    groups = _by_sessions(wide, enough, draws)
    step = max(1, _CHUNK // draws)
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    for start in range(0, len(chosen), step):
        rows = chosen[start : start + step]
        total = np.zeros((len(rows), draws), dtype=np.float32)
        for place, members, deviations, resamples in groups:
            first, last = np.searchsorted(members, [rows[0], rows[-1] + 1])
            mine = members[first:last]
            factor = np.exp((deviations[first:last] @ resamples).astype(np.float32))
            total[np.searchsorted(rows, mine)] += factor * inverse[mine, place, None].astype(np.float32)
        count = (~np.isnan(inverse[rows])).sum(axis=1)
        low[rows], high[rows] = np.quantile(count[:, None] / total, tails, axis=1)
    return low, high


def _by_sessions(wide: FoldedTable, enough: Truths, draws: int) -> list[tuple[int, Places, Floats, Floats]]:
    """Per GPU and number of sessions: its place, the keys that have it, their deviations, and resampling weights.

    Deviations are keys × sessions, logarithms minus their mean and stretched; weights are sessions × draws.
    """
    frame = pl.DataFrame(
        {"row": wide.row, "place": wide.column, "sessions": wide.table["sessions"], "logs": wide.table["logs"]}
    ).filter(pl.Series(enough[wide.row]) & wide.table["efficiency"].is_not_null())
    expected = normal_quantile()
    found = []
    for (place, sessions), group in frame.sort("row").group_by(["place", "sessions"], maintain_order=True):
        count = int(str(sessions))
        logs = group["logs"].explode().to_numpy().reshape(-1, count)
        stretch = np.sqrt(count / (count - 1)) * t_quantile(count - 1) / expected
        generator = np.random.default_rng([_SEED, int(str(place)), count])
        weights = generator.multinomial(count, np.full(count, 1 / count), size=draws).T / count
        deviations = (logs - logs.mean(axis=1, keepdims=True)) * stretch
        found.append((int(str(place)), group["row"].to_numpy(), deviations, weights))
    return found


_WHY_BOTH: Final = (
    "PP is 0 as soon as one GPU fails, and is drawn to the slowest; the arithmetic mean leaves failures out, so that "
    "it praises what runs well on one GPU and nowhere else. Read both beside coverage."
)

_MEANINGS: Final[Mapping[str, str]] = {
    "platforms": "GPUs in the platform set of this row: declared, less those where it is known not to run",
    "passed": "GPUs on which it passes",
    "failed": "GPUs on which it fails by its own fault",
    "missing": "GPUs of which nothing is known: the machine or the problem failed, or there is no cell",
    "coverage": "passed ÷ (passed + failed)",
    "pp": "|H| ÷ Σ 1/efficiency; 0 where one GPU fails; null where none fails and one is missing or has no efficiency; "
    + _PP,
    "pp_low": "lower bound of the 95 % interval of pp, by resampling sessions (Hesterberg 2015, expanded percentiles)",
    "pp_high": "upper bound of it",
    "pp_supported": "the harmonic mean of efficiency over the GPUs that pass and have one",
    "arithmetic": "mean efficiency over the GPUs that pass, 0 where none does; null where one is missing; "
    "Marowka, Software: Practice and Experience 2021, doi 10.1002/spe.3002",
    "worst": "the least efficiency of the GPUs that are known, 0 for one that fails",
    "worst_gpu": "where that is",
    "geometric_mean": "of efficiency over the GPUs that pass",
    "max_over_min": "the greatest efficiency ÷ the least, over the GPUs that pass: it grows with their number",
    "pp_architectural": "as pp, of the share of the roofline instead (Williams, Waterman and Patterson 2009)",
    "above_peak": "GPUs whose share of the roofline is above 1, which cannot be: they have no architectural efficiency",
}


def _main(rows: pl.DataFrame, scene: _Scene, notes: Sequence[str]) -> Answer:
    columns = (
        *scene.keys,
        *("coverage", "pp", "pp_low", "pp_high", "worst", "worst_gpu", "arithmetic", "pp_supported"),
        *("geometric_mean", "max_over_min", "pp_architectural", "above_peak"),
        *("platforms", "passed", "failed", "missing", "failed_on", "missing_on", "excluded_on"),
        *_DESCRIBING,
    )
    return Answer(
        name="portability",
        title="Performance portability of each candidate",
        table=rows.select(columns),
        meanings=_MEANINGS,
        notes=(
            *notes,
            _WHY_BOTH,
        ),
    )


def _notes(rows: pl.DataFrame) -> list[str]:
    def count(condition: pl.Expr) -> int:
        return rows.filter(condition).height

    unknown = count(pl.col("pp").is_null() & (pl.col("missing") > 0))
    without = count(pl.col("pp").is_null() & (pl.col("missing") == 0) & (pl.col("platforms") > 0))
    outside = count(pl.col("excluded_on") != "")
    nowhere = count(pl.col("platforms") == 0)
    above = int(rows["above_peak"].sum())
    told = [
        (unknown, "rows have no PP because a GPU is missing (see `missing_on`)."),
        (without, "rows have no PP because a GPU where they pass has no efficiency."),
        (outside, "rows have GPUs outside of their platform set, known beforehand not to run (see `excluded_on`)."),
        (nowhere, "rows are excluded on every GPU."),
        (above, "cells reach more than their peak, which cannot be: they are left out of architectural efficiency."),
    ]
    return [f"{number} {what}" for number, what in told if number]


def _by_method(rows: pl.DataFrame, by: Sequence[str]) -> Answer:
    pp = pl.col("pp")
    table = (
        rows.group_by(by)
        .agg(
            pp.count().cast(pl.Int64).alias("rows"),
            pl.col("problem").filter(pp.is_not_null()).n_unique().cast(pl.Int64).alias("problems"),
            pp.null_count().cast(pl.Int64).alias("unknown"),
            *(pp.quantile(share, "linear").alias(name) for name, share in _QUARTILES.items()),
            (pp == 0).mean().alias("zeros"),
            pp.filter(pp > 0).median().alias("median_above_zero"),
            pl.col("coverage").mean().alias("mean_coverage"),
        )
        .sort(by)
    )
    unknown = int(table["unknown"].sum())
    notes = [f"{unknown} rows without a PP are in no share and no quartile."] if unknown else []
    if table.select(pl.any_horizontal(pl.col(by).is_null())).to_series().any():
        notes.append(f"Rows whose {' or '.join(by)} is not recorded are together in a row of their own.")
    return Answer(
        name="by_method",
        title="Performance portability over problems",
        table=table,
        meanings={
            "rows": "candidates × problems × dtypes × workloads with a PP",
            "problems": "problems among them",
            "unknown": "such rows without a PP",
            **{name: f"{share:.0%} quantile of PP" for name, share in _QUARTILES.items()},
            "zeros": "share of rows whose PP is 0",
            "median_above_zero": "median of the others",
            "mean_coverage": "mean share of GPUs that pass",
        },
        notes=notes,
    )


_QUARTILES: Final = {"first_quartile": 0.25, "median": 0.5, "third_quartile": 0.75}


def _cascade(scene: _Scene) -> Answer:
    """Efficiencies in falling order with PP over the platforms so far (Pennycook et al., P3HPC 2020)."""
    keys = list(scene.keys)
    shown = scene.table.filter((_PASSED & pl.col("efficiency").is_not_null()) | _FAILED)
    table = (
        shown.lazy()
        .select(*keys, "gpu", "standing", "status", "candidate_ns", efficiency=pl.col("efficiency").fill_null(0.0))
        .sort(*keys, "efficiency", "gpu", descending=[*(False for _ in keys), True, False])
        .with_columns(
            place=pl.int_range(1, pl.len() + 1).over(keys), _sum=(1 / pl.col("efficiency")).cum_sum().over(keys)
        )
        .with_columns(running_pp=pl.col("place") / pl.col("_sum"))
        .drop("_sum")
        .collect()
    )
    left = scene.table.height - shown.height
    return Answer(
        name="cascade",
        title="Efficiencies in falling order, with PP over the platforms so far",
        table=table,
        meanings={
            "place": "1 for the GPU where the candidate is most efficient",
            "efficiency": "best-known time ÷ the candidate's; 0 where it fails",
            "running_pp": "place ÷ Σ 1/efficiency up to here; 0 from the first GPU that fails",
            "candidate_ns": "geometric mean over sessions of their medians, nanoseconds",
        },
        notes=[f"{left} cells that are excluded, not known or without efficiency are left out."] if left else [],
    )


def _spread(scene: _Scene) -> Answer:
    log = pl.col("speedup").log()
    usable = scene.table.filter(_PASSED & (pl.col("speedup") > 0) & pl.col("speedup").is_finite())
    gpu, deviation = pl.col("gpu"), pl.col("sd_log_speedup")
    every = (
        usable.lazy()
        .group_by(scene.keys)
        .agg(
            pl.len().cast(pl.Int64).alias("gpus"),
            log.mean().exp().alias("geometric_mean"),
            log.std().alias("sd_log_speedup"),
            (log.max() - log.min()).exp().alias("max_over_min"),
            gpu.get(log.arg_max()).alias("most_on"),
            gpu.get(log.arg_min()).alias("least_on"),
        )
        .collect()
    )
    table = (
        every.filter(pl.col("gpus") > 1)
        .with_columns(gcv=((deviation**2).exp() - 1).sqrt())
        .select(*scene.keys, "gpus", "geometric_mean", "sd_log_speedup", "gcv", "max_over_min", "most_on", "least_on")
        .sort(scene.keys)
    )
    alone, without = every.height - table.height, scene.table.filter(_PASSED).height - usable.height
    notes = [f"{alone} rows with a speed-up on one GPU only have no spread."] if alone else []
    if without:
        notes.append(f"{without} cells passed without a speed-up, since no baseline was timed beside them.")
    return Answer(
        name="spread",
        title="Spread of speed-ups between GPUs",
        table=table,
        meanings={
            "gpus": "GPUs with a speed-up",
            "geometric_mean": "of the speed-up over them",
            "sd_log_speedup": "sample standard deviation of its natural logarithm",
            "gcv": "geometric coefficient of variation, √(exp(sd²) − 1) (Kirkwood, Biometrics 35, 1979)",
            "max_over_min": "greatest speed-up ÷ least: grows with the number of GPUs even where nothing differs",
            "most_on": "the GPU of the greatest speed-up",
            "least_on": "the GPU of the least",
        },
        notes=notes,
    )


def _architecture(scene: _Scene) -> Answer:
    names = {"flops_share_of_peak": "mfu", "bytes_share_of_peak": "bandwidth", "share_of_peak": "roofline"}
    group = ("gpu", "dtype") if "toolchain" not in scene.keys else ("gpu", "toolchain", "dtype")
    passed = scene.table.filter(_PASSED)
    believable = {name: pl.col(column).filter(_believable(column)) for column, name in names.items()}
    table = (
        passed.group_by(group)
        .agg(
            pl.len().cast(pl.Int64).alias("cells"),
            *(share.len().cast(pl.Int64).alias(f"{name}_cells") for name, share in believable.items()),
            *(share.median().alias(f"{name}_median") for name, share in believable.items()),
            *((pl.col(column) > 1).sum().cast(pl.Int64).alias(f"{name}_above_1") for column, name in names.items()),
        )
        .sort(group)
    )
    words = {
        "mfu": "FLOP ÷ (time × the dtype's peak FLOP/s) (Chowdhery et al., PaLM, 2022)",
        "bandwidth": "bytes that must move ÷ (time × peak bytes/s)",
        "roofline": "time at the roofline ÷ time (Williams, Waterman and Patterson, 2009)",
    }
    above = int(table.select(pl.sum_horizontal(pl.sum(f"{name}_above_1") for name in words)).item() or 0)
    notes = (
        [f"{above} shares above 1 are in no median: a wrong count or peak, or work that was not done."] if above else []
    )
    if passed.height and not int(table["roofline_cells"].sum()):
        notes.append("No cell has a share of its peak: the problems give no FLOP or bytes, or the peaks are not known.")
    return Answer(
        name="architecture",
        title="Share of what the hardware can do",
        table=table,
        meanings={
            "cells": "cells that pass",
            **{f"{name}_cells": "of them, with a share between 0 and 1" for name in words},
            **{f"{name}_median": f"median of {what}" for name, what in words.items()},
            **{f"{name}_above_1": "cells with a share above 1: flagged, not averaged" for name in words},
        },
        notes=notes,
    )


def _verdicts(rows: pl.DataFrame, scene: _Scene) -> list[Answer]:
    wide = fold(scene.table, "gpu", scene.platforms, scene.keys)
    passed = wide.stands(Standing.PASSED).astype(np.float64)
    failed = wide.stands(Standing.FAILED).astype(np.float64)
    counts = {
        "both_pass": passed.T @ passed,
        "passes_fails": passed.T @ failed,
        "fails_passes": failed.T @ passed,
        "both_fail": failed.T @ failed,
    }
    first, second = np.triu_indices(len(wide.names), 1)
    pairs = pl.DataFrame(
        {
            "gpu": pl.Series([wide.names[place] for place in first], dtype=pl.String),
            "other": pl.Series([wide.names[place] for place in second], dtype=pl.String),
            **{name: pl.Series(matrix[first, second]).cast(pl.Int64) for name, matrix in counts.items()},
        }
    ).with_columns(cells=pl.sum_horizontal(*counts))
    differing = pl.col("passes_fails") + pl.col("fails_passes")
    pairs = pairs.with_columns(differ=pl.when(pl.col("cells") > 0).then(differing / pl.col("cells")))
    return [
        Answer(
            name="verdicts",
            title="Pairs of GPUs on which verdicts differ",
            table=pairs,
            meanings={
                "both_pass": "cells that pass on both",
                "passes_fails": "that pass on `gpu` and fail on `other`, by the candidate's fault",
                "fails_passes": "the other way round",
                "both_fail": "that fail on both",
                "cells": "cells with an answer from both",
                "differ": "share of them whose verdicts differ",
            },
            notes=() if len(wide.names) > 1 else ("There is one GPU, so that there is no pair.",),
        ),
        _differing(rows, scene),
    ]


def _differing(rows: pl.DataFrame, scene: _Scene) -> Answer:
    keys = list(scene.keys)
    mixed = rows.filter((pl.col("passed") > 0) & (pl.col("failed") > 0)).select(keys)
    table = (
        scene.table.lazy()
        .join(mixed.lazy(), on=keys, how="semi", nulls_equal=True)
        .group_by(keys)
        .agg(
            pl.col("gpu").filter(_PASSED).sort().str.join(", ").alias("passes_on"),
            sentence("{}: {}", "gpu", pl.col("status").cast(pl.String))
            .filter(_FAILED)
            .sort()
            .str.join(", ")
            .alias("fails_on"),
        )
        .sort(keys)
        .collect()
    )
    return Answer(
        name="verdict_cells",
        title="What passes on one GPU and fails on another",
        table=table,
        meanings={"passes_on": "GPUs on which it passes", "fails_on": "GPUs on which it fails, and how"},
    )
