"""Problems in folders: ``<name>/problem.toml``, ``reference.py`` and ``candidates/<candidate>`` with a suffix."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from kernel_matrix.errors import UsageError, suggestion
from kernel_matrix.model.enums import CollectiveKind, Dtype, Language, Status
from kernel_matrix.model.messages import ContractSpec
from kernel_matrix.sources import Candidate, LoadedSource, Origin, Problem, UnreadableItem, Workload
from kernel_matrix.sources.document import (
    ID_FORM,
    TomlDocument,
    UnreadableFileError,
    read_bytes,
    read_document,
    read_each,
)
from kernel_matrix.sources.formula import FormulaError, evaluate
from kernel_matrix.sources.native.candidate import FUNCTION, LANGUAGES, read_native
from kernel_matrix.sources.reference_module import ReferenceModule, Value, detect_language, digest_of, read_reference

PROBLEM_FILE = "problem.toml"
REFERENCE_FILE = "reference.py"
CANDIDATE_FOLDER = "candidates"

LIBRARY_FILE = "library.py"
"""Optional module whose ``ModelNew`` calls a vendor's library."""

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
"""Bytes of one element of an input, the value of ``itemsize`` in a formula."""

HELD_OUT = "held_out"
"""Key of a workload that is no constant."""

SUFFIXES = (".py", *LANGUAGES)
"""Suffixes of candidate files."""

_NAME_RULE = "it must have letters, digits, '.', '_' and '-', and start with a letter or digit"


def load(root: Path, *, name: str) -> LoadedSource:
    """Read every problem folder under ``root``; see :class:`kernel_matrix.sources.Source`."""
    folders = _problem_folders(root)
    problems, unreadable = read_each(folders, lambda folder: read_problem(folder, name))
    candidates, bad_candidates = _read_candidates((p.id, p.path.parent / CANDIDATE_FOLDER) for p in problems)
    return LoadedSource(problems=problems, candidates=candidates, unreadable=unreadable + bad_candidates)


def load_candidates(
    path: Path, problems: Mapping[str, Problem]
) -> tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]:
    """Read ``<path>/<problem id>/<name>.py`` with side files; see :func:`kernel_matrix.sources.load_candidates`."""
    if not path.is_dir():
        raise UsageError(f"{path} is not a folder", next_step="name a folder <problem id>/<candidate>.py")
    candidates, unreadable = _read_candidates((id_, path / id_) for id_ in problems)
    return candidates, unreadable + tuple(_find_unknown_problems(path, problems))


def _problem_folders(root: Path) -> list[Path]:
    form = f"name a folder that holds <problem>/{PROBLEM_FILE}"
    if not root.is_dir():
        raise UsageError(f"problems: {root} is not a folder", next_step=form)
    marks = (PROBLEM_FILE, REFERENCE_FILE, CANDIDATE_FOLDER)
    folders = sorted(f for f in root.iterdir() if any((f / mark).exists() for mark in marks))
    if not folders:
        raise UsageError(f"problems: {root} has no problem", next_step=form)
    return folders


def read_problem(folder: Path, source: str, *, ranks: int | None = None) -> Problem:
    """Read one problem folder.

    Args:
        folder: The folder.
        source: Registry key of the source.
        ranks: Number of ranks in place of the one in its file.

    Raises:
        UnreadableFileError: It cannot be used.
    """
    _check_name(folder, folder.name)
    document = read_document(folder / PROBLEM_FILE, "problem")
    if ranks is not None:
        document = replace(document, values={**document.values, "ranks": ranks})
    reference = read_reference(folder / REFERENCE_FILE)
    values = document.values
    ranks = _ranks(document)
    collective = _collective(document, ranks)
    workloads = tuple(_read_workload(document, reference, name, ranks) for name in values["workloads"])
    _check_held_out(document, reference, workloads)
    flags = {"outliers": values.get("outliers", True), "mutates_inputs": values.get("mutates_inputs", False)}
    tolerance = values.get("tolerance", {})
    contract = ContractSpec(**values["contract"]) if "contract" in values else None
    random = values.get("random", False)
    library = folder / LIBRARY_FILE if (folder / LIBRARY_FILE).exists() else None
    facts = {
        "workloads": [workload.digest_facts for workload in workloads],
        "tolerance": tolerance,
        **flags,
        **_rare_facts(contract, library, random=random, ranks=ranks, collective=collective),
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
        ranks=ranks,
        collective=collective,
        contract=contract,
        library=library,
        digest=digest_of(reference.source, facts),
        description=values["description"],
        **flags,
    )


def _ranks(document: TomlDocument) -> int:
    """Return the number of ranks.

    Raises:
        UnreadableFileError: There are several, and the problem has a property that the judge supports for one only.
    """
    ranks: int = document.values.get("ranks", 1)
    for flag in ("random", "mutates_inputs", "contract"):
        if ranks > 1 and document.values.get(flag):
            raise document.error("cannot be combined with several ranks", flag)
    return ranks


def _collective(document: TomlDocument, ranks: int) -> CollectiveKind | None:
    """Return the kind of the collective, if there is one.

    Raises:
        UnreadableFileError: There is one, and one rank.
    """
    if "collective" not in document.values:
        return None
    if ranks == 1:
        raise document.error("needs several ranks; add ranks = 2, or leave the table out", "collective")
    return CollectiveKind(document.values["collective"]["kind"])


def _rare_facts(
    contract: ContractSpec | None, library: Path | None, *, random: bool, ranks: int, collective: CollectiveKind | None
) -> dict[str, Any]:
    """Return the optional facts that a problem has; absent ones must not change the digests of other problems."""
    extras: dict[str, Any] = {}
    if contract is not None:
        extras["contract"] = asdict(contract)
    if library is not None:
        extras["library"] = hashlib.sha256(read_bytes(library)).hexdigest()
    if random:
        extras["random"] = random
    if ranks > 1:
        extras["ranks"] = ranks
    if collective is not None:
        extras["collective"] = collective.value
    return extras


def _read_workload(document: TomlDocument, reference: ReferenceModule, name: str, ranks: int) -> Workload:
    values: dict[str, Value] = dict(document.values["workloads"][name])
    held_out = bool(values.pop(HELD_OUT, False))
    for constant in values:
        _check_constant(document, reference, name, constant)
    numbers = {**reference.numbers(values), "ranks": ranks}
    return Workload(
        name=name,
        values=values,
        flops=_evaluate(document, ("flops",), name, numbers) if "flops" in document.values else None,
        bytes=_evaluate_by_dtype(document, ("bytes",), name, numbers),
        collective_bytes=_evaluate_by_dtype(document, ("collective", "bytes"), name, numbers),
        memory=_evaluate_by_dtype(document, ("memory",), name, numbers),
        held_out=held_out,
    )


def _check_held_out(document: TomlDocument, reference: ReferenceModule, workloads: tuple[Workload, ...]) -> None:
    """Check that a workload is shown, and that no shapes are both shown, in the reference at least, and held out."""

    def constants(values: Mapping[str, Value]) -> dict[str, Value | None]:
        return {name: values.get(name, constant.value) for name, constant in reference.constants.items()}

    shown = [constants(workload.values) for workload in workloads if not workload.held_out]
    if not shown:
        raise document.error(f"all have {HELD_OUT} = true; candidates must be shown at least one", "workloads")
    shown.append(constants({}))
    for workload in workloads:
        if workload.held_out and constants(workload.values) in shown:
            reason = f"a workload that is shown, or {reference.path.name}, has the same constants; give it others"
            raise document.error(reason, "workloads", workload.name, HELD_OUT)


def _evaluate_by_dtype(
    document: TomlDocument, keys: tuple[str, ...], workload: str, numbers: Mapping[str, int | float]
) -> dict[Dtype, float]:
    """Return the values of the formula at ``keys`` by dtype; empty if its table, or it itself, is not there."""
    if keys[0] not in document.values:
        return {}
    return {d: _evaluate(document, keys, workload, {**numbers, "itemsize": size}) for d, size in ITEMSIZES.items()}


def _check_constant(document: TomlDocument, reference: ReferenceModule, workload: str, name: str) -> None:
    """Check that a workload replaces a constant that exists, by a value of the same type."""
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


def _evaluate(document: TomlDocument, keys: tuple[str, ...], workload: str, names: Mapping[str, int | float]) -> float:
    formula: Any = document.values
    for key in keys:
        formula = formula[key]
    try:
        value = evaluate(formula, names)
    except FormulaError as error:
        raise document.error(f"{error} (workload {workload})", *keys) from None
    if value < 0:
        raise document.error(f"is {value:g} for workload {workload}; must not be negative", *keys)
    return value


def _read_candidates(
    folders: Iterable[tuple[str, Path]],
) -> tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]:
    """Read the candidates of each (problem id, folder); the folder may be missing."""
    found: list[Candidate] = []
    refused: list[UnreadableItem] = []
    for problem_id, folder in folders:
        files = sorted(file for suffix in SUFFIXES for file in folder.glob(f"*{suffix}"))
        good, bad = read_each(files, partial(read_candidate, problem_id=problem_id))
        found += good
        refused += [*bad, *_find_orphaned_side_files(folder)]
    return tuple(found), tuple(refused)


def read_candidate(path: Path, problem_id: str) -> Candidate:
    """Read one candidate and its side file.

    Raises:
        UnreadableFileError: It cannot be used.
    """
    _check_name(path, path.stem)
    source = read_bytes(path)
    _check_unique(path)
    side = path.with_suffix(".toml")
    document = read_document(side, "candidate") if side.exists() else TomlDocument(side, {}, "")
    values = document.values
    code = _native_fields(path, source, document) if path.suffix in LANGUAGES else _python_fields(source, values)
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


def side_file_text(origin: Origin, language: str = "") -> str:
    """Return the side file of a candidate that says where it came from, and perhaps its language."""
    known = {key: value for key, value in asdict(origin).items() if value is not None}
    # A text of JSON is one of TOML too, unless it has escapes of characters beyond 16 bits, or U+007F as it is.
    rows = (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in known.items())
    head = [f'language = "{language}"', ""] if language else []
    return "\n".join([*head, "[origin]", *rows, ""]).replace("\x7f", "\\u007f")


def _python_fields(source: bytes, values: Mapping[str, Any]) -> dict[str, Any]:
    language = Language(values["language"]) if "language" in values else detect_language(source)
    entry = values.get("entry", "ModelNew")
    facts = {"language": language.value, "entry": entry}
    return {"language": language, "entry": entry, "digest": digest_of(source, facts)}


def _native_fields(path: Path, source: bytes, document: TomlDocument) -> dict[str, Any]:
    function = document.values.get("entry", FUNCTION)
    if "entry" in document.values and not re.search(rb"\b%s\b" % function.encode(), source):
        raise document.error(f"{path.name} does not contain {function!r}", "entry")
    native = read_native(path.name, source, function)
    language = Language(document.values.get("language", native.language))
    if language not in LANGUAGES[path.suffix]:
        allowed = ", ".join(it.value for it in LANGUAGES[path.suffix])
        raise document.error(f"{path.name} cannot be {language.value}; allowed: {allowed}", "language")
    facts = {"language": language.value, "entry": function, "adapter": native.adapter}
    return {
        "language": language,
        "adapter": native.adapter,
        "extra_files": native.extra_files,
        "defines": function,
        "digest": digest_of(source, facts),
    }


def _check_unique(path: Path) -> None:
    """Refuse both of two files with the same stem, because they would share the id and the side file."""
    twins = [other.name for suffix in SUFFIXES if (other := path.with_suffix(suffix)) != path and other.exists()]
    if twins:
        raise UnreadableFileError(path, f"{twins[0]} beside it has the same name, so both have the same id; rename one")


def _dtypes(values: Mapping[str, Any]) -> tuple[Dtype, ...]:
    return tuple(Dtype(name) for name in values.get("dtypes", ()))


def _find_orphaned_side_files(folder: Path) -> Iterator[UnreadableItem]:
    """Yield side files without a candidate, mostly left behind by a rename."""
    for side in sorted(folder.glob("*.toml")):
        if not any(side.with_suffix(suffix).exists() for suffix in SUFFIXES):
            *names, last = (side.with_suffix(suffix).name for suffix in SUFFIXES)
            reason = f"describes {names[0]}, but neither {', '.join(names)} nor {last} is beside it"
            yield UnreadableItem(path=side, reason=reason)


def _find_unknown_problems(root: Path, problems: Mapping[str, Problem]) -> Iterator[UnreadableItem]:
    """Yield folders with candidates for an unknown problem."""
    for folder in sorted({file.parent for suffix in SUFFIXES for file in root.rglob(f"*{suffix}")}):
        problem_id = folder.relative_to(root).as_posix()
        if problem_id not in problems and "__pycache__" not in folder.parts:
            hint = suggestion(problem_id, list(problems))
            yield UnreadableItem(
                path=folder, reason=f"has candidates for {problem_id!r}, which is not a known problem{hint}"
            )


def _check_name(path: Path, name: str) -> None:
    if not ID_FORM.match(name):
        raise UnreadableFileError(path, f"the name {name!r} cannot be used in an id; {_NAME_RULE}")
