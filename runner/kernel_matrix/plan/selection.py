"""Selection of a matrix's problems and candidates; all faults are reported together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

from kernel_matrix.config_files.faults import quote
from kernel_matrix.matrix import CandidateSet, Matrix, ProblemSet
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
from kernel_matrix.sources.other_ranks import with_ranks

REFERENCE = "@reference"
"""Marks globs that select references: a plain ``*`` never does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedProblem:
    """A problem with the workloads and candidates to run."""

    problem: Problem
    workloads: tuple[Workload, ...]
    """Of those that are shown; held-out ones are verified in any case."""
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Problems and candidates that a matrix selects."""

    problems: tuple[SelectedProblem, ...]
    unreadable: tuple[UnreadableItem, ...] = ()
    """Items that sources could not read; the others are still selected."""
    warnings: tuple[str, ...] = ()


LoadProblems = Callable[[str, Path | None], LoadedSource]
"""Reader of problems: (name of the source, folder)."""
LoadCandidates = Callable[[str, Path, Mapping[str, Problem]], tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]]
"""Reader of candidates in folders of their own: (name of the source, folder, all known problems)."""


@dataclass(frozen=True, slots=True)
class _LoadedSources:
    """Contents of all named folders, selected or not."""

    with_problems: Mapping[tuple[str, Path | None], LoadedSource]
    """(source, folder) → problems, with the candidates beside them."""
    separate: Mapping[tuple[str, Path | None], LoadedSource]
    """(source, folder) → candidates in folders of their own."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        return tuple(problem for loaded in self.with_problems.values() for problem in loaded.problems)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        return tuple(c for loaded in (*self.with_problems.values(), *self.separate.values()) for c in loaded.candidates)

    @property
    def unreadable(self) -> tuple[UnreadableItem, ...]:
        found = (
            item for loaded in (*self.with_problems.values(), *self.separate.values()) for item in loaded.unreadable
        )
        return tuple(dict.fromkeys(found))


def load_selection(
    matrix: Matrix, *, load: LoadProblems = load_source, load_candidates: LoadCandidates = load_candidates
) -> Selection:
    """Read all problems and candidates that ``matrix`` names and return those it selects.

    Raises:
        kernel_matrix.errors.ConfigError: One line per fault: a selection or glob that matches nothing, an unknown
            level, category, tag or workload, an id that two files claim, a folder that its source does not read.
    """
    findings = SelectionReport(matrix)
    loaded_sources = _load_sources(matrix, load, load_candidates, findings)
    if not findings.faults:  # an unreadable file may contain the missing item
        _check_rules(matrix, loaded_sources, findings)
    problems = _select_problems(matrix, loaded_sources, findings)
    candidates = _select_candidates(matrix, loaded_sources, [one[0].problem for one in problems], findings)
    findings.raise_faults(loaded_sources.unreadable)
    _warn_of_twins(candidates, findings)
    selected = _join(problems, candidates)
    _warn_of_bare_problems(selected, findings)
    return Selection(problems=selected, unreadable=loaded_sources.unreadable, warnings=tuple(findings.warnings))


def _join(
    problems: Iterable[tuple[SelectedProblem, ...]], candidates: Iterable[Candidate]
) -> tuple[SelectedProblem, ...]:
    by_problem: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_problem.setdefault(candidate.problem_id, []).append(candidate)
    return tuple(
        replace(selected, candidates=tuple(_candidates_for(selected.problem, by_problem)))
        for of_each_rank_count in problems
        for selected in of_each_rank_count
    )


def _candidates_for(problem: Problem, by_problem: Mapping[str, Sequence[Candidate]]) -> Iterator[Candidate]:
    """Yield the candidates of a problem; its reference has the content that the problem has with its ranks."""
    for candidate in by_problem.get(problem.id, ()):
        yield replace(candidate, digest=problem.digest) if is_reference(candidate) else candidate


# ---- reading


def _load_sources(
    matrix: Matrix, load: LoadProblems, load_candidates: LoadCandidates, findings: SelectionReport
) -> _LoadedSources:
    """Read each folder that the matrix names once; an unreadable folder becomes a fault and is left out."""
    with_problems: dict[tuple[str, Path | None], LoadedSource] = {}
    for i, chosen_set in enumerate(matrix.problems):
        if (chosen_set.source, chosen_set.path) not in with_problems:
            with findings.as_faults(f"problems[{i}].path"):
                with_problems[chosen_set.source, chosen_set.path] = load(chosen_set.source, chosen_set.path)
    known = {problem.id: problem for loaded in with_problems.values() for problem in loaded.problems}
    separate: dict[tuple[str, Path | None], LoadedSource] = {}
    for i, wanted in enumerate(matrix.candidates):
        if wanted.path is not None and (wanted.source, wanted.path) not in separate:
            with findings.as_faults(f"candidates[{i}].path"):
                candidates, unreadable = load_candidates(wanted.source, wanted.path, known)
                separate[wanted.source, wanted.path] = LoadedSource(candidates=candidates, unreadable=unreadable)
    return _LoadedSources(with_problems, separate)


# ---- problems


def _select_problems(
    matrix: Matrix, loaded_sources: _LoadedSources, findings: SelectionReport
) -> list[tuple[SelectedProblem, ...]]:
    """Return the selected problems, each with as many variants as it has numbers of ranks; without candidates."""
    chosen: dict[str, tuple[SelectedProblem, ...]] = {}
    for i, chosen_set in enumerate(matrix.problems):
        loaded = loaded_sources.with_problems.get((chosen_set.source, chosen_set.path))
        for problem in () if loaded is None else _problems_of(chosen_set, loaded, f"problems[{i}]", findings):
            workloads = tuple(
                w for w in problem.shown_workloads if not chosen_set.workloads or w.name in chosen_set.workloads
            )
            before = chosen[problem.id][0].problem if problem.id in chosen else None
            if not workloads:
                findings.warn(
                    f"problem {problem.id} is left out: it has no {' or '.join(chosen_set.workloads)} workload"
                )
            elif _is_new(problem, before, f"problems[{i}]", findings):
                names = {workload.name for workload in workloads}
                with findings.as_faults(f"problems[{i}].ranks"):
                    chosen[problem.id] = tuple(_variants(problem, names, chosen_set.ranks))
    return list(chosen.values())


def _variants(problem: Problem, workloads: Collection[str], ranks: tuple[int, ...]) -> Iterator[SelectedProblem]:
    """Yield the problem with each number of ranks; a problem of one rank, and for no numbers, as it is."""
    for number in ranks if problem.ranks > 1 and ranks else (problem.ranks,):
        variant = with_ranks(problem, number)
        kept = tuple(workload for workload in variant.shown_workloads if workload.name in workloads)
        yield SelectedProblem(problem=variant, workloads=kept, candidates=())


def _problems_of(
    chosen_set: ProblemSet, loaded: LoadedSource, key: str, findings: SelectionReport
) -> tuple[Problem, ...]:
    """Return the problems of one set and report its faults."""
    problems, before = loaded.problems, len(findings.faults)
    what = f"problem ({len(loaded.unreadable)} files cannot be read)" if loaded.unreadable else "problem"
    findings.check_globs(chosen_set.select, [p.id for p in problems], f"{key}.select", what)
    findings.check_words(chosen_set.levels, [p.level for p in problems], f"{key}.levels", "level")
    findings.check_words(chosen_set.categories, [p.category for p in problems], f"{key}.categories", "category")
    findings.check_words(chosen_set.tags, [tag for p in problems for tag in p.tags], f"{key}.tags", "tag")
    chosen = tuple(problem for problem in problems if _is_selected(problem, chosen_set))
    if not chosen and len(findings.faults) == before:
        findings.fault(key, "selects nothing: no problem satisfies all of select, levels, categories and tags at once")
    offered = [workload.name for problem in chosen for workload in problem.shown_workloads]
    if chosen:
        findings.check_words(chosen_set.workloads, offered, f"{key}.workloads", "workload")
    if chosen and chosen_set.ranks and all(problem.ranks == 1 for problem in chosen):
        findings.fault(f"{key}.ranks", "changes nothing: each selected problem is one of one rank")
    return chosen


def _is_selected(problem: Problem, chosen_set: ProblemSet) -> bool:
    return (
        matches(problem.id, chosen_set.select)
        and (not chosen_set.levels or problem.level in chosen_set.levels)
        and (not chosen_set.categories or problem.category in chosen_set.categories)
        and (not chosen_set.tags or not set(chosen_set.tags).isdisjoint(problem.tags))
    )


# ---- candidates


def _select_candidates(
    matrix: Matrix, loaded_sources: _LoadedSources, problems: Sequence[Problem], findings: SelectionReport
) -> list[Candidate]:
    references = [reference_candidate(problem) for problem in problems]
    selected = {problem.id for problem in problems}
    chosen: dict[str, Candidate] = {}
    for i, chosen_set in enumerate(matrix.candidates if problems else ()):
        if chosen_set.path is not None and (chosen_set.source, chosen_set.path) not in loaded_sources.separate:
            continue
        offered = [c for c in _offered(matrix, chosen_set, loaded_sources) if c.problem_id in selected] + references
        for candidate in _candidates_of(chosen_set, offered, f"candidates[{i}]", findings):
            if _is_new(candidate, chosen.get(candidate.id), f"candidates[{i}]", findings):
                chosen[candidate.id] = _with_origin(candidate, chosen_set)
    return list(chosen.values())


def _offered(matrix: Matrix, chosen_set: CandidateSet, loaded_sources: _LoadedSources) -> Iterator[Candidate]:
    """Return the candidates a set chooses from: those of its own folder, else those beside the problems."""
    if chosen_set.path is not None:
        yield from loaded_sources.separate[chosen_set.source, chosen_set.path].candidates
        return
    for folder in dict.fromkeys((problems.source, problems.path) for problems in matrix.problems):
        yield from loaded_sources.with_problems.get(folder, LoadedSource()).candidates


def _candidates_of(
    chosen_set: CandidateSet, offered: Sequence[Candidate], key: str, findings: SelectionReport
) -> list[Candidate]:
    """Return the candidates that a set's globs select; references only by globs that name them."""
    kept: dict[int, Candidate] = {}
    for j, glob in enumerate(chosen_set.select):
        eligible = [(n, c) for n, c in enumerate(offered) if is_reference(c) is (REFERENCE in glob)]
        found = {n: candidate for n, candidate in eligible if fnmatchcase(candidate.id, glob)}
        if not found:
            known = [candidate.id for _, candidate in eligible]
            findings.unknown(f"{key}.select[{j}]", glob, "candidate of the selected problems", known)
        kept.update(found)
    return [kept[n] for n in sorted(kept)]


def is_reference(candidate: Candidate) -> bool:
    """Return whether ``candidate`` is a problem's own reference."""
    return candidate.id.endswith(f"/{REFERENCE}")


def _with_origin(candidate: Candidate, chosen_set: CandidateSet) -> Candidate:
    """Return ``candidate`` with the origin given by its set, for fields that its side file leaves out."""
    origin = candidate.origin
    if is_reference(candidate) or (chosen_set.method is None and chosen_set.model is None):
        return candidate
    merged: Origin = replace(origin, method=origin.method or chosen_set.method, model=origin.model or chosen_set.model)
    return replace(candidate, origin=merged)


# ---- checks


def _is_new(item: Problem | Candidate, before: Problem | Candidate | None, key: str, findings: SelectionReport) -> bool:
    """Return whether ``item``'s id is new. The same file selected twice counts once; another file is a fault."""
    if before is None:
        return True
    noun = type(item).__name__.lower()
    if before.path == item.path:
        findings.warn(f"{noun} {item.id} is selected twice; the settings in {key} are ignored")
    else:
        findings.fault(key, f"{noun} id {quote(item.id)} is claimed by {before.path} and {item.path}; rename one")
    return False


def _check_rules(matrix: Matrix, loaded_sources: _LoadedSources, findings: SelectionReport) -> None:
    """Report rules that name problems or candidates that do not exist; unselected ones are fine."""
    problems = loaded_sources.problems
    known = {
        "problem": [problem.id for problem in problems],
        "candidate": [c.id for c in (*loaded_sources.candidates, *map(reference_candidate, problems))],
        "category": [problem.category for problem in problems],
    }
    rules = [(f"exclude[{i}]", rule.match) for i, rule in enumerate(matrix.exclude)]
    rules += [(f"include[{i}]", rule.match) for i, rule in enumerate(matrix.include)]
    rules += [(f"override[{i}].match", rule.match) for i, rule in enumerate(matrix.overrides)]
    for key, match in rules:
        for axis, globs in open_globs(match).items():
            findings.check_globs(globs, known[axis], f"{key}.{axis}", axis)
    offered = [workload.name for problem in problems for workload in problem.shown_workloads]
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
