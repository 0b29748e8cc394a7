"""Pages of the questions: each with its answers, or the reason why it has none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kernel_matrix.analysis.questions import QUESTIONS, Answer, QuestionOptions, ask
from kernel_matrix.analysis.tables import Tables
from kernel_matrix.errors import KernelMatrixError

MOST: Final = 2_000
"""Rows of an answer on the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPage:
    """One question with its answers."""

    question: str
    answers: Sequence[Answer] = ()
    statement: str = ""
    """The reason why there is no answer; empty where there is one."""
    broken: bool = False
    """Answering raised an unexpected error, which is a bug of this program."""


def answer_questions(tables: Tables) -> Iterator[QuestionPage]:
    """Answer all questions; an error in one of them does not affect the others."""
    for question in QUESTIONS:
        yield answer_question(question, tables)


def answer_question(question: str, tables: Tables, *by: str) -> QuestionPage:
    """Answer one question, for the slices ``by``; an error is told in place of an answer."""
    try:
        answers = ask(question, tables, QuestionOptions(by=by))
    except KernelMatrixError as error:
        return QuestionPage(question=question, statement=str(error))
    except Exception as error:  # noqa: BLE001  # a page that reports one error is better than no page
        statement = f"This question could not be answered: {type(error).__name__}: {error}"
        return QuestionPage(question=question, statement=statement, broken=True)
    statement = "" if any(answer.table.height for answer in answers) else "The tables hold nothing about this."
    return QuestionPage(question=question, answers=tuple(map(cut_rows, answers)), statement=statement)


def cut_rows(answer: Answer) -> Answer:
    """Keep the first :data:`MOST` rows of ``answer``, with a note if it had more."""
    rows = answer.table.height
    if rows <= MOST:
        return answer
    note = f"The first {MOST:,} of {rows:,} rows are on this page."
    return replace(answer, table=answer.table.head(MOST).clone(), notes=(*answer.notes, note))
