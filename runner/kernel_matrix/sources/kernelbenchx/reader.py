"""KernelBench-X, and TritonBench-T, whose form is the same: a function, a line of ``#``, and a test that calls it.

The function is the reference. Its inputs are those of the calls that the test makes: an adapter of ours runs the test
with a recorder in the function's place, and each kind of call is a workload.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Dtype
from kernel_matrix.model.messages import ContractSpec
from kernel_matrix.sources import LoadedSource, Problem, UnreadableItem, Workload
from kernel_matrix.sources.document import UnreadableFileError, read_bytes, read_each
from kernel_matrix.sources.kernelbenchx.cases import UNKNOWN, TestCall, cases_of
from kernel_matrix.sources.reference_module import digest_of

TEMPLATE = Path(__file__).with_name("adapter.py")
"""The adapter of every problem and candidate but for two names."""

TASK_FILE, TEST_FILE = "task.py", "test_segment.py"
"""The two halves of a problem's file as they lie beside its adapter."""

MOST_WORKLOADS = 8

OTHER = "Other"
"""Category of tasks that lie in no folder of one."""

FIXED_INPUTS = "fixed_inputs"
"""Tag: every input is written down in the test, so that an answer can be, too."""

_TASK_FOLDERS = ("kernelbenchx", "TritonBench_T_v1")
"""What the folder of tasks is called in a checkout."""

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
"""Kind of number → dtype of the cells; float32 for all others."""
_DRAWS = re.compile(r"dropout|bernoulli|multinomial|^rand|^sample$|^rrelu|gumbel|fractional_max_pool")
"""Calls in a function whose answers are drawn."""
_PROBABILITIES = ("p", "dropout_p", "dropout")
"""Parameters that, at zero, switch such calls off."""
_SAMPLES = ("random_samples", "_random_samples")
"""Parameters that give them the random numbers."""

_DTYPE_IN_NAME = re.compile(r"_(fp16|bf16|int8)\Z")
_QUANTISED_NAME = re.compile(r"w\d+a\d+")
_ANY_SNR_DB = 300.0
"""More than any answer has: the benchmark itself accepts what has not been quantised."""


@dataclass(frozen=True, slots=True)
class TaskFile:
    """One file, taken apart."""

    path: Path
    function: str
    """The reference's name."""
    source: bytes
    """The part before the separator."""
    test: bytes
    """The part after it, on the same lines as in the file."""
    uses: tuple[TestUse, ...]
    docstring: str


@dataclass(frozen=True, slots=True)
class TestUse:
    """One call that the test makes, and what the function's text says of it."""

    case: TestCall
    given_output: bool
    """It is handed the tensor to write its answer to."""
    writes: bool
    """It writes into its arguments."""
    is_random: bool
    """Its answer depends on random numbers of its own."""

    @property
    def is_drawn(self) -> bool:
        """Its inputs are others with each seed."""
        return self.case.made.drawn


def load(root: Path, *, name: str) -> LoadedSource:
    """Read every task; see :class:`kernel_matrix.sources.Source`.

    :param root: a checkout, its folder ``data``, or the folder of the tasks, flat or in folders by category.
    :raises kernel_matrix.errors.UsageError: when no file in there is in that form.
    """
    folder = _task_folder(root)
    files = [*sorted(folder.glob("*.py")), *sorted(folder.glob("*/*.py"))]
    if not any(map(_is_in_form, files)):
        raise UsageError(
            f"problems: {root} holds no task of KernelBench-X or TritonBench-T",
            next_step="name the checkout, or the folder with its tasks",
        )
    metadata, refused = _metadata(folder)
    problems, unreadable = read_each(files, partial(_read_problem, folder=folder, source=name, metadata=metadata))
    return LoadedSource(problems=problems, unreadable=refused + unreadable)


def adapter_of(function: str, file: str) -> str:
    """A module in KernelBench's form that calls ``function`` of the ``file`` beside it."""
    text = TEMPLATE.read_text(encoding="utf-8")
    return text.replace('"@name@"', json.dumps(function)).replace('"@file@"', json.dumps(file))


def split(source: bytes) -> tuple[bytes, bytes | None]:
    """What comes before the separator, and what after, on the same lines; null where there is no separator."""
    match = _SEPARATOR.search(source)
    if match is None:
        return source, None
    before = source[: match.start()]
    return before, b"\n" * (before.count(b"\n") + 1) + source[match.end() :].lstrip(b"\r").removeprefix(b"\n")


def read_task(path: Path) -> TaskFile:
    """Take a task's file apart.

    :raises UnreadableError: when it lacks the separator, is no Python, or its test calls no function of its.
    """
    source, test = split(read_bytes(path))
    if test is None:
        raise UnreadableFileError(path, "has no line of 80 or more '#' between the function and its test")
    code, calls = _parse(path, source), _parse(path, test)
    functions = {node.name: node for node in code.body if isinstance(node, ast.FunctionDef)}
    function = _tested(path.stem, functions, calls)
    if function is None:
        known = ", ".join(functions) or "none"
        raise UnreadableFileError(path, f"its test calls no function of the part before it; there is: {known}")
    node = functions[function]
    uses = tuple(_use(node, case) for case in cases_of(calls, function))
    return TaskFile(path, function, source, test, uses, ast.get_docstring(node) or "")


def _task_folder(root: Path) -> Path:
    places = (place / folder for place in (root / "data", root) for folder in _TASK_FOLDERS)
    return next((place for place in places if place.is_dir()), root)


def _is_in_form(path: Path) -> bool:
    try:
        return split(read_bytes(path))[1] is not None
    except UnreadableFileError:
        return False


def _metadata(folder: Path) -> tuple[Mapping[str, Mapping[str, Any]], tuple[UnreadableItem, ...]]:
    """What the list beside a folder says of each file, by its name without folders."""
    names = (f"{folder.name}{version}.{ending}" for version in ("", "_v1") for ending in ("json", "jsonl"))
    lists, refused = read_each([folder.parent / name for name in names if (folder.parent / name).is_file()], _json)
    rows = [row for rows in lists if isinstance(rows, list) for row in rows if isinstance(row, dict)]
    return {Path(str(row["file"])).name: row for row in rows if "file" in row}, refused


def _json(path: Path) -> Any:
    content = read_bytes(path)
    try:
        return json.loads(content)
    except ValueError as error:
        raise UnreadableFileError(path, f"not valid JSON: {error}", getattr(error, "lineno", None)) from None


def _read_problem(path: Path, folder: Path, source: str, metadata: Mapping[str, Mapping[str, Any]]) -> Problem:
    task, known = read_task(path), metadata.get(path.name, {})
    chosen = _chosen(task.uses)
    numbers = [use.case.number for use in chosen]
    workloads = (
        Workload(name="default", values={"CASE": numbers[0] if numbers else 0}),
        *(Workload(name=f"case{number}", values={"CASE": number}) for number in numbers[1:]),
    )
    adapter = adapter_of(task.function, TASK_FILE)
    contract = _contract(path, known)
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
        beside={TASK_FILE: task.source, TEST_FILE: task.test},
        category=path.parent.name if path.parent != folder else OTHER,
        level=_level(known),
        tags=() if any(use.is_drawn for use in chosen) else (FIXED_INPUTS,),
        dtypes=(_dtype(path.stem, chosen),),
        workloads=workloads,
        outliers=outliers,
        mutates_inputs=mutates,
        random=random,
        contract=contract,
        digest=digest_of(task.source + task.test, facts),
        description=" ".join(str(known.get("description") or task.docstring or path.stem.replace("_", " ")).split()),
    )


def _chosen(uses: Sequence[TestUse]) -> tuple[TestUse, ...]:
    """One of each kind of call, the one to begin with first: with random inputs, real numbers, and large.

    Calls with fixed inputs say little, and are taken only where there are no others, and then one. The further ones are
    like the first in what a problem says once: the dtype of its cells, and whether it writes into its inputs.
    """
    kinds = {use.case.alike: use for use in reversed(uses)}
    if not kinds:
        return ()
    first = min(kinds.values(), key=_rank)
    others = sorted((use for use in kinds.values() if _goes_with(first, use)), key=lambda use: use.case.number)
    return (first, *others[: MOST_WORKLOADS - 1])


def _rank(use: TestUse) -> tuple[bool, bool, bool, bool, int, int]:
    case = use.case
    sizes = [size for size in case.positional if type(size) is int]  # of a tensor that the function makes
    size = case.made.elements or math.prod(sizes)
    return (use.given_output, use.is_random, not use.is_drawn, case.kind == "complex", -size, case.number)


def _goes_with(first: TestUse, use: TestUse) -> bool:
    alike = (use.case.kind, use.writes) == (first.case.kind, first.writes)
    return use is not first and use.is_drawn and alike and not use.given_output and not use.is_random


def _dtype(stem: str, chosen: Sequence[TestUse]) -> Dtype:
    named = _DTYPE_IN_NAME.search(stem)
    kind = named[1] if named else chosen[0].case.kind if chosen else "fp32"
    return _DTYPES.get(kind, Dtype.FP32)


def _level(known: Mapping[str, Any]) -> int | None:
    level = str(known.get("difficulty", ""))
    return int(level) if level.isdecimal() else None


def _contract(path: Path, known: Mapping[str, Any]) -> ContractSpec | None:
    """What the metadata holds a quantised task to.

    Its RMSE is that of the numbers themselves; ours is relative to their size.
    """
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
            snr_db_max=_ANY_SNR_DB,
        )
    except (KeyError, TypeError, ValueError):
        raise UnreadableFileError(
            path,
            "precision_thresholds in the metadata must give cosine_sim, l1_relative and rmse as numbers above zero",
        ) from None


def _tested(stem: str, functions: Mapping[str, ast.FunctionDef], test: ast.Module) -> str | None:
    """The function that the test is about: the one called like the file, or else the first that it calls."""
    calls = [node.func.id for node in ast.walk(test) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return next((name for name in (stem, *calls) if name in functions and name in calls), None)


def _use(function: ast.FunctionDef, case: TestCall) -> TestUse:
    given = _bound(function, case)
    return TestUse(
        case=case,
        given_output=given.get("out") is not None,
        writes=_writes(function, given),
        is_random=_is_random(function, given),
    )


def _bound(function: ast.FunctionDef, case: TestCall) -> dict[str, Any]:
    """What each parameter of ``function`` is in a call, where that is written down."""
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
    defaults = zip(names[len(names) - len(arguments.defaults) :], arguments.defaults, strict=True)
    by_name = zip((argument.arg for argument in arguments.kwonlyargs), arguments.kw_defaults, strict=True)
    usual = {n: value.value if isinstance(value, ast.Constant) else UNKNOWN for n, value in (*defaults, *by_name)}
    return usual | dict(zip(names, case.positional, strict=False)) | dict(case.named)


def _is_random(function: ast.FunctionDef, given: Mapping[str, Any]) -> bool:
    """Whether it calls something that draws, and its arguments do not switch that off."""
    if given.get("training") is False or any(given.get(name) == 0 for name in _PROBABILITIES):
        return False
    if any(given.get(name) is not None for name in _SAMPLES):
        return False
    return any(_DRAWS.search(_called(node)) for node in ast.walk(function) if isinstance(node, ast.Call))


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _writes(function: ast.FunctionDef, given: Mapping[str, Any]) -> bool:
    """Whether it writes into what it was given: by a method, an assignment, or an operator that does so when asked."""
    if given.get("inplace") is True or given.get("max_norm") is not None:
        return True
    if given.get("running_mean") is not None and given.get("training") is not False:
        return True
    names = set(given) - {"out"}
    return given.get("inplace") is not False and any(map(partial(_writes_into, names), ast.walk(function)))


def _writes_into(given: set[str], node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        return name.endswith("_") and not name.endswith("__") and _root(node.func.value) in given
    if isinstance(node, ast.AugAssign):
        return _root(node.target) in given
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(isinstance(target, ast.Subscript) and _root(target) in given for target in targets)


def _root(node: ast.expr) -> str:
    """``x`` of ``x[0].add_(y).mul_(z)``."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _parse(path: Path, source: bytes) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of "\\d" and the like, which is theirs to mend
            return ast.parse(source)
    except SyntaxError as error:
        raise UnreadableFileError(path, f"not valid Python: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnreadableFileError(path, f"not valid Python: {str(error) or 'nested too deeply'}") from None
