"""Check for failures whose text says that the harness failed, not the candidate."""

from __future__ import annotations

from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import figure, make_findings, percent
from kernel_matrix.analysis.sentences import sentence
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.model.enums import Fault, Status

_FEWEST: Final = 3
"""Candidates that must fail with one text."""
_SHARE: Final = 0.05
"""Share of a set's failures that must have a text that candidates cannot cause, or only by flags of their own."""
_MOST: Final = 0.5
"""Share for texts that wrong candidates cause too."""

_TEXTS: Final = (
    ("no kernel image is available", "it was built for another architecture", _SHARE),
    ("is not compatible with the current pytorch installation", "its torch lacks this architecture", _SHARE),
    ("driver version is insufficient", "its CUDA needs a newer driver", _SHARE),
    ("provided ptx was compiled with an unsupported toolchain", "its CUDA needs a newer driver", _SHARE),
    ("cannot open shared object file", "a library is missing", _SHARE),
    ("undefined symbol: _znk?[0-9]*(3c10|2at|5torch)", "it was built against another torch", _SHARE),
    ("undefined symbol", "it was built against other libraries", _MOST),
    ("no cuda-capable device|no cuda gpus are available|found no nvidia driver", "it had no GPU", _SHARE),
    ("re-initialize cuda in forked subprocess", "it forked after CUDA had started", _SHARE),
    ("no module named '?(torch|triton|numpy|ninja|pybind11)", "a package is missing", _SHARE),
    ("ninja is required|cuda_home environment variable is not set|nvcc: not found", "a compiler is missing", _SHARE),
    ("no space left on device|disk quota exceeded|too many open files", "its host was full", _SHARE),
)
"""Pattern, in lower case, of a message; what it says of the harness; and the share of failures that must have it."""
_MEMORY: Final = ("out of memory", "memory was taken before the candidate's first call", _SHARE)
"""The same for candidates that failed before they were called: while they run, it is their own."""
_BEFORE_CALLS: Final = (Status.COMPILE_ERROR.value, Status.LOAD_ERROR.value)


def harness_faults(tables: Tables) -> pl.LazyFrame:
    """Find texts of the harness's own faults among failures that count as the candidates'."""
    failed = tables.cells.filter(pl.col("fault") == Fault.CANDIDATE.value).group_by("record").agg(
        pl.col("gpu", "toolchain", "problem", "candidate", "status", "message").first()
    )  # fmt: skip
    place = ("gpu", "toolchain")
    early = pl.col("status").is_in(list(_BEFORE_CALLS))
    by_text = failed.group_by(*place, "message", early.alias("early")).agg(
        pl.len().alias("failures"), pl.struct("problem", "candidate").hash().unique().alias("candidates")
    )
    text = pl.col("message").str.to_lowercase()
    told = [pl.when(text.str.contains(pattern)).then(number) for number, (pattern, _, _) in enumerate(_TEXTS)]
    of_memory = pl.when(text.str.contains(_MEMORY[0], literal=True) & pl.col("early")).then(len(_TEXTS))
    meanings = pl.LazyFrame(
        [(number, meaning, share) for number, (_, meaning, share) in enumerate((*_TEXTS, _MEMORY))],
        schema={"text": pl.Int32(), "meaning": pl.String(), "share": pl.Float64()},
        orient="row",
    )
    found = by_text.with_columns(text=pl.coalesce(*told, of_memory).cast(pl.Int32)).drop_nulls("text").group_by(
        *place, "text"
    ).agg(
        pl.col("failures").sum(),
        pl.col("candidates").explode().n_unique(),
        pl.col("message").sort_by("failures", "message", descending=[True, False]).first(),
    )  # fmt: skip
    totals = failed.group_by(place).agg(pl.len().alias("all"))
    both = found.join(totals, on=place, nulls_equal=True).join(meanings, on="text")
    share = pl.col("failures") / pl.col("all")
    evidence = sentence(
        "{} of {} failures ({}), of {} candidates, are the harness's: {}; they say {}",
        "failures", "all", percent(share), figure(pl.col("candidates")), "meaning", _excerpt(),
    )  # fmt: skip
    enough = (pl.col("candidates") >= _FEWEST) & (share >= pl.col("share"))
    return make_findings(both.filter(enough), evidence, count=pl.col("failures"))


def _excerpt() -> pl.Expr:
    """Return the line of the message that has the text, shortened."""
    patterns = "|".join(f"(?:{pattern.replace('(', '(?:')})" for pattern, _, _ in (*_TEXTS, _MEMORY))
    line = pl.col("message").str.extract(rf"(?im)^.{{0,200}}?((?:{patterns}).{{0,80}})", 1)
    return sentence('"{}"', line.fill_null(pl.col("message").str.head(80)).str.strip_chars())
