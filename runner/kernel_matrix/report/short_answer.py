"""The answer in words at the top of the page: which GPU is faster, what is portable, how far to believe it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from kernel_matrix.analysis.audit.check import Severity
from kernel_matrix.analysis.questions import Answer
from kernel_matrix.model.enums import Grade
from kernel_matrix.report.contents import ReportContents
from kernel_matrix.report.number_format import number, one_line, rate, share, times
from kernel_matrix.report.overview import Overview
from kernel_matrix.report.question_pages import QuestionPage

_MOST_NAMED: Final = 3


def answer_in_words(contents: ReportContents, questions: Sequence[QuestionPage]) -> Iterator[tuple[str, str]]:
    """Yield (question, answer) for results that are not empty."""
    answers = {answer.name: answer for page in questions for answer in page.answers}
    yield "How good are the kernels?", _quality(contents.overview)
    yield "Which GPU is faster?", _faster_gpu(contents, answers.get("gpus"))
    yield "What is portable?", contents.portability
    if broken := _not_portable(answers.get("verdict_cells")):
        yield "What is not?", broken
    yield "How far to believe it?", " ".join(_belief(contents))


def _quality(overview: Overview) -> str:
    whole = overview.scores.row(-1, named=True)
    if whole["correct_rate"] is None:
        return "Nothing counts: no cell passed or failed by its candidate's fault."
    said = f"{rate(whole['correct_rate'])} of {number(overview.counted, 'cell')} that count are correct."
    if whole["speedup"] is None:
        return f"{said} Nothing was timed."
    return (
        f"{said} What passed is {times(whole['speedup'])} as fast as the baseline (geometric mean over problems):"
        f" {rate(whole['share_faster'])} of what was timed is faster by verdict, {rate(whole['share_slower'])} slower."
    )


def _faster_gpu(contents: ReportContents, answer: Answer | None) -> str:
    gpus = contents.grid["gpu"].n_unique()
    if gpus < 2:
        return "There is only one GPU, so there is nothing to compare it with."
    if answer is None or not answer.statements:
        return "Unknown: the GPUs have no timed work in common."
    # The ratio and the ratios by limit; the section below has all sentences.
    return ". ".join(answer.statements[0].split(". ")[:2]).rstrip(".") + "."


def _not_portable(answer: Answer | None) -> str:
    """Name candidates that pass on one GPU and fail on another."""
    if answer is None or answer.table.is_empty():
        return ""
    found = answer.table.group_by("candidate", maintain_order=True).agg(
        pl.col("passes_on").first(), pl.col("fails_on").first()
    )
    named = [
        f"{one_line(candidate)} passes on {one_line(passes)} and fails on {one_line(fails)}"
        for candidate, passes, fails in found.head(_MOST_NAMED).iter_rows()
    ]
    more = found.height - len(named)
    return "; ".join(named) + (f"; {number(more, 'more candidate')} likewise." if more else ".")


def _belief(contents: ReportContents) -> Iterator[str]:
    trust = contents.overview.trust
    if not trust:
        yield "Nothing was timed, so only correctness is known."
        return
    grades = {word: count for word, count, _ in trust["Grade"]}
    timed = sum(grades.values())
    good = grades.get(Grade.A.value, 0) + grades.get(Grade.B.value, 0)
    poor = share(grades.get(Grade.C.value, 0), timed)
    yield f"{share(good, timed)} of {number(timed, 'time')} have grade A or B, {poor} grade C."
    single = next((count for word, count, _ in trust["Sessions"] if word == "1 session"), 0)
    if single:
        yield f"{share(single, timed)} come from one session, which does not show how far a repetition would differ."
    proven = next((count for word, count, _ in trust["Alone on the GPU"] if word == "proven"), 0)
    yield f"The GPU was proven to be used by nothing else for {share(proven, timed)}."
    if contents.findings is not None:
        kinds = Counter(finding.severity for finding in contents.findings)
        counted = [number(kinds[severity.value], severity.value) for severity in Severity if kinds[severity.value]]
        yield f"The audit has {', '.join(counted)}." if counted else "The audit found nothing."
