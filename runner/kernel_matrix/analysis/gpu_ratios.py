"""Ratios of GPUs: how much faster one is than another, on what, and whether the data sheets predict it.

Compared are times of the same work (:mod:`kernel_matrix.analysis.common_work`) as geometric means over problems
(:mod:`kernel_matrix.analysis.mean_ratios`), with the predictions of the data sheets
(:mod:`kernel_matrix.analysis.gpu_predictions`) beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Final

import numpy as np
import polars as pl

from kernel_matrix.analysis.common_work import CANDIDATES, KINDS, CommonWork, common_work
from kernel_matrix.analysis.gpu_pairs import RATIOS, SHORTFALLS, GpuPair, group_slices
from kernel_matrix.analysis.gpu_predictions import UNKNOWN, BoardRates, board_rates, boards_of
from kernel_matrix.analysis.gpu_sentences import describe_pair
from kernel_matrix.analysis.mean_ratios import mean_ratios
from kernel_matrix.analysis.parallel import map_threads
from kernel_matrix.analysis.problem_weights import ProblemWeights, read_weights
from kernel_matrix.analysis.questions import Answer, QuestionOptions
from kernel_matrix.analysis.sentences import listed
from kernel_matrix.analysis.standings import (
    Floats,
    Standing,
    chosen_gpus,
    one_toolchain_per_gpu,
    slice_columns,
    standings,
)
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import UsageError

MOST_SHORT: Final = 20
"""Shortfalls of a pair that are listed."""
MOST_SAID: Final = 6
"""Pairs that are put into words."""
_MOST_SLICED: Final = 2_000_000
"""Workloads × pairs up to which all pairs are sliced; of more, those of the first GPU."""
_LISTED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    """Data that all tables of the answer share."""

    pairs: Sequence[GpuPair]
    """Pairs with common work, those of the first GPU first."""
    sliced: Sequence[GpuPair]
    """Those of them that are sliced."""
    apart: Sequence[GpuPair]
    """Pairs without."""


def gpu_ratios(tables: Tables, request: QuestionOptions) -> list[Answer]:
    """Answer ``gpus``, one row per pair and kind of work, ``slices`` of it, and ``short`` of the prediction.

    In ``request``, ``platforms`` chooses GPUs and their order, ``by`` slices the first table, ``weights`` is a file.

    Raises:
        NothingSelectedError: No cell is on one of the platforms.
        UsageError: A slice separates GPUs, or the file of weights is invalid.
    """
    columns = slice_columns(request.by, "gpus")
    weights = read_weights(request.weights) if request.weights else ProblemWeights()
    found = standings(tables.cells)
    seen, nameless = chosen_gpus(found.table, request.platforms)
    gpus = [gpu for gpu in dict.fromkeys(request.platforms or seen) if gpu in seen]
    here = found.table.filter(pl.col("gpu").is_in(gpus))
    apart = not one_toolchain_per_gpu(here)
    _check_slices(request.by, columns, toolchains_apart=apart)
    weights.check_names(found.table, request.weights)
    work = common_work(here, tables.cells, gpus, toolchains_apart=apart)
    boards = boards_of(tables.cells)
    rates = {gpu: board_rates(gpu, boards.get(gpu, [])) for gpu in gpus}
    scene = _scene(work, rates, weights.of(work.keys).to_numpy(), ordered=bool(request.platforms))
    notes = [*found.notes, *nameless, *_notes(scene, here, request, toolchains_apart=apart)]
    short = pl.concat([pl.DataFrame(schema=SHORTFALLS), *(pair.shortfalls() for pair in scene.sliced)])
    first = scene.sliced[:MOST_SAID] if scene.sliced else ()
    statements = [describe_pair(pair, short, weighted=request.weights is not None) for pair in first]
    more = len(scene.pairs) - len(statements)
    if more:
        statements.append(f"{more} more {'pair of GPUs is' if more == 1 else 'pairs of GPUs are'} in the table.")
    statements += _nothing(scene, work, here)
    return [
        _overall(scene, work, columns, statements, notes),
        _sliced(scene),
        _short(short),
    ]


def _check_slices(names: Sequence[str], columns: Sequence[str], *, toolchains_apart: bool) -> None:
    wrong = {"gpu", *([] if toolchains_apart else ["toolchain"])}
    for name, column in zip(names, columns, strict=True):
        if column in wrong:
            why = "" if column == "gpu" else ": each of them has only one here"
            raise UsageError(
                f"gpus compares GPUs and cannot be sliced by {name!r}{why}",
                next_step="Slice by category, dtype, language, level, problem, workload, candidate or method.",
            )


def _scene(work: CommonWork, rates: dict[str, BoardRates], weight: Floats, *, ordered: bool) -> _Scene:
    """Make the pairs; of each, the GPU that comes first is the one that is spoken of.

    Args:
        work: The work; its GPUs are in the order asked for.
        rates: GPU → its rates.
        weight: Weight of each row.
        ordered: The order of the GPUs was asked for; otherwise the fastest comes first.
    """

    @cache
    def pair(one: int, other: int) -> GpuPair:
        names = work.gpus[one], work.gpus[other]
        return GpuPair(work=work, places=(one, other), rates=(rates[names[0]], rates[names[1]]), weight=weight)

    places = range(len(work.gpus))
    order = list(places) if ordered else _fastest_first(work, [pair(*two) for two in combinations(places, 2)])
    pairs = [pair(*two) for two in combinations(order, 2)]
    common = [one for one in pairs if one.headline is not None]
    # Pairs are sorted by their first GPU, so that the first ones with common work share it.
    total = sum(one.rows.size for one in common)
    first = [one for one in common if one.places[0] == common[0].places[0]]
    apart = [one for one in pairs if one.headline is None]
    return _Scene(pairs=common, sliced=common if total <= _MOST_SLICED else first, apart=apart)


def _fastest_first(work: CommonWork, pairs: Sequence[GpuPair]) -> list[int]:
    """Order the GPUs by the number of others that each is faster than."""

    def ratio(pair: GpuPair) -> pl.Series:
        headline = np.where(pair.kind == KINDS.index(pair.headline or CANDIDATES), 0, -1)
        return mean_ratios(pair.ratios, headline)["ratio"]

    wins = np.zeros(len(work.gpus))
    for pair, found in zip(pairs, map_threads(ratio, pairs), strict=True):
        if found.len():
            wins[pair.places[0 if found[0] >= 1 else 1]] += 1
    return sorted(range(len(work.gpus)), key=lambda place: (-wins[place], place))


def _overall(
    scene: _Scene, work: CommonWork, by: Sequence[str], statements: Sequence[str], notes: Sequence[str]
) -> Answer:
    parts = [pl.DataFrame(schema={**{name: work.keys.schema[name] for name in by}, **_NAMES, **RATIOS})]

    def means(pair: GpuPair) -> pl.DataFrame:
        labels, slices = group_slices(pair, by)
        joined = pair.means(slices).lazy().join(labels.lazy(), on="slice", how="left", maintain_order="left")
        return joined.with_columns(_names(pair)).select(parts[0].columns).collect()

    parts += map_threads(means, scene.sliced if by else scene.pairs)
    return Answer(
        name="gpus",
        title="Speed of GPUs against each other",
        table=pl.concat(parts),
        meanings=_MEANINGS,
        notes=notes,
        statements=statements,
    )


def _sliced(scene: _Scene) -> Answer:
    parts = [pl.DataFrame(schema={**_NAMES, "by": pl.String(), "value": pl.String(), **RATIOS})]
    missing = 0
    for pair in scene.sliced:
        for by, values, slices in pair.slices():
            present = np.unique(slices[slices >= 0])
            if by == "limit" and (present == UNKNOWN).all():
                continue
            missing += 0 if by == "limit" else len(values) - present.size
            means = pair.means(slices)
            value = pl.Series("value", list(values), dtype=pl.String).gather(means["slice"])
            named = means.lazy().with_columns(*_names(pair), value, by=pl.lit(by))
            parts.append(named.select(parts[0].columns).collect())
    notes = [_SLICES] if scene.sliced else []
    if missing:
        notes.append(f"Slices of a pair left out, as they have no common work: {missing}.")
    if len(scene.sliced) < len(scene.pairs):
        left = len(scene.pairs) - len(scene.sliced)
        notes.append(f"{left} pairs without {scene.sliced[0].names[0]} are not sliced; choose GPUs with --platforms.")
    return Answer(
        name="slices",
        title="The same by category, dtype, language, size of call and limit",
        table=pl.concat(parts),
        meanings=_MEANINGS,
        notes=notes,
    )


def _names(pair: GpuPair) -> list[pl.Expr]:
    return [pl.lit(name).alias(column) for column, name in zip(("gpu", "than"), pair.names, strict=True)]


def _short(short: pl.DataFrame) -> Answer:
    kept = short.group_by("gpu", "than", maintain_order=True).head(MOST_SHORT)
    left = short.height - kept.height
    notes = [f"Left out, as they fall less short: {left}."] if left else []
    return Answer(
        name="short",
        title="Short of the prediction: workloads whose ratio is shown to be less",
        table=kept.select(*SHORTFALLS),
        meanings=_SHORT_MEANINGS,
        notes=notes,
    )


def _nothing(scene: _Scene, work: CommonWork, here: pl.DataFrame) -> Iterator[str]:
    """Yield a statement where nothing can be compared."""
    if scene.pairs:
        return
    if len(work.gpus) < 2:
        yield f"There is only one GPU ({work.gpus[0]}), so there is nothing to compare it with."
    elif not (here["standing"] == Standing.PASSED.value).any():
        yield f"Nothing passed on {listed(work.gpus, _LISTED)}, so their speed cannot be compared."
    else:
        content = sum(pair.other_content for pair in scene.apart)
        why = (
            f" {content} workloads have the same names, and another content of problem or candidate." if content else ""
        )
        yield (
            f"{listed(work.gpus, _LISTED)} have no work in common that passed on two of them, with the same problem, "
            f"dtype, workload, candidate and toolchain, so their speed cannot be compared.{why}"
        )


def _notes(scene: _Scene, here: pl.DataFrame, request: QuestionOptions, *, toolchains_apart: bool) -> Iterator[str]:
    present = set(here["gpu"])
    absent = sorted(set(request.platforms) - present)
    if absent:
        yield f"No cell ran on {', '.join(absent)}."
    if scene.apart and scene.pairs:
        names = listed([" and ".join(pair.names) for pair in scene.apart], _LISTED)
        has = "1 pair of GPUs has" if len(scene.apart) == 1 else f"{len(scene.apart)} pairs of GPUs have"
        yield f"{has} no work in common, and no row: {names}."
    if not scene.pairs:
        return
    pairs = (*scene.pairs, *scene.apart)
    content, once = (sum(getattr(pair, name) for pair in pairs) for name in ("other_content", "passed_once"))
    if content:
        yield f"Workloads left out, as problem or candidate have another content on the other GPU: {content}."
    if once:
        yield f"Workloads left out, as they pass on one GPU of a pair and fail on the other: {once}."
    ran = here.group_by("gpu").agg(pl.col("toolchain").drop_nulls().unique().sort().str.join(", ")).sort("gpu")
    if not toolchains_apart and ran["toolchain"].n_unique() > 1:
        each = listed([f"{gpu} ran with {toolchain or 'an unknown one'}" for gpu, toolchain in ran.iter_rows()], 6)
        yield f"Toolchains are joined, and the ratios contain their differences: {each}."
    if not (here["sessions"] > 1).any():
        yield "Every time is from one session, so the noise of sessions is assumed: 2 % to 5 %, by the time of a call."
    impossible = sum(pair.prediction.impossible for pair in scene.sliced)
    if impossible:
        yield (
            "Workloads whose limit is unknown, as they are faster than their roofline, from a cache or by a wrong "
            f"count of work: {impossible}."
        )
    if request.weights:
        yield f"Problems are weighted by {request.weights}."
    yield (
        "Intervals are about other problems like these, and contain the noise of sessions; `noise` is that alone. They "
        "do not contain differences between boards of one model."
    )


_SLICES: Final = (
    "size is the time of a call on the slower GPU. limit is what the roofline says of a call on both GPUs: memory, "
    "compute, memory on one of them, neither (it reaches less than a tenth of its roofline on both), or unknown."
)
_NAMES: Final = {"gpu": pl.String(), "than": pl.String(), "kind": pl.String()}
_MEANINGS: Final = {
    "gpu": "the GPU that is spoken of",
    "than": "the GPU that it is compared with",
    "kind": "candidates; references, a problem's reference run as a candidate; baselines, the times of eager beside "
    "the candidates; or controls, which are declared to fail and passed",
    "by": "what the slice is one of",
    "value": "the slice",
    "ratio": "time on `than` ÷ time on `gpu`: it is so many times as fast; geometric mean over problems, each of them "
    "over its cells, each of them over its workloads",
    "low": "lower bound of the 95 % interval for other problems like these (Student's t over problems; `noise` where "
    "they differ less than noise makes them differ); null for one problem",
    "high": "upper bound of it",
    "noise": "half-width of the 95 % interval of `ratio` for these problems, from the noise of sessions, as a share",
    "problems": "problems with common work and a weight above 0",
    "workloads": "workloads × candidates that passed on both",
    "memory": "ratio that the data sheets predict for memory-bound work: that of the bandwidths",
    "compute": "ratio that they predict for compute-bound work: that of the dtype's peak rates; null where dtypes "
    "differ in it",
    "reached": "ratio ÷ the one that the roofline predicts for each workload (Williams, Waterman and Patterson 2009), "
    "geometric mean over problems; workloads whose limit is memory or compute",
    "reached_low": "lower bound of its 95 % interval",
    "reached_high": "upper bound of it",
    "predicted_problems": "problems in `reached`",
}
_SHORT_MEANINGS: Final = {
    "kind": _MEANINGS["kind"],
    "limit": "memory, compute or memory on one: what the roofline says; unknown: the lower prediction of both counts",
    "ratio": "time on `than` ÷ time on `gpu`",
    "low": "lower bound of its 95 % interval, from the noise of sessions",
    "high": "upper bound of it",
    "predicted": "the ratio that the data sheets predict",
    "of_predicted": "ratio ÷ predicted; shown to be below 1 with a rate of false discoveries of 1 %",
    "gpu_us": "time on `gpu`, microseconds",
    "than_us": "time on `than`",
    "gpu_share": "share of the roofline that it reaches on `gpu`",
    "than_share": "the same on `than`",
}
