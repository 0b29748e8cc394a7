"""Every question that the tables can be asked, with its answers or the reason why it has none."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from kernel_matrix.analysis.questions import QUESTIONS, Answer, QuestionOptions, ask
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import KernelMatrixError

MOST: Final = 2_000
"""Rows of an answer that the page carries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPage:
    """One question."""

    question: str
    answers: Sequence[Answer] = ()
    statement: str = ""
    """Why there is no answer; empty where there is one."""
    broken: bool = False
    """The question itself went wrong, which is a mistake of this program."""


def asked(
    tables: Tables,
    request: QuestionOptions,
    *,
    questions: Sequence[str] = QUESTIONS,
    asking: Callable[[str, Tables, QuestionOptions], list[Answer]] = ask,
) -> Iterator[QuestionPage]:
    """The answers to all ``questions``; one that goes wrong does not cost the others."""
    for question in questions:
        yield _asked(question, partial(asking, question, tables, request))


def _asked(question: str, answering: Callable[[], list[Answer]]) -> QuestionPage:
    try:
        answers = answering()
    except KernelMatrixError as error:
        return QuestionPage(question=question, statement=str(error))
    except Exception as error:  # noqa: BLE001  # a page without one answer is better than no page; it is told
        said = f"This question could not be answered: {type(error).__name__}: {error}"
        return QuestionPage(question=question, statement=said, broken=True)
    nothing = "" if any(answer.table.height for answer in answers) else "The tables hold nothing about this."
    return QuestionPage(question=question, answers=tuple(cut(answer) for answer in answers), statement=nothing)


def cut(answer: Answer) -> Answer:
    """``answer`` with its first :data:`MOST` rows, and a note where there are more: nobody holds millions of rows."""
    rows = answer.table.height
    if rows <= MOST:
        return answer
    note = f"The first {MOST:,} of {rows:,} rows are on this page."
    return replace(answer, table=answer.table.head(MOST).clone(), notes=(*answer.notes, note))
