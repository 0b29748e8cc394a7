"""Portability of kernels over a set of GPUs: coverage, performance portability, spread, and differing verdicts.

The *platform set* H is the GPUs that the request names, or all in the tables. A GPU on which a cell is unsupported for
a reason known beforehand is outside of H for that row, and listed. A GPU where the candidate fails by its own fault is
inside, with efficiency 0. A GPU with an infrastructure failure or no cell is inside and unknown. Toolchains are kept
apart unless each GPU has only one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.bestknown import DISTANCE, read, with_efficiency, with_own_efficiency
from kernel_matrix.analysis.quantiles import of_degrees
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.standings import (
    FACTS,
    Standing,
    chosen_gpus,
    fold,
    gpus_in,
    one_toolchain_per_gpu,
    slice_columns,
    standings,
)
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import UsageError

_SUBJECT: Final = ("problem", "ranks", "dtype", "workload", "candidate")
_PLATFORM_SLICES: Final = ("gpu", "toolchain")
_DESCRIBING: Final = tuple(name for name in FACTS if not name.endswith("sha256"))

_PASSED: Final = pl.col("standing") == Standing.PASSED.value
_FAILED: Final = pl.col("standing") == Standing.FAILED.value
_EXCLUDED: Final = pl.col("standing") == Standing.EXCLUDED.value

_PP: Final = "Pennycook, Sewall and Lee, A Metric for Performance Portability, 2016, arXiv 1611.07409"


@dataclass(frozen=True, slots=True)
class _Scene:
    """Data that all tables of the answer share."""

    table: pl.DataFrame
    """Standings on the platform set, with ``efficiency`` and ``architectural``."""
    platforms: tuple[str, ...]
    keys: tuple[str, ...]
    """Columns that name a row of the portability table."""


def portability(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Answer ``portability``, ``by_method``, ``cascade``, ``spread``, ``architecture`` and the two about verdicts.

    ``request.by`` slices ``by_method``; by candidates' method if it is empty.

    Raises:
        NothingSelectedError: No cell is on one of the platforms.
        UsageError: A slice separates platforms or hosts.
        StoreError: The table of best-known times is invalid.
    """
    by = _method_columns(request)
    found = standings(tables.cells)
    platforms, notes = _platform_set(found.table, request)
    here = found.table.filter(pl.col("gpu").is_in(platforms))
    frozen = None if request.best_known is None else read(request.best_known)
    own = frozen is None
    efficient = with_own_efficiency(here) if frozen is None else with_efficiency(here, frozen)
    keys = _SUBJECT if one_toolchain_per_gpu(here) else (*_SUBJECT, "toolchain")
    scene = _Scene(_with_architectural(efficient.table), platforms, keys)
    notes = [*found.notes, *notes, *efficient.notes]
    if own:
        notes.append(
            "The best-known times come from these tables, so efficiencies change with every added candidate; freeze a "
            "table of best-known times to compare with other days."
        )
    rows = _with_intervals(_rows(scene), own=own)
    return [
        _main(rows, scene, [*notes, *_about_intervals(rows, own=own), *_notes(rows)]),
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
            f"portability compares GPUs and toolchains and cannot be sliced by {wrong[0]!r}",
            next_step="Slice by method, model, category, level, source, problem or dtype.",
        )
    return slice_columns(request.by or ("method",), "portability")


def _platform_set(table: pl.DataFrame, request: QuestionOptions) -> tuple[tuple[str, ...], list[str]]:
    """Determine the platform set in order of its names; also returns notes about it."""
    seen, nameless = gpus_in(table)
    platforms = tuple(sorted(set(request.platforms) or seen))
    present, _ = chosen_gpus(table, platforms)
    absent = sorted(set(platforms) - set(present))
    notes = [f"The platform set is {', '.join(platforms)}.", *nameless]
    if absent:
        notes.append(f"No cell ran on {', '.join(absent)}: candidates that pass elsewhere have no PP.")
    others = sorted(set(seen) - set(platforms))
    if others:
        notes.append(f"Cells on {', '.join(others)} are outside of the platform set and left out.")
    if len(platforms) == 1:
        notes.append("The platform set is one GPU: these numbers do not describe portability.")
    return platforms, notes


def _with_architectural(table: pl.DataFrame) -> pl.DataFrame:
    share = pl.col("share_of_peak")
    believable = _PASSED & _believable("share_of_peak")
    return table.with_columns(architectural=pl.when(believable).then(share), above_peak=_PASSED & (share > 1))


def _believable(share: str) -> pl.Expr:
    """Return True for possible shares of a peak: above 0 and at most 1."""
    return (pl.col(share) > 0) & (pl.col(share) <= 1)


def _rows(scene: _Scene) -> pl.DataFrame:
    """Compute one row per subject, without intervals."""
    size = len(scene.platforms)
    e, named = pl.col("efficiency"), pl.col("gpu")
    behind, error, degrees = (pl.col(name).filter(e.is_not_null()) for name in DISTANCE)
    ratio = behind.exp()
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
            named.filter(_PASSED | _FAILED | _EXCLUDED).alias("_known_on"),
            e.count().cast(pl.Int64).alias("_measured"),
            (1 / e).sum().alias("_inverse"),
            ratio.sum().alias("_ratios"),
            error.count().cast(pl.Int64).alias("_with_error"),
            ((ratio * error) ** 2).sum().alias("_variance"),
            ((ratio * error) ** 4 / degrees).sum().alias("_squares"),
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
            missing_on=pl.lit(list(scene.platforms), pl.List(pl.String)).list.set_difference("_known_on"),
        )
        .with_columns(pl.col("missing_on", "failed_on", "excluded_on").list.sort().list.join(", "))
        .sort(scene.keys)
        .collect()
    )


def _harmonic(complete: pl.Expr, inverse: str) -> pl.Expr:
    """Compute the harmonic mean over all platforms from the sum of inverse efficiencies; 0 where one fails."""
    return (
        pl.when(pl.col("failed") > 0)
        .then(0.0)
        .when(complete & (pl.col("platforms") > 0))
        .then(pl.col("platforms") / pl.col(inverse))
    )


def _with_intervals(rows: pl.DataFrame, *, own: bool) -> pl.DataFrame:
    """Add ``pp_low`` and ``pp_high``: Student's interval of log PP, whose error is a weighted mean of those of GPUs.

    Args:
        rows: Rows with the sums over GPUs that :func:`_rows` makes.
        own: True if the best-known times are those of the same tables, which no candidate exceeds.
    """
    deviation = pl.col("_variance").sqrt() / pl.col("_ratios")
    degrees = pl.col("_variance") ** 2 / pl.col("_squares")
    # No variance: the candidate is the fastest on every GPU for sure.
    reach = pl.when(pl.col("_variance") > 0).then(of_degrees(degrees) * deviation).otherwise(0.0)
    middle = pl.col("_measured") / pl.col("_ratios")
    shown = (pl.col("pp") > 0) & (pl.col("_with_error") == pl.col("_measured"))
    most = 1.0 if own else None
    bounds = {"pp_low": middle * (-reach).exp(), "pp_high": middle * reach.exp()}
    return rows.with_columns(
        pl.when(shown).then(bound.clip(upper_bound=most) if own else bound).alias(name)
        for name, bound in bounds.items()
    )


def _about_intervals(rows: pl.DataFrame, *, own: bool) -> list[str]:
    """Write notes on the intervals of PP."""
    exact = "take the frozen best-known times as exact"
    both = "contain the noise of the candidate's times and of the best-known ones"
    notes = [f"Intervals of PP {both if own else exact}; a PP of 0 has none, since no session changes it."]
    without = rows.filter((pl.col("pp") > 0) & pl.col("pp_low").is_null()).height
    if without:
        notes.append(
            f"{without} values of PP have no interval: the noise of a time in them is unknown (it takes three sessions "
            "per cell, or two in 20 cells or more), or one of the fastest is so much noisier than the others that the "
            "best-known time is uncertain."
        )
    return notes


_WHY_BOTH: Final = (
    "PP is 0 if one GPU fails, and is dominated by the slowest; the arithmetic mean leaves failures out, so it is high "
    "for a candidate that runs well on one GPU only. Read both together with coverage."
)

_MEANINGS: Final[Mapping[str, str]] = {
    "platforms": "GPUs in the platform set of this row, without those where it is known not to run",
    "passed": "GPUs on which it passes",
    "failed": "GPUs on which it fails by its own fault",
    "missing": "GPUs with an unknown result: the machine or the problem failed, or there is no cell",
    "coverage": "passed ÷ (passed + failed)",
    "pp": "|H| ÷ Σ 1/efficiency; 0 where one GPU fails; null where none fails and one is missing or has no efficiency; "
    + _PP,
    "pp_low": "lower bound of the 95 % interval of pp, from the noise of times; null where it is not known well enough",
    "pp_high": "upper bound of it",
    "pp_supported": "the harmonic mean of efficiency over the GPUs that pass and have one",
    "arithmetic": "mean efficiency over the GPUs that pass, 0 where none does; null where one is missing; "
    "Marowka, Software: Practice and Experience 2021, doi 10.1002/spe.3002",
    "worst": "the least efficiency over the GPUs with a known result, 0 for one that fails",
    "worst_gpu": "the GPU of the least efficiency",
    "geometric_mean": "of efficiency over the GPUs that pass",
    "max_over_min": "the greatest efficiency ÷ the least, over the GPUs that pass; it grows with their number",
    "pp_architectural": "as pp, of the share of the roofline instead (Williams, Waterman and Patterson 2009)",
    "above_peak": "GPUs with a share of the roofline above 1, which is impossible: no architectural efficiency",
}


def _main(rows: pl.DataFrame, scene: _Scene, notes: Sequence[str]) -> Answer:
    columns = (
        *scene.keys,
        "coverage", "pp", "pp_low", "pp_high", "worst", "worst_gpu", "arithmetic", "pp_supported",
        "geometric_mean", "max_over_min", "pp_architectural", "above_peak",
        "platforms", "passed", "failed", "missing", "failed_on", "missing_on", "excluded_on",
        *_DESCRIBING,
    )  # fmt: skip
    return Answer(
        name="portability",
        title="Performance portability of each candidate",
        table=rows.select(columns),
        meanings=_MEANINGS,
        notes=[*notes, _WHY_BOTH],
    )


def _notes(rows: pl.DataFrame) -> list[str]:
    without_pp, missing = pl.col("pp").is_null(), pl.col("missing") > 0
    no_efficiency = without_pp & ~missing & (pl.col("platforms") > 0)
    counts = [
        ((without_pp & missing).sum(), "rows have no PP because a GPU is missing (see `missing_on`)."),
        (no_efficiency.sum(), "rows have no PP because a GPU where they pass has no efficiency."),
        ((pl.col("excluded_on") != "").sum(), "rows have GPUs known beforehand not to run (see `excluded_on`)."),
        ((pl.col("platforms") == 0).sum(), "rows are excluded on every GPU."),
        (pl.col("above_peak").sum(), "cells are above their peak, which is impossible: no architectural efficiency."),
    ]
    numbers = rows.select(count.alias(note) for count, note in counts).row(0, named=True)
    return [f"{number} {note}" for note, number in numbers.items() if number]


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
        notes.append(f"Rows whose {' or '.join(by)} is not recorded share one row.")
    return Answer(
        name="by_method",
        title="Performance portability over problems",
        table=table,
        meanings={
            "rows": "candidates × problems × dtypes × workloads with a PP",
            "problems": "problems among them",
            "unknown": "the same without a PP",
            **{name: f"{share:.0%} quantile of PP" for name, share in _QUARTILES.items()},
            "zeros": "share of rows whose PP is 0",
            "median_above_zero": "median of the others",
            "mean_coverage": "mean share of GPUs that pass",
        },
        notes=notes,
    )


_QUARTILES: Final = {"first_quartile": 0.25, "median": 0.5, "third_quartile": 0.75}


def _cascade(scene: _Scene) -> Answer:
    """Sort efficiencies in falling order, with PP over the platforms so far (Pennycook et al., P3HPC 2020)."""
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
        notes=[f"{left} cells that are excluded, unknown or without efficiency are left out."] if left else [],
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
        notes.append(f"{without} cells passed without a speed-up, since no baseline was timed with them.")
    return Answer(
        name="spread",
        title="Spread of speed-ups between GPUs",
        table=table,
        meanings={
            "gpus": "GPUs with a speed-up",
            "geometric_mean": "of the speed-up over them",
            "sd_log_speedup": "sample standard deviation of its natural logarithm",
            "gcv": "geometric coefficient of variation, √(exp(sd²) − 1) (Kirkwood, Biometrics 35, 1979)",
            "max_over_min": "greatest speed-up ÷ least; it grows with the number of GPUs by noise alone",
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
    cause = "a wrong count of work, a wrong peak, or work that was not done"
    notes = [f"{above} shares above 1 are in no median: {cause}."] if above else []
    if passed.height and not int(table["roofline_cells"].sum()):
        notes.append("No cell has a share of its peak: the problems give no FLOP or bytes, or the peaks are unknown.")
    return Answer(
        name="architecture",
        title="Share of the hardware's peak",
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
            title="Pairs of GPUs: how often verdicts differ",
            table=pairs,
            meanings={
                "both_pass": "cells that pass on both",
                "passes_fails": "cells that pass on `gpu` and fail on `other`, by the candidate's fault",
                "fails_passes": "cells that fail on `gpu` and pass on `other`",
                "both_fail": "cells that fail on both",
                "cells": "cells with a result on both",
                "differ": "share of them whose verdicts differ",
            },
            notes=() if len(wide.names) > 1 else ("There is only one GPU, so there is no pair.",),
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
        title="Cells that pass on one GPU and fail on another",
        table=table,
        meanings={"passes_on": "GPUs on which it passes", "fails_on": "GPUs on which it fails, with the status"},
    )
