"""Problems in folders of their own: ``<name>/problem.toml``, ``reference.py`` and ``candidates/<candidate>.py``.

A candidate may also be one CUDA file, ``<candidate>.cu``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Dtype, Language, Status
from kernel_matrix.model.messages import ContractSpec
from kernel_matrix.sources import Candidate, LoadedSource, Origin, Problem, UnreadableItem, Workload
from kernel_matrix.sources.document import (
    TomlDocument,
    UnreadableFileError,
    read_bytes,
    read_document,
    read_each,
    suggestion,
)
from kernel_matrix.sources.formula import FormulaError, evaluate
from kernel_matrix.sources.native.candidate import FUNCTION, LANGUAGES, SUFFIX, read_native
from kernel_matrix.sources.reference_module import ReferenceModule, Value, detect_language, digest_of, read_reference

PROBLEM_FILE = "problem.toml"
REFERENCE_FILE = "reference.py"
CANDIDATE_FOLDER = "candidates"

LIBRARY_FILE = "library.py"
"""The same as the call of a vendor's library, where there is one."""

ITEMSIZES = {
    Dtype.FP64: 8,
    Dtype.FP32: 4,
    Dtype.TF32: 4,
    Dtype.FP16: 2,
    Dtype.BF16: 2,
    Dtype.FP8_E4M3: 1,
    Dtype.FP8_E5M2: 1,
    Dtype.INT32: 4,
    Dtype.INT8: 1,
    Dtype.BOOL: 1,
}
"""Bytes of one element of an input: what ``itemsize`` stands for in a formula."""

_SUFFIXES = (".py", SUFFIX)
"""What the files of candidates end in."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_NAME_RULE = "must be letters, digits, '.', '_' and '-', and begin with a letter or digit"


def load(root: Path, *, name: str) -> LoadedSource:
    """Read every problem folder under ``root``; see :class:`kernel_matrix.sources.Source`.

    :raises kernel_matrix.errors.UsageError: when ``root`` is no folder or holds no problem folder.
    """
    folders = _problem_folders(root)
    problems, unreadable = read_each(folders, lambda folder: _read_problem(folder, name))
    candidates, bad_candidates = _candidates_in((p.id, p.path.parent / CANDIDATE_FOLDER) for p in problems)
    return LoadedSource(problems=problems, candidates=candidates, unreadable=unreadable + bad_candidates)


def load_candidates(
    path: Path, problems: Mapping[str, Problem]
) -> tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]:
    """Read candidates kept apart from their problems: ``<path>/<problem id>/<name>.py`` with side files.

    :param problems: all problems that are known, by id; a folder of candidates for any other is unreadable.
    :raises kernel_matrix.errors.UsageError: when ``path`` is no folder.
    """
    if not path.is_dir():
        raise UsageError(f"{path} is no folder", next_step="name a folder <problem id>/<candidate>.py")
    candidates, unreadable = _candidates_in((id_, path / id_) for id_ in problems)
    return candidates, unreadable + tuple(_strangers(path, problems))


def _problem_folders(root: Path) -> list[Path]:
    form = f"name a folder that holds <problem>/{PROBLEM_FILE}"
    if not root.is_dir():
        raise UsageError(f"problems: {root} is no folder", next_step=form)
    marks = (PROBLEM_FILE, REFERENCE_FILE, CANDIDATE_FOLDER)
    folders = sorted(f for f in root.iterdir() if any((f / mark).exists() for mark in marks))
    if not folders:
        raise UsageError(f"problems: {root} holds no problem", next_step=form)
    return folders


def _read_problem(folder: Path, source: str) -> Problem:
    _check_name(folder, folder.name)
    document = read_document(folder / PROBLEM_FILE, "problem")
    reference = read_reference(folder / REFERENCE_FILE)
    values = document.values
    workloads = tuple(_read_workload(document, reference, name) for name in values["workloads"])
    flags = {"outliers": values.get("outliers", True), "mutates_inputs": values.get("mutates_inputs", False)}
    tolerance = values.get("tolerance", {})
    contract = ContractSpec(**values["contract"]) if "contract" in values else None
    random = values.get("random", False)
    library = folder / LIBRARY_FILE if (folder / LIBRARY_FILE).exists() else None
    facts = {
        "workloads": _canonical(workloads),
        "tolerance": tolerance,
        **flags,
        **_extras(contract, library, random=random),
    }
    return Problem(
        id=folder.name,
        source=source,
        path=reference.path,
        category=values["category"],
        level=values.get("level"),
        tags=tuple(values.get("tags", ())),
        dtypes=_dtypes(values),
        workloads=workloads,
        tolerance=tolerance,
        random=random,
        contract=contract,
        library=library,
        digest=digest_of(reference.source, facts),
        description=values["description"],
        **flags,
    )


def _extras(contract: ContractSpec | None, library: Path | None, *, random: bool) -> dict[str, Any]:
    """What few problems have; left out of the digests of all others."""
    extras: dict[str, Any] = {}
    if contract is not None:
        extras["contract"] = asdict(contract)
    if library is not None:
        extras["library"] = hashlib.sha256(read_bytes(library)).hexdigest()
    if random:
        extras["random"] = random
    return extras


def _canonical(workloads: Iterable[Workload]) -> list[Any]:
    return [
        {"name": w.name, "values": w.values, "flops": w.flops, "bytes": {d.value: n for d, n in w.bytes.items()}}
        for w in workloads
    ]


def _read_workload(document: TomlDocument, reference: ReferenceModule, name: str) -> Workload:
    values: Mapping[str, Value] = document.values["workloads"][name]
    for constant in values:
        _check_constant(document, reference, name, constant)
    numbers = reference.numbers(values)
    sizes = ITEMSIZES if "bytes" in document.values else {}
    return Workload(
        name=name,
        values=values,
        flops=_formula(document, "flops", name, numbers) if "flops" in document.values else None,
        bytes={d: _formula(document, "bytes", name, numbers | {"itemsize": size}) for d, size in sizes.items()},
    )


def _check_constant(document: TomlDocument, reference: ReferenceModule, workload: str, name: str) -> None:
    """A workload may replace a plain constant by a value of its kind."""
    keys = ("workloads", workload, name)
    values = document.values["workloads"][workload]
    if name not in reference.constants:
        known = sorted(reference.constants)
        reason = f"{reference.path.name} has no such constant; it has: {', '.join(known)}{suggestion(name, known)}"
        raise document.error(reason, *keys)
    constant = reference.constants[name].value
    if constant is not None and not _same_kind(values[name], constant):
        wanted = f"{type(constant).__name__}, as in {reference.path.name}:{reference.constants[name].line}"
        raise document.error(f"must be {wanted}; got {values[name]!r}", *keys)
    for other in reference.dependents(name):
        if other not in values:
            place = f"{reference.path.name}:{reference.constants[other].line}"
            raise document.error(f"{other} is computed from it ({place}) and needs a value here too", *keys)


def _same_kind(value: Value, constant: Value) -> bool:
    whole_for_real = type(value) is int and type(constant) is float
    return whole_for_real or type(value) is type(constant)


def _formula(document: TomlDocument, key: str, workload: str, names: Mapping[str, int | float]) -> float:
    try:
        value = evaluate(document.values[key], names)
    except FormulaError as error:
        raise document.error(f"{error} (workload {workload})", key) from None
    if value < 0:
        raise document.error(f"is {value:g} for workload {workload}; must not be negative", key)
    return value


def _candidates_in(
    folders: Iterable[tuple[str, Path]],
) -> tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]:
    """The candidates of each (problem id, folder); a folder that does not exist has none."""
    found: list[Candidate] = []
    refused: list[UnreadableItem] = []
    for problem_id, folder in folders:
        files = sorted(file for suffix in _SUFFIXES for file in folder.glob(f"*{suffix}"))
        good, bad = read_each(files, partial(_read_candidate, problem_id=problem_id))
        found += good
        refused += [*bad, *_lonely(folder)]
    return tuple(found), tuple(refused)


def _read_candidate(path: Path, problem_id: str) -> Candidate:
    _check_name(path, path.stem)
    source = read_bytes(path)
    _check_alone(path)
    side = path.with_suffix(".toml")
    document = read_document(side, "candidate") if side.exists() else TomlDocument(side, {}, "")
    values = document.values
    code = _native_code(path, source, document) if path.suffix == SUFFIX else _python_code(source, values)
    return Candidate(
        id=f"{problem_id}/{path.stem}",
        problem_id=problem_id,
        path=path,
        dtypes=_dtypes(values),
        origin=Origin(**values.get("origin", {})),
        expect=Status(values["expect"]) if "expect" in values else None,
        description=values.get("description", ""),
        **code,
    )


def _python_code(source: bytes, values: Mapping[str, Any]) -> dict[str, Any]:
    language = Language(values["language"]) if "language" in values else detect_language(source)
    entry = values.get("entry", "ModelNew")
    facts = {"language": language.value, "entry": entry}
    return {"language": language, "entry": entry, "digest": digest_of(source, facts)}


def _native_code(path: Path, source: bytes, document: TomlDocument) -> dict[str, Any]:
    function = document.values.get("entry", FUNCTION)
    if "entry" in document.values and not re.search(rb"\b%s\b" % function.encode(), source):
        raise document.error(f"{path.name} has nothing called {function!r}", "entry")
    native = read_native(path.name, source, function)
    language = Language(document.values.get("language", native.language))
    if language not in LANGUAGES:
        allowed = ", ".join(sorted(it.value for it in LANGUAGES))
        raise document.error(f"{path.name} cannot be {language.value}; allowed: {allowed}", "language")
    facts = {"language": language.value, "entry": function, "adapter": native.adapter}
    return {
        "language": language,
        "adapter": native.adapter,
        "beside": native.beside,
        "defines": function,
        "digest": digest_of(source, facts),
    }


def _check_alone(path: Path) -> None:
    """Of two files with one name neither is taken: nobody can say whose the id and the side file are."""
    twins = [other.name for suffix in _SUFFIXES if (other := path.with_suffix(suffix)) != path and other.exists()]
    if twins:
        raise UnreadableFileError(path, f"{twins[0]} beside it has the same name, and an id is of one file; rename one")


def _dtypes(values: Mapping[str, Any]) -> tuple[Dtype, ...]:
    return tuple(Dtype(name) for name in values.get("dtypes", ()))


def _lonely(folder: Path) -> Iterator[UnreadableItem]:
    """Side files whose candidate is missing, most likely after a rename."""
    for side in sorted(folder.glob("*.toml")):
        if not any(side.with_suffix(suffix).exists() for suffix in _SUFFIXES):
            first, *others = (side.with_suffix(suffix).name for suffix in _SUFFIXES)
            reason = f"describes {first}, which is not beside it, and neither is {', '.join(others)}"
            yield UnreadableItem(path=side, reason=reason)


def _strangers(root: Path, problems: Mapping[str, Problem]) -> Iterator[UnreadableItem]:
    """Folders with candidates for a problem that nobody knows."""
    for folder in sorted({file.parent for suffix in _SUFFIXES for file in root.rglob(f"*{suffix}")}):
        problem_id = folder.relative_to(root).as_posix()
        if problem_id not in problems and "__pycache__" not in folder.parts:
            hint = suggestion(problem_id, list(problems))
            yield UnreadableItem(
                path=folder, reason=f"holds candidates for {problem_id!r}, which is no known problem{hint}"
            )


def _check_name(path: Path, name: str) -> None:
    if not _NAME.match(name):
        raise UnreadableFileError(path, f"the name {name!r} cannot be part of an id; {_NAME_RULE}")
