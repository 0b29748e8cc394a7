"""Problems of flashinfer-bench and SOL-ExecBench: a definition, its workloads, and captured tensors in safetensors.

Either a set (``definitions/<op>/<name>.json``, ``workloads/<op>/<name>.jsonl``), or folders with ``definition.json``
and ``workload.jsonl``. Each definition becomes a problem whose inputs keep the dtypes that it gives them.
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
from kernel_matrix.sources.document import UnreadableFileError, read_each
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
from kernel_matrix.sources.strict_json import Object, lines_of, parse_object, read_text

DEFINITION_FILE = "definition.json"
WORKLOAD_FILE = "workload.jsonl"

MAX_WORKLOADS = 64
"""Most workloads of one definition that are read."""
MAX_CALL_BYTES = 1 << 40
"""Most bytes that the inputs of one call may have: no device holds more."""
MAX_STAGED_BYTES = 8 << 30
"""Most bytes of captured tensors that one problem may need: each session's judge and baseline get a copy."""

TEMPLATE = Path(__file__).with_name("adapter.py")
_REFERENCE_FILE = "reference_run.py"
_WORKLOAD = "workload"
"""The adapter's constant that says which workload is meant."""

_RANDOM_OUTPUTS = "sampling"
"""Kind of operator whose outputs are drawn at random."""

_CATEGORIES = (
    ("Normalization", r"norm"),
    ("MatrixMultiply", r"gemm|matmul"),
    ("Fusion", r"gqa|mla|dsa|nsa|gdn|mha|attention|moe"),
    ("Index", r"embedding|index|gather|scatter"),
    ("Quantization", r"quant"),
    ("Reduce", r"reduc|topk|top_k"),
    ("Activation", r"silu|gelu|relu|softmax|activation"),
)
"""Category → what the kind of operator of it contains, tried in order."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A workload as a file says it."""

    path: Path
    number: int
    values: Object

    def error(self, reason: str) -> UnreadableFileError:
        return UnreadableFileError(self.path, reason, self.number)


@dataclass(frozen=True, slots=True)
class _Case:
    """A workload that can be run."""

    workload: Workload
    sources: Mapping[str, Mapping[str, Any]]
    """Where each input comes from, as the adapter reads it."""
    blobs: Mapping[str, Path]
    """Files it needs, by their names beside the adapter."""


def load(root: Path, *, name: str) -> LoadedSource:
    """Read every definition under ``root``; see :class:`kernel_matrix.sources.Source`.

    :raises kernel_matrix.errors.UsageError: when there is none.
    """
    lines, bad_lines = _lines_of_set(root)
    found, unreadable = read_each(_definition_files(root), lambda path: _read_problem(path, root, lines, source=name))
    problems: dict[str, Problem] = {}
    twice: list[UnreadableItem] = []
    for problem, _ in found:
        first = problems.setdefault(problem.id, problem)
        if first is not problem:
            twice.append(
                UnreadableItem(path=problem.path, reason=f"defines {problem.id!r}, which {first.path} does too")
            )
    refused = (it for _, unread in found for it in unread)
    return LoadedSource(problems=tuple(problems.values()), unreadable=(*unreadable, *refused, *twice, *bad_lines))


def adapter_of(facts: Mapping[str, Any], constants: Mapping[str, int | float | bool | str] | None = None) -> str:
    """The source of the module that runs a definition's function.

    :param facts: what :data:`TEMPLATE` lists.
    :param constants: module constants that it shall have, with their first values.
    """
    written = json.dumps(json.dumps(facts, allow_nan=False))  # a text of ASCII, which Python reads as JSON does
    given = "".join(f"{name} = {value!r}\n" for name, value in (constants or {}).items())
    template = _template()
    return template.replace('"@FACTS@"', written, 1).replace("# @AXES@\n", given, 1)


@functools.cache
def _template() -> str:
    return TEMPLATE.read_text(encoding="utf-8")


def _definition_files(root: Path) -> list[Path]:
    folder = root / "definitions"
    found = folder.rglob("*.json") if folder.is_dir() else root.rglob(DEFINITION_FILE)
    files = sorted(found) if root.is_dir() else []
    if not files:
        raise UsageError(
            f"problems: {root} holds neither definitions/<kind>/<name>.json nor a folder with {DEFINITION_FILE}",
            next_step="name a folder of flashinfer-bench traces or of SOL-ExecBench problems",
        )
    return files


# ---- problems


def _read_problem(
    path: Path, root: Path, lines: Mapping[str, list[_Line]], source: str
) -> tuple[Problem, list[UnreadableItem]]:
    definition = read_definition(path)
    _refuse_unsupported(definition)
    ours, unreadable = (lines.get(definition.name, []), []) if path.name != DEFINITION_FILE else _lines_beside(path)
    cases, bad = _read_cases(definition, ours, (path.parent, root))
    unreadable += bad
    if not cases:
        why = f"; the first: {unreadable[0].reason}" if unreadable else ""
        raise UnreadableFileError(path, f"{definition.name} has no workload that can be run{why}")
    return _problem(definition, cases, source), unreadable


def _refuse_unsupported(definition: OperatorDefinition) -> None:
    if definition.op_type == _RANDOM_OUTPUTS:
        reason = f"{_RANDOM_OUTPUTS!r} is unsupported: outputs are drawn at random, which comparing values cannot judge"
        raise definition.error(reason, "op_type")
    taken = _names_of_template()
    for axis in (*definition.variables, *definition.expressions):
        if axis in taken or keyword.iskeyword(axis):
            raise definition.error("the name is taken by the module that makes the inputs; rename it", f"axes.{axis}")


@functools.cache
def _names_of_template() -> frozenset[str]:
    """What a module constant would replace: functions, classes and constants of the template, and built-in names."""
    body = ast.parse(_template()).body
    names = set(dir(builtins))
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            names |= {it.id for it in ast.walk(node) if isinstance(it, ast.Name)}
    return frozenset(names)


def _problem(definition: OperatorDefinition, cases: list[_Case], source: str) -> Problem:
    blobs = {name: path for case in cases for name, path in case.blobs.items()}
    _check_staged(definition, blobs)
    # Captured numbers, and those a definition makes itself, may have a range to keep; carried ones are never changed.
    outliers = _kinds_of_floating(definition, cases) == {"random"}
    mutates_inputs = writes_into_inputs(definition)
    workloads = tuple(case.workload for case in cases)
    adapter = adapter_of(
        {
            "inputs": definition.tensor_facts(definition.inputs),
            "outputs": definition.tensor_facts(definition.outputs),
            "constants": definition.constants,
            "axes": (*definition.variables, *definition.expressions),
            "cell": next((t.dtype for t in definition.inputs if t.is_floating and t.shape is not None), "float32"),
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
        beside={_REFERENCE_FILE: reference, **blobs},
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


def _kinds_of_floating(definition: OperatorDefinition, cases: Iterable[_Case]) -> set[str]:
    """Where the floating inputs come from that a cell may change; nothing where there are none."""
    names = [t.name for t in definition.inputs if t.is_floating and t.shape is not None and not definition.carrier(t)]
    return {str(case.sources[name]["type"]) for case in cases for name in names}


def _check_staged(definition: OperatorDefinition, blobs: Mapping[str, Path]) -> None:
    total = sum(path.stat().st_size for path in blobs.values())
    if total > MAX_STAGED_BYTES:
        reason = f"needs {total >> 20} MiB of captured tensors; at most {MAX_STAGED_BYTES >> 20} are read"
        raise UnreadableFileError(definition.path, f"{definition.name} {reason}")


def _category(definition: OperatorDefinition) -> str:
    """One of KernelBench-X's categories, guessed from the kind of operator, or else from the name."""
    words = (definition.op_type or definition.name).lower()
    return next((category for category, pattern in _CATEGORIES if re.search(pattern, words)), "Other")


def _level(path: Path) -> int | None:
    """The number of the nearest folder ``L<number>``, SOL-ExecBench's."""
    return next((int(part[1:]) for part in reversed(path.parts[:-1]) if re.fullmatch(r"L\d{1,3}", part)), None)


# ---- workloads


def _lines_of_set(root: Path) -> tuple[Mapping[str, list[_Line]], list[UnreadableItem]]:
    """The workloads of a set, by the definition they are of."""
    lines: dict[str, list[_Line]] = {}
    unreadable: list[UnreadableItem] = []
    for path in sorted((root / "workloads").rglob("*.jsonl")):
        found, bad = _read_lines(path)
        unreadable += bad
        for line in found:
            lines.setdefault(str(line.values.get("definition") or path.stem), []).append(line)
    return lines, unreadable


def _lines_beside(path: Path) -> tuple[list[_Line], list[UnreadableItem]]:
    return _read_lines(path.with_name(WORKLOAD_FILE))


def _read_lines(path: Path) -> tuple[list[_Line], list[UnreadableItem]]:
    found: list[_Line] = []
    unreadable: list[UnreadableItem] = []
    try:
        text = read_text(path)
    except UnreadableFileError as error:
        return [], [error.unreadable]
    for number, line in lines_of(text):
        try:
            found.append(_Line(path, number, parse_object(path, line, number)))
        except UnreadableFileError as error:  # noqa: PERF203  # one bad line must not end the others
            unreadable.append(error.unreadable)
    return found, unreadable


def _read_cases(
    definition: OperatorDefinition, lines: list[_Line], roots: tuple[Path, ...]
) -> tuple[list[_Case], list[UnreadableItem]]:
    cases: list[_Case] = []
    unreadable: list[UnreadableItem] = []
    for line in lines:
        if len(cases) == MAX_WORKLOADS:
            reason = f"{definition.name} has more than {MAX_WORKLOADS} workloads; those from here on are left out"
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
        raise line.error(f"uuid {uuid!r} is that of another workload too")
    sizes = _sizes(definition, line, values.get("axes", {}))
    inputs = values.get("inputs")
    if not isinstance(inputs, dict):
        raise line.error("inputs must be an object")
    sources = {tensor.name: _source_kind(definition, line, tensor, inputs) for tensor in definition.inputs}
    _check_kinds(definition, line, sources)
    blobs: dict[str, Path] = {}
    for tensor in definition.inputs:
        if sources[tensor.name]["type"] == "safetensors":
            sources[tensor.name], file, path = _captured(line, tensor, sources[tensor.name], sizes, roots)
            blobs[file] = path
    given = {axis: sizes[axis] for axis in (*definition.variables, *definition.expressions)}
    return _Case(Workload(name=name, values={**given, _WORKLOAD: uuid}), sources, blobs)


def _sizes(definition: OperatorDefinition, line: _Line, axes: Any) -> dict[str, int]:
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
        raise line.error(f"breaks the definition's constraint {broken!r}")
    nbytes = sum(_nbytes(tensor, sizes) for tensor in (*definition.inputs, *definition.outputs))
    if nbytes > MAX_CALL_BYTES:
        raise line.error(f"inputs and outputs have {nbytes} bytes; no device holds more than {MAX_CALL_BYTES}")
    return sizes


def _nbytes(tensor: TensorDefinition, sizes: Mapping[str, int]) -> int:
    count = ITEMSIZES[tensor.dtype]
    for axis in tensor.shape or ():
        count *= sizes[axis]
    return count


def _source_kind(
    definition: OperatorDefinition, line: _Line, tensor: TensorDefinition, inputs: Object
) -> dict[str, Any]:
    """Where an input comes from, as the line says it, and with nothing that it must not say."""
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


def _check_kinds(definition: OperatorDefinition, line: _Line, sources: Mapping[str, Mapping[str, Any]]) -> None:
    for name in sorted(definition.constrained_inputs()):
        if sources[name]["type"] == "random":
            raise line.error(f"inputs.{name} is random, but a constraint speaks of its values, which would not keep it")
    if all(source["type"] in ("scalar", "safetensors") for source in sources.values()):
        raise line.error("no input is random: every call would be the same, and its answer could be kept")


def _captured(
    line: _Line, tensor: TensorDefinition, source: Mapping[str, Any], sizes: Mapping[str, int], roots: tuple[Path, ...]
) -> tuple[dict[str, Any], str, Path]:
    """What the adapter needs to know of a tensor in a file, the file's name beside it, and the file."""
    try:
        path = _inside(source["path"], roots)
        blob = find_tensor(path, source["tensor_key"], tensor.dtype, [sizes[axis] for axis in tensor.shape or ()])
    except UnreadableFileError as error:
        raise line.error(f"inputs.{tensor.name}: {error.unreadable}") from None
    name = f"blob-{hashlib.sha256(source['path'].encode()).hexdigest()[:16]}.safetensors"
    return {"type": "safetensors", "file": name, "start": blob.start, "nbytes": blob.nbytes}, name, path


def _inside(path: str, roots: tuple[Path, ...]) -> Path:
    """The file at ``path`` under one of the folders, which it must not leave."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or "\0" in path:
        raise UnreadableFileError(Path(path), "leaves its folder; it must be relative, without '..'")
    found = next((root / parts for root in roots if (root / parts).is_file()), roots[-1] / parts)
    if not any(found.resolve().is_relative_to(home) for home in _homes(roots[-1])):
        raise UnreadableFileError(Path(path), f"is a link that leaves {roots[-1]}")
    return found


def _homes(root: Path) -> Iterator[Path]:
    """Where links may lead: into the folder, and from a snapshot in Hugging Face's cache to where its files are."""
    home = root.resolve()
    yield home
    if home.parent.name == "snapshots":
        yield home.parent.parent / "blobs"
