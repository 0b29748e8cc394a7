"""Candidates of flashinfer-bench and SOL-ExecBench: ``solution.json`` files with the sources inside."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kernel_matrix.errors import UsageError, suggestion
from kernel_matrix.model.enums import Language
from kernel_matrix.python_syntax import parse
from kernel_matrix.sources import Candidate, Origin, Problem, UnreadableItem
from kernel_matrix.sources.document import (
    ID_FORM,
    JsonObject,
    UnreadableFileError,
    line_of_json_key,
    parse_json_object,
    read_each,
    read_text,
)
from kernel_matrix.sources.flashinfer.definition import OperatorDefinition, invalid_value, read_definition
from kernel_matrix.sources.flashinfer.reader import DEFINITION_FILE, adapter_of
from kernel_matrix.sources.reference_module import detect_language, digest_of

MAX_SOURCES = 64
"""Most files per solution."""
MAX_FLAGS = 64
"""Most flags per compiler."""

_PYTHON = frozenset({"python", "pytorch", "triton"})
_NATIVE = frozenset({"cuda", "cuda_cpp", "cpp"})
_COMPILED_SUFFIXES = (".cu", ".cpp", ".cc", ".cxx", ".c")

_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*\Z")
_RESERVED_MODULES = frozenset({"candidate", "problem", "library", "torch", "triton", "numpy", "kernel_matrix"})
"""Modules that a file of a solution must not hide, because its folder is first on Python's path."""
_SOLUTION_NAME = re.compile(r"solution", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Solution:
    """A parsed solution file."""

    path: Path
    text: str
    values: JsonObject
    spec: JsonObject
    definition: OperatorDefinition
    files: Mapping[str, str]
    """Name beside the adapter → source."""

    def error(self, reason: str, key: str) -> UnreadableFileError:
        return invalid_value(self.path, self.text, key, reason)


def load_candidates(
    path: Path, problems: Mapping[str, Problem]
) -> tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]:
    """Read every solution in ``path``: one file, a set with ``solutions/``, or a folder of such files."""
    candidates: dict[str, Candidate] = {}

    def read(file: Path) -> None:
        candidate = _read_solution(file, problems)
        first = candidates.setdefault(candidate.id, candidate)
        if first is not candidate:
            raise UnreadableFileError(file, f"has the name {candidate.id!r} of {first.path}")

    _, unreadable = read_each(_solution_files(path), read)
    return tuple(candidates.values()), unreadable


def _solution_files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    folder = path / "solutions"
    if folder.is_dir():
        files = sorted(folder.rglob("*.json"))
    else:
        # Folders of problems have other JSON files too, so only the name tells which are solutions.
        found = (file for file in path.rglob("*.json") if _SOLUTION_NAME.search(file.name))
        files = sorted(file for file in found if file.name != DEFINITION_FILE)
    if not files:
        raise UsageError(
            f"{path} has no solution: neither solutions/**/<name>.json nor solution*.json",
            next_step="name a solution.json, or a folder of flashinfer-bench or SOL-ExecBench solutions",
        )
    return files


def _read_solution(path: Path, problems: Mapping[str, Problem]) -> Candidate:
    text = read_text(path)
    values = parse_json_object(path, text)
    name, about = _read_text(path, text, values, "name"), _read_text(path, text, values, "definition")
    if not ID_FORM.match(name):
        reason = f"{name!r} cannot be used in an id; allowed: letters, digits, '.', '_' and '-'"
        raise invalid_value(path, text, "name", reason)
    problem = problems.get(about)
    if problem is None or problem.source != "flashinfer":
        hint = suggestion(about, list(problems))
        raise invalid_value(path, text, "definition", f"{about!r} is not a known problem of source flashinfer{hint}")
    spec = values.get("spec")
    if not isinstance(spec, dict):
        raise invalid_value(path, text, "spec", "must be an object")
    files = _read_files(path, text, values.get("sources"))
    return _make_candidate(_Solution(path, text, values, spec, read_definition(problem.path), files), problem, name)


def _read_text(path: Path, text: str, values: JsonObject, key: str) -> str:
    value = values.get(key)
    if not isinstance(value, str) or not value:
        raise invalid_value(path, text, key, "must be a text")
    return value


def _read_files(path: Path, text: str, sources: Any) -> dict[str, str]:
    line = line_of_json_key(text, "sources")
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
    """Return the name of a source beside the adapter, where there are no folders."""
    parts = PurePosixPath(place)
    if parts.is_absolute() or ".." in parts.parts or not _FILE.match(parts.name):
        raise UnreadableFileError(path, f"sources: {place!r} is not a path within the solution", line)
    if len(parts.parts) > 1 and not alone:
        reason = f"sources: {place!r} is in a folder, which is unsupported for several files"
        raise UnreadableFileError(path, reason, line)
    if parts.stem in _RESERVED_MODULES:
        raise UnreadableFileError(path, f"sources: {place!r} would hide the module {parts.stem!r}; rename it", line)
    return parts.name


def _make_candidate(solution: _Solution, problem: Problem, name: str) -> Candidate:
    file, function = _entry_point(solution)
    words = _read_languages(solution)
    language, entry = (
        _native_entry(solution, function) if words & _NATIVE else _python_entry(solution, words, file, function)
    )
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
        extra_files={name: content.encode() for name, content in solution.files.items()},
        language=language,
        defines=function,
        dtypes=problem.dtypes,
        origin=Origin(method=author, model=author),
        digest=digest_of(adapter.encode(), digest_facts),
        description=" ".join(str(solution.values.get("description") or "").split()),
    )


def _entry_point(solution: _Solution) -> tuple[str, str]:
    """Return file (or module) and function of the entry point."""
    entry = solution.spec.get("entry_point")
    file, _, function = entry.rpartition("::") if isinstance(entry, str) else ("", "", "")
    if not file or not function.isidentifier():
        raise solution.error(f"must be '<file>::<function>'; got {json.dumps(entry)[:80]}", "spec.entry_point")
    return PurePosixPath(file).name, function


def _read_languages(solution: _Solution) -> frozenset[str]:
    """Return the declared languages: one for flashinfer-bench, a list for SOL-ExecBench."""
    given = solution.spec.get("languages") or solution.spec.get("language")
    words = frozenset(str(word).lower() for word in (given if isinstance(given, list) else [given]))
    key = "spec.languages" if "languages" in solution.spec else "spec.language"
    known = sorted(_PYTHON | _NATIVE)
    if not words or words - _PYTHON - _NATIVE or (words & _PYTHON and words & _NATIVE):
        raise solution.error(f"{', '.join(sorted(words))} is unsupported; supported: one of {', '.join(known)}", key)
    if solution.spec.get("pip_packages"):
        raise solution.error("unsupported: candidates cannot install packages", "spec.pip_packages")
    return words


def _python_entry(
    solution: _Solution, words: frozenset[str], file: str, function: str
) -> tuple[Language, dict[str, Any]]:
    if file not in solution.files or not file.endswith(".py"):
        raise solution.error(f"names {file!r}, which is not a Python file of its sources", "spec.entry_point")
    found = {detect_language(text.encode()) for name, text in solution.files.items() if name.endswith(".py")}
    others = (Language.TILELANG, Language.CUTE_DSL, Language.TRITON, Language.HIP, Language.CUDA, Language.TORCH)
    language = Language.TRITON if "triton" in words else next(it for it in others if it in found)
    return language, {"module": file[: -len(".py")], "function": function}


def _native_entry(solution: _Solution, function: str) -> tuple[Language, dict[str, Any]]:
    _check_binding(solution)
    compiled = [name for name in solution.files if name.endswith(_COMPILED_SUFFIXES)]
    if not compiled:
        suffixes = ", ".join(_COMPILED_SUFFIXES)
        raise solution.error(f"there is nothing to compile: no file ends in {suffixes}", "sources")
    options = solution.spec.get("compile_options") or {}
    flags = {key: _read_flags(solution, options, key) for key in ("cflags", "cuda_cflags", "ld_flags")}
    content = json.dumps([solution.files, flags], sort_keys=True)
    entry = {
        "function": function,
        "extension": f"solution_{hashlib.sha256(content.encode()).hexdigest()[:16]}",
        "files": list(solution.files),
        "sources": compiled,
        "with_cuda": not _read_languages(solution) <= {"cpp"},
        **flags,
    }
    return Language.CUDA, entry


def _check_binding(solution: _Solution) -> None:
    """Check that compiled code is a pybind11 module, according to the file or else to its sources."""
    binding = solution.spec.get("binding")
    has_module = any("PYBIND11_MODULE" in text for text in solution.files.values())
    if binding not in (None, "torch") or not has_module:
        named = f"binding {json.dumps(binding)}" if binding is not None else "no binding"
        reason = f"{named} and {'a' if has_module else 'no'} PYBIND11_MODULE: unsupported; supported: binding torch"
        raise solution.error(reason, "spec.binding" if binding is not None else "spec")


def _read_flags(solution: _Solution, options: Any, key: str) -> list[str]:
    flags = options.get(key) or [] if isinstance(options, dict) else None
    if not isinstance(flags, list) or len(flags) > MAX_FLAGS or not all(isinstance(flag, str) for flag in flags):
        raise solution.error(f"must be a list of at most {MAX_FLAGS} texts", f"spec.compile_options.{key}")
    return flags


def _writes_into_outputs(solution: _Solution, file: str, function: str) -> bool:
    """Return True if the function receives tensors to write into, by declaration or by its number of parameters."""
    declared = solution.spec.get("destination_passing_style")
    if declared is not None and not isinstance(declared, bool):
        raise solution.error("must be true or false", "spec.destination_passing_style")
    if declared is None and file.endswith(".py"):
        count = len(solution.definition.inputs) + len(solution.definition.outputs)
        return _accepts(solution.files[file], function, count)
    return declared is not False


def _accepts(source: str, function: str, count: int) -> bool:
    """Return False if a function surely cannot be called with ``count`` arguments."""
    try:
        body = parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True  # importing it will report the error
    node = next((it for it in body if isinstance(it, ast.FunctionDef) and it.name == function), None)
    if node is None or node.args.vararg is not None:
        return True
    most = len(node.args.posonlyargs) + len(node.args.args)
    return most - len(node.args.defaults) <= count <= most


def _computed_axes(solution: _Solution) -> dict[str, str]:
    """Return axis → formula for axes of outputs that no input has, because candidates get no values of workloads."""
    definition = solution.definition
    known = {axis for tensor in definition.inputs for axis in tensor.shape or ()} | set(definition.constants)
    computed: dict[str, str] = {}
    for tensor in definition.outputs:
        if tensor.shape is None:
            reason = f"output {tensor.name!r} is a plain number, which cannot be written into"
            raise solution.error(reason, "spec.destination_passing_style")
        for axis in tensor.shape:
            formula = definition.expressions.get(axis, axis)
            if axis not in known and set(re.findall(r"[A-Za-z_]\w*", formula)) - known:
                reason = f"output {tensor.name!r} cannot be allocated: no input has the size of axis {axis!r}"
                raise solution.error(reason, "spec.destination_passing_style")
            if axis not in known:
                computed[axis] = formula
    return computed
