"""Which problems and candidates a matrix selects, or every fault of the selection at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from kernel_matrix.matrix import CandidateSet, Matrix, ProblemSet
from kernel_matrix.matrix.complaints import quote
from kernel_matrix.matrix.globs import matches
from kernel_matrix.plan.rule_masks import open_globs
from kernel_matrix.plan.selection_report import SelectionReport, few
from kernel_matrix.sources import (
    Candidate,
    LoadedSource,
    Origin,
    Problem,
    UnreadableItem,
    Workload,
    load_candidates,
    load_source,
    reference_candidate,
)

REFERENCE = "@reference"
"""Marks globs that select references: a plain ``*`` never does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedProblem:
    """A problem with the workloads and candidates to run."""

    problem: Problem
    workloads: tuple[Workload, ...]
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a matrix selects."""

    problems: tuple[SelectedProblem, ...]
    unreadable: tuple[UnreadableItem, ...] = ()
    """What sources could not read; the rest goes on."""
    warnings: tuple[str, ...] = ()


LoadProblems = Callable[[str, Path | None], LoadedSource]
"""Reads problems: name of the source, where they are."""
LoadCandidates = Callable[[str, Path, Mapping[str, Problem]], tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]]
"""Reads candidates kept apart from their problems: name of the source, where they are, all known problems."""


@dataclass(frozen=True, slots=True)
class _Shelves:
    """Everything the named folders hold, selected or not."""

    beside: Mapping[tuple[str, Path | None], LoadedSource]
    """(source, place) → problems, and the candidates beside them."""
    apart: Mapping[tuple[str, Path | None], LoadedSource]
    """(source, place) → candidates kept apart."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(problem for loaded in self.beside.values() for problem in loaded.problems)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        return tuple(c for loaded in (*self.beside.values(), *self.apart.values()) for c in loaded.candidates)

    @property
    def unreadable(self) -> tuple[UnreadableItem, ...]:
        found = (item for loaded in (*self.beside.values(), *self.apart.values()) for item in loaded.unreadable)
        return tuple(dict.fromkeys(found))


def load_selection(
    matrix: Matrix, *, load: LoadProblems = load_source, load_candidates: LoadCandidates = load_candidates
) -> Selection:
    """Read all problems and candidates that ``matrix`` names and keep those it selects.

    :raises kernel_matrix.errors.MatrixError: one line per fault: a selection or glob that matches nothing, an unknown
        level, category, tag or workload, an id that two files claim, a folder that its source does not read.
    """
    findings = SelectionReport(matrix)
    shelves = _fill_shelves(matrix, load, load_candidates, findings)
    if not findings.faults:  # what a folder holds that cannot be read is unknown
        _check_rules(matrix, shelves, findings)
    problems = _select_problems(matrix, shelves, findings)
    candidates = _select_candidates(matrix, shelves, [problem for problem, _ in problems], findings)
    findings.raise_faults()
    _warn_of_twins(candidates, findings)
    selected = _join(problems, candidates)
    _warn_of_bare_problems(selected, findings)
    return Selection(problems=selected, unreadable=shelves.unreadable, warnings=tuple(findings.warnings))


def _join(
    problems: Iterable[tuple[Problem, tuple[Workload, ...]]], candidates: Iterable[Candidate]
) -> tuple[SelectedProblem, ...]:
    by_problem: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_problem.setdefault(candidate.problem_id, []).append(candidate)
    return tuple(
        SelectedProblem(problem=problem, workloads=workloads, candidates=tuple(by_problem.get(problem.id, ())))
        for problem, workloads in problems
    )


# ---- reading


def _fill_shelves(
    matrix: Matrix, load: LoadProblems, load_candidates: LoadCandidates, findings: SelectionReport
) -> _Shelves:
    """Each folder that the matrix names, read once; one that cannot be read is a fault and left out."""
    beside: dict[tuple[str, Path | None], LoadedSource] = {}
    for i, wish in enumerate(matrix.problems):
        if (wish.source, wish.path) not in beside:
            with findings.as_faults(f"problems[{i}].path"):
                beside[wish.source, wish.path] = load(wish.source, wish.path)
    known = {problem.id: problem for loaded in beside.values() for problem in loaded.problems}
    apart: dict[tuple[str, Path | None], LoadedSource] = {}
    for i, wanted in enumerate(matrix.candidates):
        if wanted.path is not None and (wanted.source, wanted.path) not in apart:
            with findings.as_faults(f"candidates[{i}].path"):
                candidates, unreadable = load_candidates(wanted.source, wanted.path, known)
                apart[wanted.source, wanted.path] = LoadedSource(candidates=candidates, unreadable=unreadable)
    return _Shelves(beside, apart)


# ---- problems


def _select_problems(
    matrix: Matrix, shelves: _Shelves, findings: SelectionReport
) -> list[tuple[Problem, tuple[Workload, ...]]]:
    chosen: dict[str, tuple[Problem, tuple[Workload, ...]]] = {}
    for i, wish in enumerate(matrix.problems):
        loaded = shelves.beside.get((wish.source, wish.path))
        for problem in () if loaded is None else _problems_of(wish, loaded, f"problems[{i}]", findings):
            workloads = tuple(w for w in problem.workloads if not wish.workloads or w.name in wish.workloads)
            before = chosen.get(problem.id, (None,))[0]
            if not workloads:
                findings.warn(f"problem {problem.id} is left out: it has no {' or '.join(wish.workloads)} workload")
            elif _is_new(problem, before, f"problems[{i}]", findings):
                chosen[problem.id] = (problem, workloads)
    return list(chosen.values())


def _problems_of(wish: ProblemSet, loaded: LoadedSource, key: str, findings: SelectionReport) -> tuple[Problem, ...]:
    """The problems of one set; what is wrong with the set is found on the way."""
    problems, before = loaded.problems, len(findings.faults)
    what = f"problem ({len(loaded.unreadable)} files cannot be read)" if loaded.unreadable else "problem"
    findings.check_globs(wish.select, [p.id for p in problems], f"{key}.select", what)
    findings.check_words(wish.levels, [p.level for p in problems], f"{key}.levels", "level")
    findings.check_words(wish.categories, [p.category for p in problems], f"{key}.categories", "category")
    findings.check_words(wish.tags, [tag for p in problems for tag in p.tags], f"{key}.tags", "tag")
    chosen = tuple(problem for problem in problems if _is_wished(problem, wish))
    if not chosen and len(findings.faults) == before:
        findings.fault(key, "selects nothing: no problem satisfies all of select, levels, categories and tags at once")
    offered = [workload.name for problem in chosen for workload in problem.workloads]
    if chosen:
        findings.check_words(wish.workloads, offered, f"{key}.workloads", "workload")
    return chosen


def _is_wished(problem: Problem, wish: ProblemSet) -> bool:
    return (
        matches(problem.id, wish.select)
        and (not wish.levels or problem.level in wish.levels)
        and (not wish.categories or problem.category in wish.categories)
        and (not wish.tags or not set(wish.tags).isdisjoint(problem.tags))
    )


# ---- candidates


def _select_candidates(
    matrix: Matrix, shelves: _Shelves, problems: Sequence[Problem], findings: SelectionReport
) -> list[Candidate]:
    references = [reference_candidate(problem) for problem in problems]
    selected = {problem.id for problem in problems}
    chosen: dict[str, Candidate] = {}
    for i, wish in enumerate(matrix.candidates if problems else ()):
        if wish.path is not None and (wish.source, wish.path) not in shelves.apart:
            continue
        offered = [c for c in _offered(matrix, wish, shelves) if c.problem_id in selected] + references
        for candidate in _candidates_of(wish, offered, f"candidates[{i}]", findings):
            if _is_new(candidate, chosen.get(candidate.id), f"candidates[{i}]", findings):
                chosen[candidate.id] = _with_origin(candidate, wish)
    return list(chosen.values())


def _offered(matrix: Matrix, wish: CandidateSet, shelves: _Shelves) -> Iterator[Candidate]:
    """What a set chooses from: the candidates of its own folder, or all that are beside the problems."""
    if wish.path is not None:
        yield from shelves.apart[wish.source, wish.path].candidates
        return
    for folder in dict.fromkeys((problems.source, problems.path) for problems in matrix.problems):
        yield from shelves.beside.get(folder, LoadedSource()).candidates


def _candidates_of(
    wish: CandidateSet, offered: Sequence[Candidate], key: str, findings: SelectionReport
) -> list[Candidate]:
    """The candidates that a set's globs select; references only by globs that name them."""
    kept: dict[int, Candidate] = {}
    for j, glob in enumerate(wish.select):
        eligible = [(n, c) for n, c in enumerate(offered) if is_reference(c) is (REFERENCE in glob)]
        found = {n: candidate for n, candidate in eligible if fnmatchcase(candidate.id, glob)}
        if not found:
            known = [candidate.id for _, candidate in eligible]
            findings.unknown(f"{key}.select[{j}]", glob, "candidate of the selected problems", known)
        kept.update(found)
    return [kept[n] for n in sorted(kept)]


def is_reference(candidate: Candidate) -> bool:
    """Whether ``candidate`` is a problem's own reference."""
    return candidate.id.endswith(f"/{REFERENCE}")


def _with_origin(candidate: Candidate, wish: CandidateSet) -> Candidate:
    """``candidate`` with what its set says of its origin, where its own side file is silent."""
    origin = candidate.origin
    if is_reference(candidate) or (wish.method is None and wish.model is None):
        return candidate
    told: Origin = replace(origin, method=origin.method or wish.method, model=origin.model or wish.model)
    return replace(candidate, origin=told)


# ---- checks


def _is_new(item: Problem | Candidate, before: Problem | Candidate | None, key: str, findings: SelectionReport) -> bool:
    """Whether ``item``'s id is not taken; the same file selected twice counts once, another file is a fault."""
    if before is None:
        return True
    noun = type(item).__name__.lower()
    if before.path == item.path:
        findings.warn(f"{noun} {item.id} is selected twice; what {key} says of it does not count")
    else:
        findings.fault(key, f"{noun} id {quote(item.id)} is claimed by {before.path} and {item.path}; rename one")
    return False


def _check_rules(matrix: Matrix, shelves: _Shelves, findings: SelectionReport) -> None:
    """Rules may speak of what is not selected now, but not of what does not exist."""
    problems = shelves.problems
    known = {
        "problem": [problem.id for problem in problems],
        "candidate": [c.id for c in (*shelves.candidates, *map(reference_candidate, problems))],
        "category": [problem.category for problem in problems],
    }
    rules = [(f"exclude[{i}]", rule.match) for i, rule in enumerate(matrix.exclude)]
    rules += [(f"include[{i}]", rule.match) for i, rule in enumerate(matrix.include)]
    rules += [(f"override[{i}].match", rule.match) for i, rule in enumerate(matrix.overrides)]
    for key, match in rules:
        for axis, globs in open_globs(match).items():
            findings.check_globs(globs, known[axis], f"{key}.{axis}", axis)
    offered = [workload.name for problem in problems for workload in problem.workloads]
    for i, override in enumerate(matrix.overrides):
        findings.check_words(override.workloads, offered, f"override[{i}].workloads", "workload")


def _warn_of_twins(candidates: Iterable[Candidate], findings: SelectionReport) -> None:
    seen: dict[tuple[object, ...], str] = {}
    for candidate in candidates:
        content = (candidate.problem_id, candidate.digest, candidate.language, candidate.entry)
        first = seen.setdefault(content, candidate.id)
        if candidate.digest and first != candidate.id:
            findings.warn(f"candidates {first} and {candidate.id} have the same content")


def _warn_of_bare_problems(selected: Iterable[SelectedProblem], findings: SelectionReport) -> None:
    bare = [item.problem.id for item in selected if not item.candidates]
    if bare:
        findings.warn(f"selected problems without a candidate: {few(bare)}")
