"""``kernel-matrix analyze``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import typer

from kernel_matrix.api.wording import printable
from kernel_matrix.cli.opened_tables import opened
from kernel_matrix.cli.options import Filter, Folders
from kernel_matrix.cli.output import console, print_json, write_line
from kernel_matrix.cli.table_options import ALL_COLUMNS, TableFormat, TableOptions, split_list, table_verb
from kernel_matrix.cli.table_writer import TableColumn, write_table
from kernel_matrix.errors import UsageError, suggestion

if TYPE_CHECKING:
    from kernel_matrix.api.analyze import Answer

ABOUT: Final = {
    "scores": "how often candidates are right, and how fast: rates, fast_p, pass@k, fast_p@N, costs",
    "portability": "how much of a GPU's best each candidate reaches on every GPU of a set, and what passes on one only",
    "ranks": "whether the best candidate on one GPU is the best on another, and what it costs if not",
    "gpus": "how much faster one GPU is than another, on what, and whether its data sheet predicts it",
    "scaling": "how times and bandwidths change with the number of ranks that make a call together",
    "sensitivity": "what another dtype or toolchain does to times and verdicts",
    "variance": "where a time's noise comes from, and how many sessions a wanted precision needs",
    "sessions": "what fewer sessions would have said: wrong and undecided verdicts, and how far speed-ups are off",
    "attribution": "how much of correctness and speed-up category, method, GPU, toolchain and dtype explain",
    "code": "how large and complex sources are, and whether that goes with correctness and speed",
    "builds": "what compilers made of candidates on every kind of GPU: registers, spills, instructions, occupancy",
    "budgets": "what share of problems each method solves for the same dollars and tokens",
    "ab": "which of two methods, models or languages is better, problem by problem",
    "drift": "when times changed over many nights, and what changed with them",
}
"""Question → what it answers, in one line."""

_USED_BY: Final = {
    "by": ("--by", tuple(question for question in ABOUT if question not in ("scaling", "drift"))),
    "platforms": ("--platforms", ("portability", "ranks", "gpus", "sensitivity")),
    "thresholds": ("--p", ("scores",)),
    "draws": ("--k", ("scores",)),
    "margin": ("--margin", ("ranks", "drift")),
    "best_known": ("--best-known", ("portability",)),
    "weights": ("--weights", ("gpus",)),
}
"""Argument → its option, and the questions that use it."""

_ROWS: Final = 50
"""Rows of a table that people get without ``--limit``."""
_Value = TypeVar("_Value")


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command()(table_verb(analyze))


def analyze(  # noqa: PLR0917  # typer passes options by name
    question: str = typer.Argument("", help=f"One of {', '.join(ABOUT)}.", show_default=False),
    folders: Folders = None,
    by: list[str] = typer.Option(None, metavar="A,B", help="Slice by these: gpu,dtype,method,…"),
    platforms: list[str] = typer.Option(None, metavar="A,B", help="GPUs that are compared; default: all."),
    p: list[str] = typer.Option(None, metavar="A,B", help="The p of fast_p."),
    k: list[str] = typer.Option(None, metavar="A,B", help="The k of pass@k."),
    margin: float = typer.Option(None, help="Differences up to this share are none.", show_default=False),
    best_known: Path | None = typer.Option(
        None, metavar="FILE", help="Frozen table of best-known times, for portability.", show_default=False
    ),
    freeze: Path | None = typer.Option(
        None,
        "--freeze-best-known",
        metavar="FILE",
        help="First write the best times of these tables to FILE, and use them; for portability.",
        show_default=False,
    ),
    weights: Path | None = typer.Option(
        None, metavar="FILE", help="Weights of problems and categories, for gpus.", show_default=False
    ),
    explain: bool = typer.Option(False, "--explain", help="Also say what each column means."),
    *,
    filter_: Filter = None,
    table: TableOptions,
) -> None:
    """Answer a question from all results together: scores, portability, ranks, variance and more."""
    _check_question(question)
    if best_known is not None and freeze is not None:
        raise UsageError("--best-known and --freeze-best-known exclude each other", next_step="Leave one out.")
    from kernel_matrix.api.analyze import analyze as ask
    from kernel_matrix.api.analyze import freeze_best_known

    given: dict[str, Any] = {
        "by": _listed(by, str, "--by"),
        "platforms": _listed(platforms, str, "--platforms"),
        "thresholds": _listed(p, float, "--p"),
        "draws": _listed(k, int, "--k"),
        "margin": margin,
        "best_known": best_known if freeze is None else freeze,
        "weights": weights,
    }
    given = {name: value for name, value in given.items() if value not in (None, ())}
    _check(question, given)
    with opened(folders or [Path("results")], filter_) as results:
        if freeze is not None:
            best = freeze_best_known(results, freeze)
            line = f"{freeze}: {best.table.height} best-known times, content hash {best.sha256}"
            console(stderr=True).print(printable(line), markup=False)
        answers = ask(question, results, **given)
    _write(question, given, answers, table, explain=explain)


def _write(
    question: str, given: Mapping[str, Any], answers: list[Answer], table: TableOptions, *, explain: bool
) -> None:
    """Write the answers in the form that ``table`` asks for."""
    table.check(name for answer in answers for name in answer.table.columns)
    if table.as_json:
        print_json(_document(question, given.get("by", ()), answers))
        return
    answers = _with_columns(answers, table.columns)
    if table.for_people:
        _print(answers, replace(table, limit=table.limit or _ROWS), explain=explain)
    else:
        for number, answer in enumerate(answers):
            if number and table.format is TableFormat.MARKDOWN:
                write_line("")  # it would belong to the table before
            write_table(*_table(answer), table, title=answer.title if len(answers) > 1 else "", checked=True)


def _added_questions() -> dict[str, str]:
    """Return the questions of other packages with the first line of their docstrings."""
    from kernel_matrix.api.analyze import QUESTIONS

    added = {name: question for name, question in QUESTIONS.usable().items() if name not in ABOUT}
    return {name: (question.__doc__ or "").strip().partition("\n")[0] for name, question in added.items()}


def _check_question(question: str) -> None:
    """Refuse what is no question.

    Raises:
        UsageError: It is none of ours, nor of another package.
    """
    if question not in ABOUT and question not in (added := _added_questions()):
        known = "\n".join(f"      {name:<12} {line}" for name, line in {**ABOUT, **added}.items())
        close = suggestion(question, [*ABOUT, *added])
        problem = f"{question!r} is no question{close}" if question else "no question was asked"
        raise UsageError(problem, next_step=f"Ask one of\n{known}")


def _check(question: str, given: Mapping[str, Any]) -> None:
    """Refuse options that the question does not use, so that they are not believed to have had an effect.

    Raises:
        UsageError: For such an option, and for a margin that is no share.
    """
    for name, (option, questions) in _USED_BY.items():
        if name in given and question in ABOUT and question not in questions:
            raise UsageError(
                f"{question} does not look at {option}", next_step=f"Leave it out, or ask {' or '.join(questions)}."
            )
    if not 0 <= given.get("margin", 0.0) < 1:
        raise UsageError(
            f"--margin {given['margin']:g} is no share from 0 to below 1", next_step="Give for example 0.02."
        )


def _listed(texts: Sequence[str] | None, kind: Callable[[str], _Value], option: str) -> tuple[_Value, ...]:
    """Return the parts between commas of an option that may be given several times.

    Raises:
        UsageError: Where one is no ``kind``.
    """
    try:
        return tuple(kind(part) for part in split_list(texts))
    except ValueError:
        raise UsageError(
            f"{option} {','.join(texts or ())!r} is no list of numbers", next_step="Give for example 1,2,5."
        ) from None


def _with_columns(answers: list[Answer], names: Sequence[str]) -> list[Answer]:
    """Return the answers whose tables have all of these columns.

    Raises:
        UsageError: There are none.
    """
    wanted = set(names) - {ALL_COLUMNS}
    having = [answer for answer in answers if wanted <= set(answer.table.columns)]
    if not having:
        raise UsageError(f"no table has all of {', '.join(names)}", next_step="Ask for columns of one table.")
    return having


def _document(question: str, by: Sequence[str], answers: Sequence[Answer]) -> dict[str, Any]:
    return {
        "question": question,
        "by": list(by),
        "answers": [
            {
                "name": answer.name,
                "title": answer.title,
                "statements": list(answer.statements),
                "rows": answer.table.to_dicts(),
                "meanings": dict(answer.meanings),
                "notes": list(answer.notes),
            }
            for answer in answers
        ],
    }


def _print(answers: Sequence[Answer], table: TableOptions, *, explain: bool) -> None:
    out = console()
    for number, answer in enumerate(answers):
        if number:
            out.print()
        out.print(printable(answer.title), style="bold", markup=False)
        for statement in answer.statements:
            out.print(printable(statement), markup=False)
        if not answer.table.is_empty():
            write_table(*_table(answer), table, checked=True)
        elif not (answer.notes or answer.statements):
            out.print("There is nothing to show.")
        if explain:
            for name in answer.table.columns:
                if name in answer.meanings:
                    out.print(printable(f"{name}: {answer.meanings[name]}"), markup=False)
        for note in answer.notes:
            out.print(f"- {printable(note)}", markup=False)


def _table(answer: Answer) -> tuple[list[dict[str, Any]], list[TableColumn]]:
    """Return the rows and columns of an answer; the last columns are left out first."""
    schema = answer.table.schema
    columns = [
        TableColumn(name=name, is_number=kind.is_numeric(), rank=rank, shortest=None if kind.is_numeric() else 12)
        for rank, (name, kind) in enumerate(schema.items())
    ]
    return answer.table.to_dicts(), columns
