"""Solutions of flashinfer-bench and SOL-ExecBench: ``solution.json`` files with the sources of a candidate in them."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Language
from kernel_matrix.sources import Candidate, Origin, Problem, UnreadableItem
from kernel_matrix.sources.document import UnreadableFileError, read_each, suggestion
from kernel_matrix.sources.flashinfer.definition import OperatorDefinition, read_definition
from kernel_matrix.sources.flashinfer.reader import DEFINITION_FILE, adapter_of
from kernel_matrix.sources.reference_module import detect_language, digest_of
from kernel_matrix.sources.strict_json import Object, line_of_key, read_object

MAX_SOURCES = 64
"""Most files of one solution."""
MAX_FLAGS = 64
"""Most flags that one compiler may be given."""

_PYTHON = frozenset({"python", "pytorch", "triton"})
_NATIVE = frozenset({"cuda", "cuda_cpp", "cpp"})
_COMPILED_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx", ".c")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z")
_TAKEN = frozenset({"candidate", "problem", "library", "torch", "triton", "numpy", "kernel_matrix"})
"""Modules that a solution's file, which lies first on Python's path, must not be taken for."""
_MARKED = re.compile(r"solution", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Solution:
    """A solution, as its file says it."""

    path: Path
    text: str
    values: Object
    spec: Object
    definition: OperatorDefinition
    files: Mapping[str, str]
    """Its sources, by the names they lie beside the adapter under."""

    def error(self, reason: str, key: str) -> UnreadableFileError:
        return UnreadableFileError(self.path, f"{key}: {reason}", line_of_key(self.text, key.rpartition(".")[2]))


def load_candidates(
    path: Path, problems: Mapping[str, Problem]
) -> tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]:
    """Read every solution in ``path``: one file, a set with ``solutions/``, or a folder of such files.

    :raises kernel_matrix.errors.UsageError: when there is none.
    """
    found, refused = read_each(_solution_files(path), lambda file: _read_solution(file, problems))
    candidates: dict[str, Candidate] = {}
    twice: list[UnreadableItem] = []
    for candidate in found:
        first = candidates.setdefault(candidate.id, candidate)
        if first is not candidate:
            twice.append(UnreadableItem(path=candidate.path, reason=f"is named {candidate.id!r}, as {first.path} is"))
    return tuple(candidates.values()), (*refused, *twice)


def _solution_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    folder = path / "solutions"
    found = folder.rglob("*.json") if folder.is_dir() else (f for f in path.rglob("*.json") if _may_be_solution(f))
    files = sorted(found) if path.is_dir() else []
    if not files:
        raise UsageError(
            f"{path} holds no solution: neither solutions/**/<name>.json nor solution*.json",
            next_step="name a solution.json, or a folder of flashinfer-bench or SOL-ExecBench solutions",
        )
    return files


def _may_be_solution(path: Path) -> bool:
    """Folders of problems hold other JSON too, so that only the name can tell."""
    return path.name != DEFINITION_FILE and bool(_MARKED.search(path.name))


def _read_solution(path: Path, problems: Mapping[str, Problem]) -> Candidate:
    values, text = read_object(path)
    name, about = _text_of(path, text, values, "name"), _text_of(path, text, values, "definition")
    if not _NAME.match(name):
        reason = f"name: {name!r} cannot be part of an id; allowed: letters, digits, '.', '_' and '-'"
        raise UnreadableFileError(path, reason, line_of_key(text, "name"))
    problem = problems.get(about)
    if problem is None or problem.source != "flashinfer":
        hint = suggestion(about, list(problems))
        reason = f"definition: {about!r} is no known problem of source flashinfer{hint}"
        raise UnreadableFileError(path, reason, line_of_key(text, "definition"))
    spec = values.get("spec")
    if not isinstance(spec, dict):
        raise UnreadableFileError(path, "spec: must be an object", line_of_key(text, "spec"))
    files = _read_files(path, text, values.get("sources"))
    return _candidate(_Solution(path, text, values, spec, read_definition(problem.path), files), problem, name)


def _text_of(path: Path, text: str, values: Object, key: str) -> str:
    value = values.get(key)
    if not isinstance(value, str) or not value:
        raise UnreadableFileError(path, f"{key}: must be a text", line_of_key(text, key))
    return value


def _read_files(path: Path, text: str, sources: Any) -> dict[str, str]:
    line = line_of_key(text, "sources")
    if not isinstance(sources, list) or not 0 < len(sources) <= MAX_SOURCES:
        raise UnreadableFileError(path, f"sources: must be a list of 1 to {MAX_SOURCES} files", line)
    files: dict[str, str] = {}
    for source in sources:
        place, content = (source.get("path"), source.get("content")) if isinstance(source, dict) else (None, None)
        if not isinstance(place, str) or not isinstance(content, str):
            raise UnreadableFileError(path, "sources: each needs a path and a content, both texts", line)
        name = _file_name(path, place, line, alone=len(sources) == 1)
        if name in files:
            raise UnreadableFileError(path, f"sources: there are two files {name!r}", line)
        files[name] = content
    return files


def _file_name(path: Path, place: str, line: int, *, alone: bool) -> str:
    """What a source is called beside the adapter, where there are no folders yet."""
    parts = PurePosixPath(place)
    if parts.is_absolute() or ".." in parts.parts or not _FILE.match(parts.name):
        raise UnreadableFileError(path, f"sources: {place!r} is no path within the solution", line)
    if len(parts.parts) > 1 and not alone:
        reason = f"sources: {place!r} lies in a folder, which is unsupported where there are several files"
        raise UnreadableFileError(path, reason, line)
    if parts.stem in _TAKEN:
        raise UnreadableFileError(path, f"sources: {place!r} would hide the module {parts.stem!r}; rename it", line)
    return parts.name


def _candidate(solution: _Solution, problem: Problem, name: str) -> Candidate:
    file, function = _entry_point(solution)
    words = _languages(solution)
    language, entry = _native(solution, function) if words & _NATIVE else _python(solution, words, file, function)
    definition = solution.definition
    destination = _writes_into_outputs(solution, file, function)
    facts = {
        "inputs": definition.tensor_facts(definition.inputs),
        "outputs": definition.tensor_facts(definition.outputs),
        "constants": definition.constants,
        "expressions": _computed_axes(solution) if destination else {},
        "destination": destination,
        "entry": entry,
    }
    adapter = adapter_of(facts)
    author = solution.values.get("author")
    author = author if isinstance(author, str) and author else None
    digest_facts = {"files": solution.files, "language": language.value, "entry": "ModelNew"}
    return Candidate(
        id=f"{problem.id}/{name}",
        problem_id=problem.id,
        path=solution.path,
        adapter=adapter,
        beside={name: content.encode() for name, content in solution.files.items()},
        language=language,
        defines=function,
        dtypes=problem.dtypes,
        origin=Origin(method=author, model=author),
        digest=digest_of(adapter.encode(), digest_facts),
        description=" ".join(str(solution.values.get("description") or "").split()),
    )


def _entry_point(solution: _Solution) -> tuple[str, str]:
    """File (or module) and function."""
    entry = solution.spec.get("entry_point")
    file, _, function = entry.rpartition("::") if isinstance(entry, str) else ("", "", "")
    if not file or not function.isidentifier():
        raise solution.error(f"must be '<file>::<function>'; got {json.dumps(entry)[:80]}", "spec.entry_point")
    return PurePosixPath(file).name, function


def _languages(solution: _Solution) -> frozenset[str]:
    """What it says it is written in; flashinfer-bench names one language, SOL-ExecBench a list."""
    given = solution.spec.get("languages") or solution.spec.get("language")
    words = frozenset(str(word).lower() for word in (given if isinstance(given, list) else [given]))
    key = "spec.languages" if "languages" in solution.spec else "spec.language"
    known = sorted(_PYTHON | _NATIVE)
    if not words or words - _PYTHON - _NATIVE or (words & _PYTHON and words & _NATIVE):
        raise solution.error(f"{', '.join(sorted(words))} is unsupported; supported: one of {', '.join(known)}", key)
    if solution.spec.get("pip_packages"):
        raise solution.error("unsupported: images have no packages of a candidate's own", "spec.pip_packages")
    return words


def _python(solution: _Solution, words: frozenset[str], file: str, function: str) -> tuple[Language, dict[str, Any]]:
    if file not in solution.files or not file.endswith(".py"):
        raise solution.error(f"names {file!r}, which is no Python file of its sources", "spec.entry_point")
    found = {detect_language(text.encode()) for name, text in solution.files.items() if name.endswith(".py")}
    others = (Language.TILELANG, Language.CUTE_DSL, Language.TRITON, Language.HIP, Language.CUDA, Language.TORCH)
    language = Language.TRITON if "triton" in words else next(it for it in others if it in found)
    return language, {"module": file[: -len(".py")], "function": function}


def _native(solution: _Solution, function: str) -> tuple[Language, dict[str, Any]]:
    _check_binding(solution)
    compiled = [name for name in solution.files if name.endswith(_COMPILED_SUFFIXES)]
    if not compiled:
        suffixes = ", ".join(_COMPILED_SUFFIXES)
        raise solution.error(f"there is nothing to compile: no file ends in {suffixes}", "sources")
    options = solution.spec.get("compile_options") or {}
    flags = {key: _flags(solution, options, key) for key in ("cflags", "cuda_cflags", "ld_flags")}
    content = json.dumps([solution.files, flags], sort_keys=True)
    entry = {
        "function": function,
        "extension": f"solution_{hashlib.sha256(content.encode()).hexdigest()[:16]}",
        "files": list(solution.files),
        "sources": compiled,
        "with_cuda": not _languages(solution) <= {"cpp"},
        **flags,
    }
    return Language.CUDA, entry


def _check_binding(solution: _Solution) -> None:
    """Compiled code must be a module of pybind11; where the file does not say, its sources do."""
    binding = solution.spec.get("binding")
    has_module = any("PYBIND11_MODULE" in text for text in solution.files.values())
    if binding not in (None, "torch") or not has_module:
        named = f"binding {json.dumps(binding)}" if binding is not None else "no binding"
        reason = f"{named} and {'a' if has_module else 'no'} PYBIND11_MODULE: unsupported; supported: binding torch"
        raise solution.error(reason, "spec.binding" if binding is not None else "spec")


def _flags(solution: _Solution, options: Any, key: str) -> list[str]:
    flags = options.get(key) or [] if isinstance(options, dict) else None
    if not isinstance(flags, list) or len(flags) > MAX_FLAGS or not all(isinstance(flag, str) for flag in flags):
        raise solution.error(f"must be a list of at most {MAX_FLAGS} texts", f"spec.compile_options.{key}")
    return flags


def _writes_into_outputs(solution: _Solution, file: str, function: str) -> bool:
    """Whether its function is handed tensors to write into; where the file does not say, its parameters may."""
    said = solution.spec.get("destination_passing_style")
    if said is not None and not isinstance(said, bool):
        raise solution.error("must be true or false", "spec.destination_passing_style")
    if said is None and file.endswith(".py"):
        both = len(solution.definition.inputs) + len(solution.definition.outputs)
        return _takes(solution.files[file], function, both)
    return said is not False


def _takes(source: str, function: str, count: int) -> bool:
    """Whether a function may be called with so many arguments; true where that cannot be told."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True  # whoever imports it says what is wrong
    node = next((it for it in body if isinstance(it, ast.FunctionDef) and it.name == function), None)
    if node is None or node.args.vararg is not None:
        return True
    most = len(node.args.posonlyargs) + len(node.args.args)
    return most - len(node.args.defaults) <= count <= most


def _computed_axes(solution: _Solution) -> dict[str, str]:
    """Axes of outputs that no input has, and how to compute them: a candidate never learns a workload's values."""
    definition = solution.definition
    known = {axis for tensor in definition.inputs for axis in tensor.shape or ()} | set(definition.constants)
    computed: dict[str, str] = {}
    for tensor in definition.outputs:
        if tensor.shape is None:
            reason = f"output {tensor.name!r} is a plain number, which nothing can be written into"
            raise solution.error(reason, "spec.destination_passing_style")
        for axis in tensor.shape:
            formula = definition.expressions.get(axis, axis)
            if axis not in known and set(re.findall(r"[A-Za-z_]\w*", formula)) - known:
                reason = f"output {tensor.name!r} cannot be allocated: no input has the size of axis {axis!r}"
                raise solution.error(reason, "spec.destination_passing_style")
            if axis not in known:
                computed[axis] = formula
    return computed
