"""Changes from night to night: steps, slow drift, and changes of the environment.

A *series* is one cell on one unit: per night, the median over sessions of the log of the speed-up, the candidate's
time and the baseline's. It is cut into *stretches* where driver, image or source changed, since such a change is no
finding about the code. Steps and slopes are searched within stretches only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import fdtrc, ndtr, ndtri  # type: ignore[import-untyped]

from kernel_matrix.analysis.differences import benjamini_hochberg
from kernel_matrix.analysis.outcomes import CELL_KEY, sessions
from kernel_matrix.analysis.quantiles import normal_quantile
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.analysis.timed_sessions import log_of
from kernel_matrix.errors import NothingSelectedError
from kernel_matrix.measure.intervals import t_quantile

Array = NDArray[np.float64]
Places = NDArray[np.int64]

ERROR: Final = 0.01
"""False discovery rate of steps and slopes over all series (Benjamini and Hochberg, J. R. Stat. Soc. B 57, 1995)."""
FEWEST_NIGHTS: Final = 10
"""Nights of a stretch that is searched for steps; fewer give too few permutations for a small p."""
FEWEST_FOR_SLOPE: Final = 8
"""Nights of a piece that is searched for a slope."""
TOGETHER: Final = 0.3
"""Share of series that step the same way in one night from which the environment is the likely cause."""

_SIDE: Final = 3
"""Fewest nights on either side of a step, so that a single outlying night is not a step."""
_FEWEST_PAIRS: Final = 500
"""Pairs of neighbouring nights, over all series, needed to estimate correlation."""
_PERMUTATIONS: Final = 299
"""p values are multiples of 1/300, so that three of them are within :data:`ERROR`."""
_SEED: Final = 20260301
"""Fixed, so that the same tables give the same answer."""
_AT_ONCE: Final = 8_000_000
"""Numbers held in memory while permuting or comparing pairs."""
_OF: Final = {"speedup": "speedup", "candidate": "candidate_median_ns", "baseline": "baseline_median_ns"}
"""Measure → its column."""
_ENVIRONMENT: Final = {
    "driver": "driver",
    "image": "image_id",
    "unit": "gpu_uuid",
    "candidate's source": "candidate_sha256",
    "problem's source": "problem_sha256",
}
"""Fact of the environment → its column."""
_CUTS: Final = tuple(column for column in _ENVIRONMENT.values() if column != "gpu_uuid")
"""Columns that cut a series; a series has one unit."""
_MONTH: Final = 30
"""Days."""


def drift(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Find steps and slow drift over nights and changes of the environment; also returns the series.

    Raises:
        NothingSelectedError: No session passed and was timed on a known night.
    """
    nights = _nights(tables.cells)
    values = _values(nights)
    stretches = _stretches(values)
    found = find_changes(
        values["value"].to_numpy(), stretches["start"].to_numpy(), stretches["nights"].to_numpy(), seed=_SEED
    )
    steps = _steps(values, stretches, found, request.margin)
    names = nights.select("series", *CELL_KEY, "gpu_uuid").unique("series")
    return [
        _steps_answer(steps, names, values, stretches, found),
        _slopes(names, values, stretches, found),
        _environment(nights),
        _series(nights),
    ]


def _nights(cells: pl.LazyFrame) -> pl.DataFrame:
    """Make one row per series, night and environment, in order; ``stretch`` numbers the stretches."""
    where = [*CELL_KEY, "gpu_uuid", "host_id"]
    medians = [log_of(pl.col(name)).median().alias(f"log_{of}") for of, name in _OF.items()]
    found = (
        sessions(cells)
        .group_by(*where, "night", *_CUTS)
        .agg(*medians, pl.len().cast(pl.Int32).alias("sessions"), pl.col("started_at").min())
        .filter(pl.col("log_candidate").is_not_null() & pl.col("night").is_not_null())
        .sort(*where, "night", "started_at", nulls_last=True)
        .collect()
    )
    if found.is_empty():
        raise NothingSelectedError(
            "no session passed and was timed on a known night",
            next_step="Run `kernel-matrix nightly` for some nights, merge, and ask again.",
        )
    numbered = found.select(where).unique(maintain_order=True).with_row_index("series")
    found = found.join(numbered, on=where, nulls_equal=True, maintain_order="left")
    cut = pl.any_horizontal(pl.col(name).ne_missing(pl.col(name).shift()) for name in _CUTS)
    begins = (pl.col("series") != pl.col("series").shift()).fill_null(value=True) | cut
    return found.with_columns(begins.cum_sum().alias("stretch"))


def _values(nights: pl.DataFrame) -> pl.DataFrame:
    """Stack the series of all measures: ``of``, ``series``, ``stretch``, ``night``, ``value``."""
    parts = [
        nights.select(pl.lit(of).alias("of"), "series", "stretch", "night", pl.col(f"log_{of}").alias("value"))
        for of in _OF
    ]
    return pl.concat(parts).drop_nulls("value")


def _stretches(values: pl.DataFrame) -> pl.DataFrame:
    """Locate each stretch in ``values``: its ``start`` and its number of ``nights``."""
    return (
        values.with_row_index("row")
        .group_by("of", "series", "stretch", maintain_order=True)
        .agg(pl.col("row").min().cast(pl.Int64).alias("start"), pl.len().cast(pl.Int64).alias("nights"))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoints:
    """The steps found, and how they were tested."""

    stretches: Places
    """Number of the stretch of each step."""
    places: Places
    """Place in the values of the first night after each step."""
    p: Array
    """Probability that noise alone shows such a step anywhere in the piece it was found in."""
    q: Array
    """p adjusted for all pieces that were tested in its round."""
    tested: int
    """Stretches that were long enough."""
    correlation: float
    """Correlation of neighbouring nights, over all series; 0 if not significant."""

    @property
    def inflation(self) -> float:
        """Factor by which correlation of neighbouring nights raises the variance of a mean of many nights."""
        return _inflation(self.correlation)


def _inflation(correlation: float) -> float:
    return (1 + correlation) / (1 - correlation)


def find_changes(values: Array, starts: Places, lengths: Places, *, seed: int) -> ChangePoints:
    """Find steps in the mean of each stretch by binary segmentation (Vostrikova, Soviet Mathematics Doklady 24, 1981).

    A piece is split where the two sides differ most, by Student's t. Its p is bounded as in :func:`chance_of`, and a
    permutation test has to agree, since noise need not be normal. A piece that a straight line explains better is slow
    drift, not a step. A short excursion within a long piece is found only if it is large, since a single split fits it
    badly. A step counts if its q is at most :data:`ERROR` over all pieces of its round: first all stretches, then both
    sides of every step (Yekutieli, *Hierarchical false discovery rate*, J. Am. Stat. Assoc. 103, 2008).

    ``values`` are logarithms, one stretch after the other; ``starts`` and ``lengths`` locate the stretches in them.
    """
    enough = np.flatnonzero(lengths >= FEWEST_NIGHTS)
    rng = np.random.default_rng(seed)
    correlation = _correlation(values, starts[enough], lengths[enough])
    stretch, begin, size = enough, starts[enough], lengths[enough]
    kept: list[tuple[Places, Places, Array, Array]] = []
    while len(stretch):
        split, p = _test(values, begin, size, _inflation(correlation), rng=rng)
        q = benjamini_hochberg(p)
        found = q <= ERROR
        stretch, begin, size, split = stretch[found], begin[found], size[found], split[found]
        kept.append((stretch, begin + split, p[found], q[found]))
        stretch = np.tile(stretch, 2)
        begin, size = np.concatenate([begin, begin + split]), np.concatenate([split, size - split])
        long = size >= FEWEST_NIGHTS
        stretch, begin, size = stretch[long], begin[long], size[long]
    none = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
    which, places, chances, rates = (np.concatenate(each) for each in zip(none, *kept, strict=True))
    return ChangePoints(stretches=which, places=places, p=chances, q=rates, tested=len(enough), correlation=correlation)


def _test(
    values: Array, begin: Places, size: Places, inflation: float, *, rng: np.random.Generator
) -> tuple[Places, Array]:
    """Find the best split of each piece (its nights before), and the p value of a step there."""
    split, chance = np.zeros(len(begin), dtype=np.int64), np.ones(len(begin))
    for nights in np.unique(size):
        rows = np.flatnonzero(size == nights)
        order = np.argsort(rng.random((_PERMUTATIONS, nights)), axis=1)
        for some in np.array_split(rows, 1 + len(rows) * nights * 4 // _AT_ONCE):
            pieces = values[begin[some, None] + np.arange(nights)]
            pieces = pieces - pieces.mean(axis=1, keepdims=True)
            split[some], explained = _best_split(pieces)
            chance[some] = chance_of(explained, int(nights), inflation)
        likely = rows[chance[rows] <= ERROR]
        for some in np.array_split(likely, 1 + len(likely) * _PERMUTATIONS * nights // _AT_ONCE):
            pieces = values[begin[some, None] + np.arange(nights)]
            pieces = pieces - pieces.mean(axis=1, keepdims=True)
            seen = _best_split(pieces)[1]
            shuffled = _best_split(pieces[:, order])[1]
            as_well = 1 + (shuffled >= seen[:, None] * (1 - 1e-12)).sum(axis=1)
            real = (as_well / (_PERMUTATIONS + 1) <= ERROR) & (_line_explains(pieces) < seen)
            chance[some] = np.where(real, chance[some], 1.0)
    return split, chance


def _line_explains(pieces: Array) -> Array:
    """Compute the share of each piece (with mean 0) that a straight line explains."""
    time = np.arange(pieces.shape[1]) - (pieces.shape[1] - 1) / 2
    total = (pieces**2).sum(axis=1)
    return np.asarray((pieces @ time) ** 2 / (time @ time) / np.where(total > 1e-20, total, np.inf))


def _best_split(pieces: Array) -> tuple[Places, Array]:
    """Find where two means explain most of each piece (with mean 0, shape (..., nights)), and the share explained."""
    nights = pieces.shape[-1]
    before = np.arange(_SIDE, nights - _SIDE + 1)
    sums = np.cumsum(pieces, axis=-1)[..., _SIDE - 1 : nights - _SIDE]
    explained = sums**2 * (nights / (before * (nights - before)))
    best = explained.argmax(axis=-1)
    most = np.take_along_axis(explained, best[..., None], axis=-1)[..., 0]
    total = (pieces**2).sum(axis=-1)
    return before[best], np.minimum(most / np.where(total > 1e-20, total, np.inf), 1.0)


def chance_of(explained: Array, nights: int, inflation: float = 1.0) -> Array:
    """Bound the probability that the best split of pure noise explains as much; the bound is close.

    Centred normal noise is a random direction on a sphere, and each split a point on it. A split explains more than a
    share w² if the direction lies within a cap around the point or its opposite. One cap has the probability of F; each
    further split adds at most its cap, or the strip on the way to it: arc / π · (1 − w²)^((nights − 3) / 2) (Naiman,
    Annals of Statistics 14, 1986, after Hotelling 1939). ``explained`` is the share of each piece, and ``inflation`` as
    in :class:`ChangePoints`.
    """
    with np.errstate(divide="ignore"):
        f = explained / (1 - explained) * (nights - 2) / inflation
    cap = fdtrc(1, nights - 2, np.minimum(f, 1e300))
    strip = (1 / (1 + f / (nights - 2))) ** ((nights - 3) / 2) / np.pi
    further = np.minimum(cap[:, None], strip[:, None] * _arcs(nights)).sum(axis=1)
    return np.asarray(np.minimum(cap + further, 1.0))


@lru_cache(maxsize=1024)
def _arcs(nights: int) -> Array:
    """Compute the angle between each split and the next."""
    k = np.arange(_SIDE, nights - _SIDE, dtype=np.float64)
    cosine = np.sqrt(k * (nights - k - 1) / ((k + 1) * (nights - k)))
    return np.asarray(np.arccos(np.minimum(cosine, 1.0)))


def _correlation(values: Array, starts: Places, lengths: Places) -> float:
    """Estimate the correlation of neighbouring nights; 0 if not significant.

    In first-order noise, differences between nights two apart have 1 + r times the variance of those between
    neighbours. Medians of their sizes, scaled per stretch and not across its best split, are robust against steps.
    """
    near, far = [], []
    for nights in np.unique(lengths):
        rows = np.flatnonzero(lengths == nights)
        for some in np.array_split(rows, 1 + len(rows) * nights * 4 // _AT_ONCE):
            pieces = values[starts[some, None] + np.arange(nights)]
            one, two = np.abs(pieces[:, 1:] - pieces[:, :-1]), np.abs(pieces[:, 2:] - pieces[:, :-2])
            split = _best_split(pieces - pieces.mean(axis=1, keepdims=True))[0][:, None]
            scale = np.median(one, axis=1, keepdims=True)
            within = (np.arange(1, nights) != split) & (scale > 1e-12)
            within_two = (np.abs(np.arange(2, nights) - split - 0.5) > 1) & (scale > 1e-12)
            scale = np.where(scale > 1e-12, scale, 1.0)
            near.append((one / scale)[within])
            far.append((two / scale)[within_two])
    count = sum(len(each) for each in near)
    if count < _FEWEST_PAIRS:
        return 0.0
    found = float((np.median(np.concatenate(far)) / np.median(np.concatenate(near))) ** 2 - 1)
    return min(found, 0.9) if found > 5 / np.sqrt(count) else 0.0


def _pieces(stretches: pl.DataFrame, found: ChangePoints) -> tuple[Places, Places, Places]:
    """Cut the stretches at steps; returns where each piece starts in the values, its nights, and its stretch."""
    stretch = np.concatenate([np.arange(stretches.height), found.stretches])
    begin = np.concatenate([stretches["start"].to_numpy(), found.places])
    order = np.argsort(begin)
    # Stretches follow each other without gaps, so a piece ends where the next one starts.
    size = np.diff(begin[order], append=int(stretches["nights"].sum()))
    return begin[order], size, stretch[order]


def _steps(values: pl.DataFrame, stretches: pl.DataFrame, found: ChangePoints, margin: float) -> pl.DataFrame:
    """Describe each step: its nights, its size with bounds, and its p and q."""
    begin, size, _stretch = _pieces(stretches, found)
    series = values["value"].to_numpy()
    centred = series - series.mean()
    sums = np.concatenate([[0.0], np.cumsum(centred)])
    mean = (sums[begin + size] - sums[begin]) / size
    squares = np.add.reduceat((centred - np.repeat(mean, size)) ** 2, begin)
    after = np.searchsorted(begin, found.places)
    before = after - 1
    degrees = size[after] + size[before] - 2
    error = np.sqrt(
        (squares[after] + squares[before]) / degrees * (1 / size[after] + 1 / size[before]) * found.inflation
    )
    shift, reach = mean[after] - mean[before], t_quantile(degrees) * error
    columns = {
        "of": stretches["of"].gather(found.stretches),
        "series": stretches["series"].gather(found.stretches),
        "night": values["night"].gather(found.places),
        "night_before": values["night"].gather(found.places - 1),
        "shift_percent": 100 * np.expm1(shift),
        "low_percent": 100 * np.expm1(shift - reach),
        "high_percent": 100 * np.expm1(shift + reach),
        "nights_before": size[before],
        "nights_after": size[after],
        "p": found.p,
        "q": found.q,
        "matters": np.abs(shift) > np.log1p(margin),
    }
    return pl.DataFrame(columns)


def _steps_answer(
    steps: pl.DataFrame, names: pl.DataFrame, values: pl.DataFrame, stretches: pl.DataFrame, found: ChangePoints
) -> Answer:
    short = stretches.height - found.tested
    tested = f"{found.tested} of {stretches.height} stretches of a measure were tested"
    notes = [f"{tested}; {short} have fewer than {FEWEST_NIGHTS} nights with one driver, image, unit and source."]
    if found.correlation:
        notes.append(f"Neighbouring nights are correlated ({found.correlation:.2f}); the tests allow for this.")
    return Answer(
        name="steps",
        title="Steps from one night to the next",
        table=names.join(steps, on="series").sort("q", "series", "of", "night"),
        meanings={
            "of": "Speed-up, the candidate's time, or the baseline's.",
            "night": "First night after the step.",
            "night_before": "Last night before it.",
            "shift_percent": "Mean after against mean before, up to the next step; 95 % t bounds beside it.",
            "p": "Probability that noise alone shows such a step somewhere in the piece (Naiman 1986).",
            "q": f"p adjusted over all pieces tested (Benjamini and Hochberg); steps with q up to {ERROR:g} are shown.",
            "matters": "True if the step is larger than the margin.",
        },
        notes=[*notes, *_moved_together(steps, values)],
    )


def _moved_together(steps: pl.DataFrame, values: pl.DataFrame) -> list[str]:
    """Write notes on nights in which so many series step the same way that the environment is the likely cause."""
    if steps.is_empty():
        return []
    there = values.group_by("of", "night").agg(pl.col("series").n_unique().alias("there"))
    up = (pl.col("shift_percent") > 0).alias("up")
    moved = steps.group_by("of", "night", up).agg(pl.col("series").n_unique().alias("moved"))
    many = moved.join(there, on=["of", "night"]).filter(
        (pl.col("moved") > TOGETHER * pl.col("there")) & (pl.col("there") >= 5)
    )
    return [
        f"On {row['night']} {row['moved']} of {row['there']} series of the {row['of']} step "
        f"{'up' if row['up'] else 'down'} together: an event of the environment, not of the code."
        for row in many.sort("night", "of").to_dicts()
    ]


def slopes(values: Array, days: Array) -> tuple[Array, Array, Array, Array]:
    """Compute the Theil–Sen slope of each row, its 95 % bounds, and the two-sided p of the Mann–Kendall test.

    The slope is the median of the slopes between all pairs of nights; bounds are the slopes of rank (N ∓ z · √V) / 2 of
    N pairs, with V the variance of Kendall's S (Sen, J. Am. Stat. Assoc. 63, 1968). ``values`` and ``days`` have the
    shape (m, nights); days rise along each row.
    """
    nights = values.shape[1]
    first, second = np.triu_indices(nights, 1)
    rise, run = values[:, second] - values[:, first], days[:, second] - days[:, first]
    pairs = rise.shape[1]
    each = np.sort(rise / run, axis=1)
    variance = nights * (nights - 1) * (2 * nights + 5) / 18
    reach = normal_quantile() * np.sqrt(variance)
    lowest = max(round((pairs - reach) / 2) - 1, 0)
    highest = min(round((pairs + reach) / 2), pairs - 1)
    score = np.sign(rise).sum(axis=1)
    z = np.maximum(np.abs(score) - 1, 0) / np.sqrt(variance)
    return np.median(each, axis=1), each[:, lowest], each[:, highest], np.asarray(2 * ndtr(-z))


def _slopes(names: pl.DataFrame, values: pl.DataFrame, stretches: pl.DataFrame, found: ChangePoints) -> Answer:
    """Compute slow drift of each piece that has enough nights."""
    begin, size, stretch = _pieces(stretches, found)
    night = values["night"]
    days = night.to_physical().cast(pl.Float64).to_numpy()
    series = values["value"].to_numpy()
    again = np.append(False, days[1:] <= days[:-1])  # a slope needs rising days: pieces with a doubled night are out
    kept = np.flatnonzero(size >= FEWEST_FOR_SLOPE)
    doubles = np.concatenate([[0], np.cumsum(again)])
    kept = kept[doubles[begin[kept] + size[kept]] == doubles[begin[kept] + 1]]
    results = np.full((4, len(kept)), np.nan)
    for nights in np.unique(size[kept]):
        rows = np.flatnonzero(size[kept] == nights)
        for some in np.array_split(rows, 1 + len(rows) * nights * nights // _AT_ONCE):
            places = begin[kept[some], None] + np.arange(nights)
            results[:, some] = slopes(series[places], days[places])
    slope, low, high, p = results
    factor = np.sqrt(found.inflation)
    if factor > 1:
        low, high = slope - (slope - low) * factor, slope + (high - slope) * factor
        p = np.asarray(2 * ndtr(ndtri(np.maximum(p, 1e-300) / 2) / factor))
    q = benjamini_hochberg(p)
    table = pl.DataFrame(
        {
            "of": stretches["of"].gather(stretch[kept]),
            "series": stretches["series"].gather(stretch[kept]),
            "first_night": night.gather(begin[kept]),
            "last_night": night.gather(begin[kept] + size[kept] - 1),
            "nights": size[kept],
            "month_percent": 100 * np.expm1(slope * _MONTH),
            "low_percent": 100 * np.expm1(low * _MONTH),
            "high_percent": 100 * np.expm1(high * _MONTH),
            "p": p,
            "q": q,
        }
    )
    drifting = table.filter(pl.col("q") <= ERROR)
    return Answer(
        name="slopes",
        title="Slow drift",
        table=names.join(drifting, on="series").sort("q", "series", "of", "first_night"),
        meanings={
            "month_percent": "Change in 30 days: the median slope between all pairs of nights (Theil and Sen).",
            "low_percent": "95 % bounds (Sen 1968).",
            "p": "Mann and Kendall's test of no trend.",
            "q": f"p adjusted over all pieces (Benjamini and Hochberg); drift with q up to {ERROR:g} is shown.",
        },
        notes=[f"{len(kept)} of {len(begin)} pieces have {FEWEST_FOR_SLOPE} nights or more; {drifting.height} drift."],
    )


def _environment(nights: pl.DataFrame) -> Answer:
    """List changes of the environment by night: old and new value, number of cells, and shift of their times."""
    seen = {name: pl.col(column).drop_nulls().unique().sort().str.join(", ") for name, column in _ENVIRONMENT.items()}
    means = {f"log_{of}": pl.col(f"log_{of}").mean() for of in ("speedup", "candidate")}
    by_night = nights.group_by(*CELL_KEY, "night").agg(
        *(value.alias(name) for name, value in seen.items()), *(value.alias(of) for of, value in means.items())
    )
    ordered = by_night.sort(*CELL_KEY, "night")
    same = pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift()) for name in CELL_KEY)
    before = ordered.with_columns(
        *(pl.when(same).then(pl.col(name).shift()).alias(f"{name} before") for name in (*seen, *means)),
        pl.when(same).then(pl.col("night").shift()).alias("night before"),
    ).filter(pl.col("night before").is_not_null())
    parts = []
    for name in _ENVIRONMENT:
        changed = before.filter(pl.col(name).ne_missing(pl.col(f"{name} before")))
        parts.append(
            changed.group_by(
                "night",
                pl.lit(name).alias("what"),
                pl.col(f"{name} before").alias("before"),
                pl.col(name).alias("after"),
            ).agg(
                pl.len().alias("cells"),
                *(
                    (100 * ((pl.col(of) - pl.col(f"{of} before")).median().exp() - 1)).alias(f"{shown}_shift_percent")
                    for of, shown in (("log_speedup", "speedup"), ("log_candidate", "time"))
                ),
            )
        )
    table = pl.concat(parts).sort(
        "night", "what", "cells", "before", "after", descending=[False, False, True, False, False]
    )
    return Answer(
        name="environment",
        title="Changes of the environment",
        table=table,
        meanings={
            "night": "First night with the new value.",
            "what": "The fact that changed. Series are cut here: a shift across it is not a finding about the code.",
            "cells": "Cells for which it changed.",
            "time_shift_percent": "Median over these cells of the change of their times from the night before.",
            "speedup_shift_percent": "The same for their speed-ups.",
        },
    )


def _series(nights: pl.DataFrame) -> Answer:
    several = nights.filter(pl.len().over("series") > 1)
    ones = nights.height - several.height
    shown = [*CELL_KEY, "gpu_uuid", "night", "stretch", "sessions", "driver", "image_id"]
    back = {"speedup": pl.col("log_speedup").exp()} | {
        f"{of}_ns": pl.col(f"log_{of}").exp() for of in ("candidate", "baseline")
    }
    return Answer(
        name="nights",
        title="Every series, night by night",
        table=several.select("series", *shown, *(value.alias(name) for name, value in back.items())),
        meanings={
            "series": "Number of the series: one cell on one unit.",
            "stretch": "Number of the stretch: nights with one driver, image and source.",
            "speedup": "Median over the night's sessions; so are the times, in nanoseconds.",
        },
        notes=[f"{ones} series have one night, and are not shown."] if ones else [],
    )
