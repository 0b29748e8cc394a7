"""Problems of KernelBench-X and TritonBench-T: a function, a line of ``#``, and a test that calls the function.

The function is the reference. Its inputs are those of the calls in the test: an adapter runs the test with a recorder
in place of the function, and each kind of call becomes a workload.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Dtype
from kernel_matrix.model.messages import ContractSpec
from kernel_matrix.sources import LoadedSource, Problem, UnreadableItem, Workload
from kernel_matrix.sources.document import UnreadableFileError, read_bytes, read_each, read_text, refusals_of
from kernel_matrix.sources.kernelbenchx.cases import UNKNOWN, TestCall, cases_of
from kernel_matrix.sources.reference_module import digest_of, parse_module, root_name
from kernel_matrix.untrusted_json import parse_lenient

TEMPLATE = Path(__file__).with_name("adapter.py")
"""Template of the adapters of problems and candidates."""

TASK_FILE, TEST_FILE = "task.py", "test_segment.py"
"""Names of the two halves of a problem's file beside its adapter."""

MOST_WORKLOADS = 8

OTHER = "Other"
"""Category of tasks that are not in a category's folder."""

FIXED_INPUTS = "fixed_inputs"
"""Tag: all inputs are constants in the test, so that a candidate could contain the outputs."""

_TASK_FOLDERS = ("kernelbenchx", "TritonBench_T_v1")
"""Names of the folder of tasks in a checkout."""

_SEPARATOR = re.compile(rb"^#{80,}[ \t]*\r?$", re.MULTILINE)
_DTYPES = {
    "fp16": Dtype.FP16,
    "bf16": Dtype.BF16,
    "fp64": Dtype.FP64,
    "int8": Dtype.INT8,
    "int32": Dtype.INT32,
    "whole": Dtype.INT32,
    "bool": Dtype.BOOL,
}
"""Kind of number → dtype of the cells; FP32 for all others."""
_DRAWS = re.compile(r"dropout|bernoulli|multinomial|^rand|^sample$|^rrelu|gumbel|fractional_max_pool")
"""Calls with random results."""
_PROBABILITY_PARAMETERS = ("p", "dropout_p", "dropout")
"""Parameters that switch such calls off if zero."""
_SAMPLE_PARAMETERS = ("random_samples", "_random_samples")
"""Parameters with the random numbers for such calls, which make them deterministic."""

_DTYPE_IN_NAME = re.compile(r"_(fp16|bf16|int8)\Z")
_QUANTISED_NAME = re.compile(r"w\d+a\d+")
_UNBOUNDED_SNR_DB = 300.0
"""Larger than any SNR, because the benchmark has no upper limit and accepts outputs that are not quantised."""


@dataclass(frozen=True, slots=True)
class TaskFile:
    """The parts of a task's file."""

    path: Path
    function: str
    """Name of the reference."""
    source: bytes
    """The part before the separator."""
    test: bytes
    """The part after the separator, with the line numbers of the file."""
    uses: tuple[TestUse, ...]
    docstring: str


@dataclass(frozen=True, slots=True)
class TestUse:
    """One call in the test, with facts from the source of the function."""

    case: TestCall
    given_output: bool
    """The call passes a tensor for the output."""
    writes: bool
    """It writes into its arguments."""
    is_random: bool
    """Its result depends on random numbers that it draws."""

    @property
    def is_drawn(self) -> bool:
        """True if its inputs depend on the seed."""
        return self.case.made.drawn


def load(root: Path, *, name: str) -> LoadedSource:
    """Read every task of a checkout, its folder ``data``, or a folder of tasks; see :class:`.Source`."""
    folder = _task_folder(root)
    files = [*sorted(folder.glob("*.py")), *sorted(folder.glob("*/*.py"))]
    if not any(map(_is_in_form, files)):
        raise UsageError(
            f"problems: {root} has no task of KernelBench-X or TritonBench-T",
            next_step="name the checkout, or the folder with its tasks",
        )
    metadata, refused = _read_metadata(folder)
    problems, unreadable = read_each(files, partial(_read_problem, folder=folder, source=name, metadata=metadata))
    return LoadedSource(problems=problems, unreadable=refused + unreadable)


def adapter_of(function: str, file: str) -> str:
    """Return the source of a module in KernelBench's form that calls ``function`` of the ``file`` beside it."""
    text = TEMPLATE.read_text(encoding="utf-8")
    return text.replace('"@name@"', json.dumps(function)).replace('"@file@"', json.dumps(file))


def split(source: bytes) -> tuple[bytes, bytes | None]:
    """Split a file at the separator; the second part keeps its line numbers, or is ``None`` without a separator."""
    match = _SEPARATOR.search(source)
    if match is None:
        return source, None
    before = source[: match.start()]
    return before, b"\n" * (before.count(b"\n") + 1) + source[match.end() :].lstrip(b"\r").removeprefix(b"\n")


def read_task(path: Path) -> TaskFile:
    """Read a task's file.

    Raises:
        UnreadableFileError: it has no separator, is not valid Python, or its test calls none of its functions.
    """
    source, test = split(read_bytes(path))
    if test is None:
        raise UnreadableFileError(path, "has no line of 80 or more '#' between the function and its test")
    code, calls = parse_module(path, source), parse_module(path, test)
    functions = {node.name: node for node in code.body if isinstance(node, ast.FunctionDef)}
    function = _find_tested(path.stem, functions, calls)
    if function is None:
        known = ", ".join(functions) or "none"
        raise UnreadableFileError(path, f"the test calls no function of the part before it, which has: {known}")
    node = functions[function]
    uses = tuple(_make_use(node, case) for case in cases_of(calls, function))
    return TaskFile(path, function, source, test, uses, ast.get_docstring(node) or "")


def _task_folder(root: Path) -> Path:
    places = (place / folder for place in (root / "data", root) for folder in _TASK_FOLDERS)
    return next((place for place in places if place.is_dir()), root)


def _is_in_form(path: Path) -> bool:
    try:
        return split(read_bytes(path))[1] is not None
    except UnreadableFileError:
        return False


def _read_metadata(folder: Path) -> tuple[Mapping[str, Mapping[str, Any]], tuple[UnreadableItem, ...]]:
    """Return file name → metadata, from the list beside a folder."""
    names = (f"{folder.name}{version}.{ending}" for version in ("", "_v1") for ending in ("json", "jsonl"))
    lists, refused = read_each([folder.parent / name for name in names if (folder.parent / name).is_file()], _read_json)
    rows = [row for rows in lists if isinstance(rows, list) for row in rows if isinstance(row, dict)]
    return {Path(str(row["file"])).name: row for row in rows if "file" in row}, refused


def _read_json(path: Path) -> Any:
    with refusals_of(path):
        return parse_lenient(read_text(path))


def _read_problem(path: Path, folder: Path, source: str, metadata: Mapping[str, Mapping[str, Any]]) -> Problem:
    task, known = read_task(path), metadata.get(path.name, {})
    chosen = _choose_calls(task.uses)
    numbers = [use.case.number for use in chosen]
    workloads = (
        Workload(name="default", values={"CASE": numbers[0] if numbers else 0}),
        *(Workload(name=f"case{number}", values={"CASE": number}) for number in numbers[1:]),
    )
    adapter = adapter_of(task.function, TASK_FILE)
    contract = _read_contract(path, known)
    outliers = bool(chosen) and contract is None and all(use.case.made.plain for use in chosen)
    mutates = any(use.writes or use.given_output for use in chosen)
    random = any(use.is_random for use in chosen)
    facts = {
        "adapter": hashlib.sha256(adapter.encode()).hexdigest(),
        "workloads": [{"name": workload.name, "values": workload.values} for workload in workloads],
        "contract": None if contract is None else asdict(contract),
        "outliers": outliers,
        "mutates_inputs": mutates,
        "random": random,
    }
    return Problem(
        id=f"{path.parent.name}/{path.stem}",
        source=source,
        path=path,
        adapter=adapter,
        extra_files={TASK_FILE: task.source, TEST_FILE: task.test},
        category=path.parent.name if path.parent != folder else OTHER,
        level=_level(known),
        tags=() if any(use.is_drawn for use in chosen) else (FIXED_INPUTS,),
        dtypes=(_cell_dtype(path.stem, chosen),),
        workloads=workloads,
        outliers=outliers,
        mutates_inputs=mutates,
        random=random,
        contract=contract,
        digest=digest_of(task.source + task.test, facts),
        description=" ".join(str(known.get("description") or task.docstring or path.stem.replace("_", " ")).split()),
    )


def _choose_calls(uses: Sequence[TestUse]) -> tuple[TestUse, ...]:
    """Choose one call of each kind, the best first: preferably with large random inputs of real numbers.

    A call with fixed inputs is chosen only if there are no others. The further calls agree with the first one in the
    properties that a problem has only once: the dtype of its cells, and writing into its inputs.
    """
    kinds = {use.case.alike: use for use in reversed(uses)}
    if not kinds:
        return ()
    first = min(kinds.values(), key=_rank)
    others = sorted((use for use in kinds.values() if _fits(first, use)), key=lambda use: use.case.number)
    return (first, *others[: MOST_WORKLOADS - 1])


def _rank(use: TestUse) -> tuple[bool, bool, bool, bool, int, int]:
    case = use.case
    sizes = [size for size in case.positional if type(size) is int]
    size = case.made.elements or math.prod(sizes)  # some functions get only the sizes of a tensor that they make
    return (use.given_output, use.is_random, not use.is_drawn, case.kind == "complex", -size, case.number)


def _fits(first: TestUse, use: TestUse) -> bool:
    alike = (use.case.kind, use.writes) == (first.case.kind, first.writes)
    return use is not first and use.is_drawn and alike and not use.given_output and not use.is_random


def _cell_dtype(stem: str, chosen: Sequence[TestUse]) -> Dtype:
    named = _DTYPE_IN_NAME.search(stem)
    kind = named[1] if named else chosen[0].case.kind if chosen else "fp32"
    return _DTYPES.get(kind, Dtype.FP32)


def _level(known: Mapping[str, Any]) -> int | None:
    level = str(known.get("difficulty", ""))
    return int(level) if level.isdecimal() else None


def _read_contract(path: Path, known: Mapping[str, Any]) -> ContractSpec | None:
    """Read the accuracy limits of a quantised task; the RMSE in the metadata is absolute, that of the SNR relative."""
    thresholds = known.get("precision_thresholds")
    if not isinstance(thresholds, dict):
        return None
    try:
        cosine, l1, rmse = (float(thresholds[key]) for key in ("cosine_sim", "l1_relative", "rmse"))
        return ContractSpec(
            kind=kind[0] if (kind := _QUANTISED_NAME.search(path.stem)) else "w8a8",
            cosine_min=cosine,
            relative_l1_max=l1,
            rmse_max=rmse,
            snr_db_min=-20 * math.log10(rmse),
            snr_db_max=_UNBOUNDED_SNR_DB,
        )
    except (KeyError, TypeError, ValueError):
        raise UnreadableFileError(
            path,
            "precision_thresholds in the metadata must give cosine_sim, l1_relative and rmse as numbers above zero",
        ) from None


def _find_tested(stem: str, functions: Mapping[str, ast.FunctionDef], test: ast.Module) -> str | None:
    """Return the tested function: the one named like the file, or else the first that the test calls."""
    calls = [node.func.id for node in ast.walk(test) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return next((name for name in (stem, *calls) if name in functions and name in calls), None)


def _make_use(function: ast.FunctionDef, case: TestCall) -> TestUse:
    given = _bind(function, case)
    return TestUse(
        case=case,
        given_output=given.get("out") is not None,
        writes=_writes(function, given),
        is_random=_is_random(function, given),
    )


def _bind(function: ast.FunctionDef, case: TestCall) -> dict[str, Any]:
    """Return parameter → argument of a call, :data:`.UNKNOWN` if not known from the text."""
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    defaults = zip(names[len(names) - len(arguments.defaults) :], arguments.defaults, strict=True)
    by_name = zip((argument.arg for argument in arguments.kwonlyargs), arguments.kw_defaults, strict=True)
    usual = {n: value.value if isinstance(value, ast.Constant) else UNKNOWN for n, value in (*defaults, *by_name)}
    return usual | dict(zip(names, case.positional, strict=False)) | dict(case.named)


def _is_random(function: ast.FunctionDef, given: Mapping[str, Any]) -> bool:
    """Return True if the function calls a random operation that its arguments do not switch off."""
    if given.get("training") is False or any(given.get(name) == 0 for name in _PROBABILITY_PARAMETERS):
        return False
    if any(given.get(name) is not None for name in _SAMPLE_PARAMETERS):
        return False
    return any(_DRAWS.search(_called_name(node)) for node in ast.walk(function) if isinstance(node, ast.Call))


def _called_name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _writes(function: ast.FunctionDef, given: Mapping[str, Any]) -> bool:
    """Return True if the function writes into an argument, by method, assignment or a parameter that asks for it."""
    if given.get("inplace") is True or given.get("max_norm") is not None:
        return True
    if given.get("running_mean") is not None and given.get("training") is not False:
        return True
    names = set(given) - {"out"}
    return given.get("inplace") is not False and any(map(partial(_writes_into, names), ast.walk(function)))


def _writes_into(given: set[str], node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        return name.endswith("_") and not name.endswith("__") and root_name(node.func.value) in given
    if isinstance(node, ast.AugAssign):
        return root_name(node.target) in given
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Subscript) and root_name(target) in given for target in targets)
