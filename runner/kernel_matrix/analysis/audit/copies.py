"""Checks for equal numbers or code where they should differ."""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import (
    ROW,
    few_bits,
    figure,
    listed,
    make_findings,
    micro,
    passed,
    percent,
    with_cells,
)
from kernel_matrix.analysis.audit.times import grain, timer_steps
from kernel_matrix.analysis.outcomes import is_reference
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.model.enums import Regime

_KEY: Final = ("toolchain", "dtype", "problem", "ranks", "workload", "candidate")
_FINE: Final = 32.0
"""Nanoseconds: the finest step of device timers."""
_STEPS: Final = 100
"""Timer steps that a time needs to count: shorter times are often equal by chance."""
_FEWEST: Final = 5
"""Equal times of two GPUs that are a finding; fewer may be equal by chance."""
_SHARE: Final = 0.5
"""Share of the common times that must be equal."""
_TICKS_NS: Final = 2 * _FINE
"""Two times of one duration differ by a step of the timer at either end."""
_STEP_ROOM: Final = 1.01
"""Factor by which a difference may exceed a coarse timer's step: files round what they give."""
_SAME: Final = 0.01
"""Largest difference from the baseline, as a share of its time, or else many cells must agree."""
_APART: Final = 0.2
"""Width of the range, as a share of the baseline's time, in which an honest time might lie anywhere."""
_BY_CHANCE: Final = 1e-3
"""Largest chance that honest times are all that near, if a coarse timer's step is more than :data:`_SAME`."""
_ROWS: Final = 3
"""Rows in which the two times must be near."""
_CALLS: Final = 10
"""Calls of a session needed to compare its list of times."""


def copied_times(tables: Tables) -> pl.LazyFrame:
    """Find pairs of GPU names of which at least half of the common times are equal to the last digit.

    Only times of at least a hundred timer steps count, and at least five of them, because shorter ones agree by chance.
    Checked for the whole pair and, where the whole pair differs, within each problem and each candidate.
    """
    time = pl.col("candidate_median_ns")
    step = grain(time).fill_null(_FINE)
    long_enough = passed(tables.cells).filter((time > 0) & (time >= step * _STEPS))
    # Joining by a 64-bit hash is faster than by strings; half of a pair's cells would have to collide to matter.
    rows = long_enough.group_by("gpu", *_KEY).agg(
        time.min().alias("t"), pl.col("baseline_median_ns").min().fill_null(-1.0).alias("b")
    )
    rows = rows.with_columns(key=pl.struct(_KEY).hash()).select("gpu", "problem", "candidate", "key", "t", "b")
    equal = rows.join(rows.drop("problem", "candidate"), on=["key", "t", "b"]).filter(
        pl.col("gpu") < pl.col("gpu_right")
    )
    return pl.concat([_alike(rows, equal, by) for by in ((), ("problem",), ("candidate",))])


def _alike(rows: pl.LazyFrame, equal: pl.LazyFrame, by: tuple[str, ...]) -> pl.LazyFrame:
    """Find pairs that share too many times within ``by``, leaving out pairs that do so as a whole."""
    pair = ("gpu", "gpu_right")
    found = _shares(rows, equal, by)
    if by:
        found = found.join(_shares(rows, equal, ()), on=pair, how="anti")
    evidence = sentence(
        "{} of {} common times are equal to the last digit under {} and {}, for example {}",
        "same", "both", "gpu", "gpu_right", micro(pl.col("example")),
    )  # fmt: skip
    return make_findings(found, evidence, count=pl.col("same"))


def _shares(rows: pl.LazyFrame, equal: pl.LazyFrame, by: tuple[str, ...]) -> pl.LazyFrame:
    pair = ["gpu", "gpu_right", *by]
    same = equal.group_by(pair).agg(pl.len().alias("same"), pl.col("t").max().alias("example"))
    same = same.filter(pl.col("same") >= _FEWEST)
    ours = rows.join(same, on=["gpu", *by]).select("gpu", "gpu_right", *by, "key", "same", "example")
    theirs = rows.select(pl.col("gpu").alias("gpu_right"), "key")
    both = ours.join(theirs, on=["gpu_right", "key"]).group_by(pair)
    counted = both.agg(pl.len().alias("both"), pl.col("same").first(), pl.col("example").first())
    return counted.filter(pl.col("same") >= pl.col("both") * _SHARE)


def copied_samples(tables: Tables) -> pl.LazyFrame:
    """Find equal calls, with equal times in the same order, in several records or sessions."""
    time = pl.col("device_ns")
    calls = tables.samples.filter(pl.col("regime") == Regime.COLD.value)
    # A checksum identifies equal lists of calls without keeping the lists.
    place = pl.col("index").cast(pl.Int64) + 1000 * pl.col("block").cast(pl.Int64)
    mark = ((time * 1_000_003 + place).hash() % 2**40).cast(pl.Int64).sum()
    one = (*ROW, "contestant")
    lists = calls.group_by(one).agg(
        pl.len().alias("calls"), time.sum().alias("sum"), mark.alias("mark"), few_bits(time).alias("bits")
    )
    # Few different values come in the same order by chance.
    varied = lists.filter((pl.col("calls") >= _CALLS) & (pl.col("bits").bitwise_count_ones() > 3))
    alike = varied.group_by("calls", "sum", "mark").agg(
        pl.len().alias("times"),
        *(pl.col(name).min() for name in one),
        pl.col("record").n_unique().alias("records"),
        pl.col("record").max().alias("other"),
    )
    others = tables.cells.select(pl.col("record").alias("other"), pl.col("gpu").alias("gpu_right")).unique("other")
    copied = with_cells(alike.filter(pl.col("times") > 1), tables).join(others, on="other", how="left")
    evidence = sentence(
        "{} calls are equal in {} places, of {} records (GPUs {} and {}); their mean is {}",
        "calls", "times", "records", pl.col("gpu").fill_null("unknown"), pl.col("gpu_right").fill_null("unknown"),
        micro(pl.col("sum") / pl.col("calls")),
    )  # fmt: skip
    return make_findings(copied, evidence, count=pl.col("times") * pl.col("calls"))


def copied_code(tables: Tables) -> pl.LazyFrame:
    """Find machine code that is equal under GPU names of different compute capability."""
    built = tables.cells.filter(pl.col("code_sha256").is_not_null() & pl.col("compute_capability").is_not_null())
    found = built.group_by("code_sha256").agg(
        pl.col("compute_capability").n_unique().alias("kinds"),
        listed("compute_capability").alias("each"),
        listed("gpu").alias("gpus"),
        *(pl.col(name).cast(pl.String).min() for name in ("problem", "candidate")),
        pl.len().alias("rows"),
    )
    evidence = sentence(
        "code {}… is equal on GPUs {} of compute capability {}", pl.col("code_sha256").str.head(12), "gpus", "each"
    )
    return make_findings(found.filter(pl.col("kinds") > 1), evidence, count=pl.col("rows"))


def copy_of_baseline(tables: Tables) -> pl.LazyFrame:
    """Find candidates with the baseline's content, or with its time in every row, within the timer's step.

    ``@reference`` is exempt: it is the problem's own implementation as a candidate.
    """
    ours, theirs = pl.col("candidate_median_ns"), pl.col("baseline_median_ns")
    group = ("gpu", "source")
    columns = (*group, *_KEY, "candidate_sha256", "problem_sha256")
    rows = passed(tables.cells).filter((theirs > 0) & ~is_reference()).select(
        *columns, theirs, apart=(ours - theirs).abs(), share=(ours - theirs).abs() / theirs
    )  # fmt: skip
    coarse = timer_steps(tables, group).select(*group, tick=pl.col("step") * _STEP_ROOM)
    stepped = rows.join(coarse, on=group, how="left", nulls_equal=True).with_columns(
        pl.col("tick").fill_null(float(_TICKS_NS)), is_coarse=pl.col("tick").is_not_null()
    )
    # A file has one row per problem of a candidate whose name stands for a model or a method.
    cell = ("gpu", "toolchain", "dtype", "problem", "candidate")
    of_cell = _like_baseline(stepped, cell)
    several = _like_baseline(stepped, ("gpu", "candidate")).filter(pl.col("problems") > 1)
    rest = of_cell.join(several, on=["gpu", "candidate"], how="anti", nulls_equal=True)
    content = stepped.filter(pl.col("candidate_sha256") == pl.col("problem_sha256")).group_by(cell).agg(
        rows=pl.len()
    )  # fmt: skip
    same_content = pl.lit("the candidate's content is that of the problem")
    of_times = sentence(
        "in all {} rows the two times differ by at most {} ns ({}); the timer's step is {} ns",
        "rows", figure(pl.col("apart")), percent(pl.col("share")), figure(pl.col("tick") / _STEP_ROOM),
    )  # fmt: skip
    return pl.concat(
        [
            make_findings(content, same_content, count=pl.col("rows")),
            make_findings(rest.join(content, on=cell, how="anti", nulls_equal=True), of_times, count=pl.col("rows")),
            make_findings(several, of_times, count=pl.col("rows")),
        ]
    )


def _like_baseline(rows: pl.LazyFrame, by: tuple[str, ...]) -> pl.LazyFrame:
    """Find groups ``by`` in all of whose rows the two times are within the timer's step of each other.

    Rows of one cell say the same, so the chance of that is a product over cells: in each, the part of the range of
    honest times that the step covers.
    """
    chance = (2 * pl.col("tick") / (pl.col("baseline_median_ns") * _APART)).clip(upper_bound=1).log()
    place = pl.struct("toolchain", "dtype", "problem", "ranks", "workload").hash()
    found = rows.group_by(by).agg(
        pl.len().alias("rows"),
        pl.col("problem").n_unique().alias("problems"),
        pl.col("apart", "share", "tick").max(),
        (pl.col("apart") / pl.col("tick")).max().alias("ticks"),
        pl.col("is_coarse").all(),
        (chance.sum() / pl.len() * place.n_unique()).alias("chance"),
    )
    by_chance = pl.col("is_coarse") & (pl.col("chance") <= pl.lit(_BY_CHANCE).log())
    near = (pl.col("ticks") <= 1) & ((pl.col("share") <= _SAME) | by_chance)
    return found.filter((pl.col("rows") >= _ROWS) & near)
