"""``kernel-matrix problems``: list, show, check and try problems."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

from kernel_matrix.cli.collection import (
    Glob,
    Id,
    Source,
    SourcePath,
    candidate_document,
    plain,
    problem_document,
    unreadable_documents,
    warn_of_unreadable,
)
from kernel_matrix.cli.options import Json, Lock, Sandbox
from kernel_matrix.cli.table_options import TableOptions, table_verb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel_matrix.api.problems import LoadedSource, Problem

_WORKLOAD = typer.Option("", metavar="NAME", help="Name of the shapes; smoke where a problem has it, else its first.")
_DTYPE = typer.Option("", metavar="NAME", help="The dtype; each problem's first.")
_JOBS = typer.Option(0, metavar="N", min=0, help="Problems at the same time; as many as there are cores.")
_LIMIT = typer.Option(20.0, metavar="SECONDS", min=0.1, help="Seconds until a problem is given up.")
_MEMORY = typer.Option(8.0, metavar="GIB", min=0.1, help="Memory that each process of a problem may take.")
_TOOLCHAIN = typer.Option(
    "", metavar="NAME", help="The one whose image is used; ./matrix.toml's for the CPU, else the first here."
)


def register(app: typer.Typer) -> None:
    """Add the verbs to ``app``."""
    verbs = typer.Typer(help="List, show, check and try problems; only `try` runs them.", no_args_is_help=True)
    app.add_typer(verbs, name="problems")
    verbs.command("list")(table_verb(list_problems))
    verbs.command("show")(show_problem)
    verbs.command("check")(check_files)
    verbs.command("try")(try_problems)


def list_problems(glob: Glob = "*", source: Source = "", path: SourcePath = None, *, table: TableOptions) -> None:
    """List problems."""
    from kernel_matrix.api.problems import load_problems, matching

    loaded = load_problems(source, path)
    problems = matching(loaded.problems, glob)
    warn_of_unreadable(loaded)
    _print_list(problems, loaded, table)


def show_problem(id_: Id, source: Source = "", path: SourcePath = None, as_json: Json = False) -> None:
    """Show one problem with its workloads and candidates."""
    from kernel_matrix.api.problems import find_one, load_problems

    loaded = load_problems(source, path)
    _print_one(find_one(loaded.problems, id_, "problem"), loaded, as_json=as_json)


def check_files(source: Source = "", path: SourcePath = None, as_json: Json = False) -> None:
    """Check every file without running any; exit code 2 when one cannot be used."""
    from kernel_matrix.api.problems import load_problems, refuse_unreadable
    from kernel_matrix.cli.output import console, print_json

    loaded = load_problems(source, path)
    counts = {"problems": len(loaded.problems), "candidates": len(loaded.candidates)}
    if as_json:
        print_json({**counts, "unreadable": unreadable_documents(loaded)})
    else:
        console().print(f"{counts['problems']} problems and {counts['candidates']} candidates can be used")
    refuse_unreadable(loaded)


def try_problems(
    glob: Glob = "*",
    *,
    source: Source = "",
    path: SourcePath = None,
    workload: str = _WORKLOAD,
    dtype: str = _DTYPE,
    jobs: int = _JOBS,
    limit: float = _LIMIT,
    memory: float = _MEMORY,
    sandbox: Sandbox = "auto",
    toolchain: str = _TOOLCHAIN,
    lock: Lock = None,
    as_json: Json = False,
) -> None:
    """Run each reference on the CPU, confined, through the controls of a judge; exit code 2 when one fails."""
    from kernel_matrix.api.check_problems import check_problems
    from kernel_matrix.api.problems import load_problems, matching
    from kernel_matrix.cli.problem_check import ProblemCheckView, show_summary

    loaded = load_problems(source, path)
    with ProblemCheckView(as_json=as_json) as view:
        summary = check_problems(
            matching(loaded.problems, glob),
            workload=workload,
            dtype=dtype,
            jobs=jobs,
            limit_s=limit,
            memory_gib=memory,
            sandbox=sandbox,
            toolchain=toolchain,
            lock=lock,
            listener=view.tell,
        )
    show_summary(summary, loaded, as_json=as_json)
    summary.require_usable(loaded)


def _print_list(problems: tuple[Problem, ...], loaded: LoadedSource, table: TableOptions) -> None:
    from kernel_matrix.cli.table_writer import TableColumn, write_table

    counts = Counter(candidate.problem_id for candidate in loaded.candidates)

    def workloads(row: Mapping[str, Any]) -> str:
        return " ".join(workload["name"] for workload in row["workloads"])

    columns = (
        TableColumn(name="id", heading="problem"),
        TableColumn(name="category", rank=1),
        TableColumn(name="level", text=lambda row: str(row["level"] or ""), rank=3),
        TableColumn(name="dtypes", text=lambda row: " ".join(row["dtypes"]), shortest=12),
        TableColumn(name="workloads", value=workloads, text=workloads, rank=2),
        TableColumn(name="candidates", value=lambda row: counts[row["id"]], is_number=True),
        TableColumn(name="description", text=lambda row: row["description"], rank=4, wraps=True, shortest=24),
    )
    write_table([problem_document(problem) for problem in problems], columns, table)


def _print_one(problem: Problem, loaded: LoadedSource, *, as_json: bool) -> None:
    from rich.table import Table

    from kernel_matrix.cli.output import console, print_json

    candidates = [c for c in loaded.candidates if c.problem_id == problem.id]
    if as_json:
        print_json({**problem_document(problem), "candidates": [candidate_document(c) for c in candidates]})
        return
    facts = Table(box=None, show_header=False)
    for key, value in _facts(problem).items():
        facts.add_row(key, plain(value))
    screen = console()
    screen.print(facts)
    screen.print(_workload_table(problem))
    if candidates:
        table = Table("candidate", "language", "expected to end as", "description", box=None)
        for c in candidates:
            table.add_row(c.id, c.language.value, c.expect.value if c.expect else "", plain(c.description))
        screen.print(table)


def _facts(problem: Problem) -> dict[str, str]:
    level = "" if problem.level is None else f", level {problem.level}"
    notes = {
        "no outlier inputs": not problem.outliers,
        "writes into its inputs": problem.mutates_inputs,
        "random outputs": problem.random,
        f"calls by {problem.ranks} ranks together": problem.ranks > 1,
    }
    tolerance = [f"{name} {value:g}" for name, value in problem.tolerance.items()]
    facts = {
        "problem": problem.id,
        "what": problem.description,
        "category": f"{problem.category}{level}",
        "tags": " ".join(problem.tags),
        "dtypes": " ".join(dtype.value for dtype in problem.dtypes),
        "reference": str(problem.path),
        "notes": ", ".join([*(note for note, holds in notes.items() if holds), *tolerance]),
        "digest": problem.digest,
    }
    return {key: value for key, value in facts.items() if value}


def _workload_table(problem: Problem) -> object:
    from rich.table import Table

    table = Table("workload", "constants", "GFLOP", *(f"MB {d.value}" for d in problem.dtypes), box=None)
    for workload in problem.workloads:
        constants = " ".join(f"{name}={value}" for name, value in workload.values.items())
        flops = "" if workload.flops is None else f"{workload.flops / 1e9:,.4g}"
        sizes = [f"{workload.bytes[d] / 1e6:,.4g}" if d in workload.bytes else "" for d in problem.dtypes]
        mark = " (held out)" if workload.held_out else ""
        table.add_row(f"{workload.name}{mark}", plain(constants), flops, *sizes)
    return table
