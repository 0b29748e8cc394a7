"""Problems of flashinfer-bench and SOL-ExecBench: a definition, its workloads, and captured tensors in safetensors.

They are kept as a set (``definitions/<op>/<name>.json``, ``workloads/<op>/<name>.jsonl``) or in folders with
``definition.json`` and ``workload.jsonl``. Each definition becomes a problem whose inputs keep their dtypes.
"""

from __future__ import annotations

import ast
import builtins
import functools
import hashlib
import json
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kernel_matrix.errors import UsageError
from kernel_matrix.sources import LoadedSource, Problem, UnreadableItem, Workload
from kernel_matrix.sources.document import JsonObject, UnreadableFileError, parse_json_object, read_each, read_text
from kernel_matrix.sources.flashinfer.blob import find_tensor, sha256_of
from kernel_matrix.sources.flashinfer.definition import (
    ITEMSIZES,
    MAX_AXIS,
    OperatorDefinition,
    TensorDefinition,
    read_definition,
    writes_into_inputs,
)
from kernel_matrix.sources.formula import FormulaError
from kernel_matrix.sources.reference_module import digest_of

DEFINITION_FILE = "definition.json"
WORKLOAD_FILE = "workload.jsonl"

MAX_WORKLOADS = 64
"""Most workloads that are read per definition."""
MAX_CALL_BYTES = 1 << 40
"""Most bytes of the inputs and outputs of one call; no device has more memory."""
MAX_STAGED_BYTES = 8 << 30
"""Most bytes of captured tensors per problem, because the judge and the baseline of each session get a copy."""

TEMPLATE = Path(__file__).with_name("adapter.py")
_REFERENCE_FILE = "reference_run.py"
_WORKLOAD = "workload"
"""Constant of the adapter that selects the workload."""

_RANDOM_OUTPUTS = "sampling"
"""Operator type with random outputs."""

_CATEGORIES = (
    ("Normalization", r"norm"),
    ("MatrixMultiply", r"gemm|matmul"),
    ("Fusion", r"gqa|mla|dsa|nsa|gdn|mha|attention|moe"),
    ("Index", r"embedding|index|gather|scatter"),
    ("Quantization", r"quant"),
    ("Reduce", r"reduc|topk|top_k"),
    ("Activation", r"silu|gelu|relu|softmax|activation"),
)
"""Category and pattern of its operator types, tried in order."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of a workload file."""

    path: Path
    number: int
    values: JsonObject

    def error(self, reason: str) -> UnreadableFileError:
        return UnreadableFileError(self.path, reason, self.number)


@dataclass(frozen=True, slots=True)
class _Case:
    """A workload that can be run."""

    workload: Workload
    sources: Mapping[str, Mapping[str, Any]]
    """Input → its source in the form of the adapter."""
    blobs: Mapping[str, Path]
    """Name beside the adapter → file with captured tensors."""


def load(root: Path, *, name: str) -> LoadedSource:
    """Read every definition under ``root``; see :class:`kernel_matrix.sources.Source`."""
    lines, bad_lines = _read_lines_of_set(root)
    found, unreadable = read_each(_definition_files(root), lambda path: _read_problem(path, root, lines, source=name))
    problems: dict[str, Problem] = {}
    twice: list[UnreadableItem] = []
    for problem, _ in found:
        first = problems.setdefault(problem.id, problem)
        if first is not problem:
            twice.append(UnreadableItem(path=problem.path, reason=f"defines {problem.id!r} again, after {first.path}"))
    refused = (it for _, unread in found for it in unread)
    return LoadedSource(problems=tuple(problems.values()), unreadable=(*unreadable, *refused, *twice, *bad_lines))


def adapter_of(facts: Mapping[str, Any], constants: Mapping[str, int | float | bool | str] | None = None) -> str:
    """Return the source of the module that runs a definition's function.

    Args:
        facts: ``FACTS`` of the template.
        constants: module constants of the workloads, with their first values.
    """
    literal = json.dumps(json.dumps(facts, allow_nan=False))  # ASCII text, which is the same literal in Python
    assignments = "".join(f"{name} = {value!r}\n" for name, value in (constants or {}).items())
    template = TEMPLATE.read_text(encoding="utf-8")
    return template.replace('"@FACTS@"', literal, 1).replace("# @AXES@\n", assignments, 1)


def _definition_files(root: Path) -> list[Path]:
    folder = root / "definitions"
    found = folder.rglob("*.json") if folder.is_dir() else root.rglob(DEFINITION_FILE)
    files = sorted(found) if root.is_dir() else []
    if not files:
        raise UsageError(
            f"problems: {root} has neither definitions/<kind>/<name>.json nor a folder with {DEFINITION_FILE}",
            next_step="name a folder of flashinfer-bench traces or of SOL-ExecBench problems",
        )
    return files


# ---- problems


def _read_problem(
    path: Path, root: Path, lines: Mapping[str, list[_Line]], source: str
) -> tuple[Problem, list[UnreadableItem]]:
    definition = read_definition(path)
    _refuse_unsupported(definition)
    own_lines, bad_lines = tuple(lines.get(definition.name, ())), tuple[UnreadableItem, ...]()
    if path.name == DEFINITION_FILE:
        own_lines, bad_lines = _read_lines(path.with_name(WORKLOAD_FILE))
    cases, bad_cases = _read_cases(definition, own_lines, (path.parent, root))
    unreadable = [*bad_lines, *bad_cases]
    if not cases:
        why = f"; the first: {unreadable[0].reason}" if unreadable else ""
        raise UnreadableFileError(path, f"{definition.name} has no workload that can be run{why}")
    return _make_problem(definition, cases, source), unreadable


def _refuse_unsupported(definition: OperatorDefinition) -> None:
    if definition.op_type == _RANDOM_OUTPUTS:
        reason = f"{_RANDOM_OUTPUTS!r} is unsupported: random outputs cannot be compared with expected values"
        raise definition.error(reason, "op_type")
    taken = _template_names()
    for axis in (*definition.variables, *definition.expressions):
        if axis in taken or keyword.iskeyword(axis):
            raise definition.error("the module that makes the inputs uses this name; rename it", f"axes.{axis}")


@functools.cache
def _template_names() -> frozenset[str]:
    """Return the names that a module constant would overwrite: built-in names and those of the template."""
    body = ast.parse(TEMPLATE.read_text(encoding="utf-8")).body
    names = set(dir(builtins))
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            names |= {it.id for it in ast.walk(node) if isinstance(it, ast.Name)}
    return frozenset(names)


def _make_problem(definition: OperatorDefinition, cases: list[_Case], source: str) -> Problem:
    blobs = {name: path for case in cases for name, path in case.blobs.items()}
    _check_staged(definition, blobs)
    # Captured or custom-made inputs may need to stay in a range, and inputs with a carrier cannot be changed.
    outliers = _floating_source_types(definition, cases) == {"random"}
    mutates_inputs = writes_into_inputs(definition)
    workloads = tuple(case.workload for case in cases)
    adapter = adapter_of(
        {
            "inputs": definition.tensor_facts(definition.inputs),
            "outputs": definition.tensor_facts(definition.outputs),
            "constants": definition.constants,
            "axes": (*definition.variables, *definition.expressions),
            "cell": next((t.dtype for t in definition.inputs if t.is_float_tensor), "float32"),
            "maker": definition.maker,
            "workloads": {case.workload.values[_WORKLOAD]: case.sources for case in cases},
        },
        workloads[0].values,
    )
    facts = {
        "adapter": hashlib.sha256(adapter.encode()).hexdigest(),
        "files": {name: sha256_of(path) for name, path in blobs.items()},
        "workloads": [{"name": w.name, "values": w.values} for w in workloads],
        "outliers": outliers,
        "mutates_inputs": mutates_inputs,
    }
    reference = definition.reference.encode()
    return Problem(
        id=definition.name,
        source=source,
        path=definition.path,
        adapter=adapter,
        extra_files={_REFERENCE_FILE: reference, **blobs},
        category=_category(definition),
        level=_level(definition.path),
        tags=definition.tags,
        dtypes=(definition.dtype,),
        workloads=workloads,
        digest=digest_of(reference, facts),
        description=definition.description or definition.name,
        outliers=outliers,
        mutates_inputs=mutates_inputs,
    )


def _floating_source_types(definition: OperatorDefinition, cases: Iterable[_Case]) -> set[str]:
    """Return the source types of the floating inputs that a cell may change."""
    names = [t.name for t in definition.inputs if t.is_float_tensor and not definition.carrier(t)]
    return {str(case.sources[name]["type"]) for case in cases for name in names}


def _check_staged(definition: OperatorDefinition, blobs: Mapping[str, Path]) -> None:
    total = sum(path.stat().st_size for path in blobs.values())
    if total > MAX_STAGED_BYTES:
        reason = f"needs {total >> 20} MiB of captured tensors; at most {MAX_STAGED_BYTES >> 20} are read"
        raise UnreadableFileError(definition.path, f"{definition.name} {reason}")


def _category(definition: OperatorDefinition) -> str:
    """Guess the category of KernelBench-X from the operator type, or else from the name."""
    words = (definition.op_type or definition.name).lower()
    return next((category for category, pattern in _CATEGORIES if re.search(pattern, words)), "Other")


def _level(path: Path) -> int | None:
    """Return the number of the nearest folder ``L<number>`` of SOL-ExecBench."""
    return next((int(part[1:]) for part in reversed(path.parts[:-1]) if re.fullmatch(r"L\d{1,3}", part)), None)


# ---- workloads


def _read_lines_of_set(root: Path) -> tuple[Mapping[str, list[_Line]], list[UnreadableItem]]:
    """Return definition → its workload lines, for a set."""
    lines: dict[str, list[_Line]] = {}
    unreadable: list[UnreadableItem] = []
    for path in sorted((root / "workloads").rglob("*.jsonl")):
        found, bad = _read_lines(path)
        unreadable += bad
        for line in found:
            lines.setdefault(str(line.values.get("definition") or path.stem), []).append(line)
    return lines, unreadable


def _read_lines(path: Path) -> tuple[tuple[_Line, ...], tuple[UnreadableItem, ...]]:
    try:
        lines = [(number, line) for number, line in enumerate(read_text(path).split("\n"), start=1) if line.strip()]
    except UnreadableFileError as error:
        return (), (error.unreadable,)
    return read_each(lines, lambda line: _Line(path, line[0], parse_json_object(path, line[1], line[0])))


def _read_cases(
    definition: OperatorDefinition, lines: Sequence[_Line], roots: tuple[Path, ...]
) -> tuple[list[_Case], list[UnreadableItem]]:
    cases: list[_Case] = []
    unreadable: list[UnreadableItem] = []
    for line in lines:
        if len(cases) == MAX_WORKLOADS:
            reason = f"{definition.name} has more than {MAX_WORKLOADS} workloads; the rest is ignored"
            unreadable.append(line.error(reason).unreadable)
            break
        try:
            cases.append(_read_case(definition, line, cases, roots))
        except UnreadableFileError as error:
            unreadable.append(error.unreadable)
    return cases, unreadable


def _read_case(definition: OperatorDefinition, line: _Line, before: Sequence[_Case], roots: tuple[Path, ...]) -> _Case:
    name = f"w{len(before)}"
    values = line.values.get("workload", line.values)
    if not isinstance(values, dict):
        raise line.error("workload must be an object")
    uuid = values.get("uuid") or name
    if not isinstance(uuid, str) or len(uuid) > 200:
        raise line.error("uuid must be a text of at most 200 letters")
    if any(case.workload.values[_WORKLOAD] == uuid for case in before):
        raise line.error(f"uuid {uuid!r} is also that of another workload")
    sizes = _read_sizes(definition, line, values.get("axes", {}))
    inputs = values.get("inputs")
    if not isinstance(inputs, dict):
        raise line.error("inputs must be an object")
    sources = {tensor.name: _read_source(definition, line, tensor, inputs) for tensor in definition.inputs}
    _check_sources(definition, line, sources)
    blobs: dict[str, Path] = {}
    for tensor in definition.inputs:
        if sources[tensor.name]["type"] == "safetensors":
            sources[tensor.name], file, path = _find_blob(line, tensor, sources[tensor.name], sizes, roots)
            blobs[file] = path
    given = {axis: sizes[axis] for axis in (*definition.variables, *definition.expressions)}
    return _Case(Workload(name=name, values={**given, _WORKLOAD: uuid}), sources, blobs)


def _read_sizes(definition: OperatorDefinition, line: _Line, axes: Any) -> dict[str, int]:
    if not isinstance(axes, dict):
        raise line.error("axes must be an object")
    given = {}
    for axis in definition.variables:
        size = axes.get(axis)
        if type(size) is not int or not 0 <= size <= MAX_AXIS:
            raise line.error(f"axes.{axis} must be a whole number from 0 to 2**48; got {size!r}")
        given[axis] = size
    try:
        sizes = definition.sizes(given)
    except FormulaError as error:
        raise line.error(str(error)) from None
    broken = definition.broken_constraint(sizes)
    if broken:
        raise line.error(f"violates the definition's constraint {broken!r}")
    nbytes = sum(_count_bytes(tensor, sizes) for tensor in (*definition.inputs, *definition.outputs))
    if nbytes > MAX_CALL_BYTES:
        raise line.error(f"inputs and outputs have {nbytes} bytes; at most {MAX_CALL_BYTES} are supported")
    return sizes


def _count_bytes(tensor: TensorDefinition, sizes: Mapping[str, int]) -> int:
    count = ITEMSIZES[tensor.dtype]
    for axis in tensor.shape or ():
        count *= sizes[axis]
    return count


def _read_source(
    definition: OperatorDefinition, line: _Line, tensor: TensorDefinition, inputs: JsonObject
) -> dict[str, Any]:
    """Read and check the source of an input."""
    where = f"inputs.{tensor.name}"
    source = inputs.get(tensor.name)
    kind = source.get("type") if isinstance(source, dict) else None
    if not isinstance(source, dict) or kind not in ("random", "scalar", "safetensors", "custom"):
        raise line.error(f"{where}: type must be random, scalar, safetensors or custom; got {kind!r}")
    if kind == "custom":
        if not definition.maker:
            raise line.error(f"{where} is custom, but the definition names no custom_inputs_entrypoint")
        return {"type": kind}
    if kind == "scalar":
        if tensor.shape is not None or type(source.get("value")) not in (bool, int, float):
            raise line.error(f"{where}: value must be a number, and the definition's shape null")
        return {"type": kind, "value": source["value"]}
    if tensor.shape is None:
        raise line.error(f"{where} is a plain number; it must be scalar, with a value, not {kind}")
    if kind == "safetensors" and not all(isinstance(source.get(key), str) for key in ("path", "tensor_key")):
        raise line.error(f"{where}: path and tensor_key must be texts")
    return dict(source) if kind == "safetensors" else {"type": kind}


def _check_sources(definition: OperatorDefinition, line: _Line, sources: Mapping[str, Mapping[str, Any]]) -> None:
    for name in sorted(definition.constrained_inputs()):
        if sources[name]["type"] == "random":
            raise line.error(f"inputs.{name} is random, but the definition has a constraint on its values")
    if all(source["type"] in ("scalar", "safetensors") for source in sources.values()):
        raise line.error("no input is random, so that all calls are equal and a candidate could cache the result")


def _find_blob(
    line: _Line, tensor: TensorDefinition, source: Mapping[str, Any], sizes: Mapping[str, int], roots: tuple[Path, ...]
) -> tuple[dict[str, Any], str, Path]:
    """Return the source of a captured tensor for the adapter, the file's name beside the adapter, and the file."""
    try:
        path = _resolve_inside(source["path"], roots)
        blob = find_tensor(path, source["tensor_key"], tensor.dtype, [sizes[axis] for axis in tensor.shape or ()])
    except UnreadableFileError as error:
        raise line.error(f"inputs.{tensor.name}: {error.unreadable}") from None
    name = f"blob-{hashlib.sha256(source['path'].encode()).hexdigest()[:16]}.safetensors"
    return {"type": "safetensors", "file": name, "start": blob.start, "nbytes": blob.nbytes}, name, path


def _resolve_inside(path: str, roots: tuple[Path, ...]) -> Path:
    """Find a file under one of the folders, without leaving it."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or "\0" in path:
        raise UnreadableFileError(Path(path), "leaves its folder; it must be relative, without '..'")
    found = next((root / parts for root in roots if (root / parts).is_file()), roots[-1] / parts)
    if not any(found.resolve().is_relative_to(home) for home in _allowed_folders(roots[-1])):
        raise UnreadableFileError(Path(path), f"is a link that leaves {roots[-1]}")
    return found


def _allowed_folders(root: Path) -> Iterator[Path]:
    """Yield the folders that links may point into: the folder itself, and the blobs of a Hugging Face snapshot."""
    home = root.resolve()
    yield home
    if home.parent.name == "snapshots":
        yield home.parent.parent / "blobs"
