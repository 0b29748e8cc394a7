"""The data card of a set of pairs: what is in it, how the verdicts were made, and what was left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import polars as pl

from kernel_matrix.analysis.problem_splits import count_splits
from kernel_matrix.measure.verdict import MARGIN
from kernel_matrix.report.markdown_text import code
from kernel_matrix.version import __version__

_SIZES: Final = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))


def write_card(
    table: pl.DataFrame,
    *,
    records_left_out: Mapping[str, int],
    pairs_left_out: Mapping[str, int],
    folders: Sequence[str],
    grade: str,
) -> str:
    """Return the card as Markdown, with front matter in YAML.

    Args:
        table: The pairs.
        records_left_out: Why records have no part in pairs → their number.
        pairs_left_out: Why two candidates are no pair → their number.
        folders: The results that the pairs were made of.
        grade: The weakest grade of a time that was compared.
    """
    parts = (
        *_front_matter(table),
        "# Pairs of GPU kernels",
        _about(table, folders, grade),
        "## Counts",
        *(_counts(table, name) for name in ("kind", "split", "dtype", "gpu", "language", "licence", "relation")),
        _counts_of_splits(table),
        "## Left out",
        _left_out("records", records_left_out),
        _left_out("possible pairs", pairs_left_out),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _front_matter(table: pl.DataFrame) -> Iterator[str]:
    size = next((name for most, name in _SIZES if table.height < most), "n>1M")
    yield "\n".join(
        (
            "---",
            "pretty_name: Pairs of GPU kernels",
            f"size_categories: [{size}]",
            "tags: [code, gpu, kernels]",
            "configs:",
            "  - config_name: default",
            "    data_files: pairs.parquet",
            "---",
        )
    )


def _about(table: pl.DataFrame, folders: Sequence[str], grade: str) -> str:
    unknown = table["licence"].null_count()
    return f"""\
Made by kernel-matrix {__version__} from {", ".join(map(code, folders))}.

- `error_correction`: `before` failed by its own fault, as `status_before` and `evidence_before` say; `after` passed.
  The judge compares outputs with the reference's, on inputs that the candidate does not choose, before, during and
  after timing.
- `optimisation`: both passed, and `after` is shown to be faster for every workload: by more than {100 * MARGIN:g} %
  with the false discoveries of all these comparisons limited, and also if each of its calls took the longest that the
  judge's own clock allows (`speedup_limit`). Times have grade {grade} or better.
- Both sides have the same problem, dtype, GPU, toolchain, tier and version of the measurement; where their times are
  compared, also the same host, board, driver and state of the clocks. A record is the latest of its cell, and the
  audit does not object to it.
- No two pairs have the same two sources; comments, docstrings and formatting do not tell Python sources apart.
- `split` follows from the problem: all its pairs are in one part, whatever their dtype. Problems with the same
  reference are one problem; similar ones, as a softmax of another size, may be in different parts.
- `licence` is what the two sources say themselves (`SPDX-License-Identifier`). It is unknown for {unknown:,} of
  {table.height:,} pairs; then it is for you to find out whether you may use or share them."""


def _counts(table: pl.DataFrame, name: str) -> str:
    counted = table.group_by(pl.col(name).cast(pl.String).fill_null("unknown")).len().sort("len", name, descending=True)
    rows = "\n".join(f"| {code(value)} | {number:,} |" for value, number in counted.iter_rows())
    return f"| {name} | pairs |\n| --- | ---: |\n{rows}"


def _counts_of_splits(table: pl.DataFrame) -> str:
    problems = count_splits(table.unique("problem")["split"])
    return f"Problems: {', '.join(f'{number:,} {name}' for name, number in problems.items())}."


def _left_out(what: str, counts: Mapping[str, int]) -> str:
    rows = "\n".join(f"| {reason} | {number:,} |" for reason, number in counts.items() if number)
    return f"| why | {what} |\n| --- | ---: |\n{rows}" if rows else ""
