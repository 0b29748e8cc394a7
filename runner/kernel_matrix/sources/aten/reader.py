"""Operators of PyTorch with the sample inputs of its test database (OpInfo) as problems.

The host has no PyTorch, so the catalogue ``problems/aten.json``, written by ``tools/make_aten.py``, lists the
operators. The module of a problem is made from the template ``adapter.py`` beside this file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Dtype
from kernel_matrix.sources import LoadedSource, Problem, Workload
from kernel_matrix.sources.document import UnreadableFileError, parse_json_object, read_each, read_text
from kernel_matrix.sources.folder import ITEMSIZES
from kernel_matrix.sources.reference_module import digest_of

TEMPLATE = Path(__file__).with_name("adapter.py")
"""Template of a problem's module."""

FORMAT = 1
"""Version of the catalogue's format."""

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
_WORKLOAD = re.compile(r"[a-z][a-z0-9_-]*\Z")
_SAMPLED = re.compile(r"[a-z][a-z0-9]*\Z")
_FUNCTION = re.compile(r"torch(\.\w+)+\Z", re.ASCII)
_COSTS = ("numbers", "bytes", "flops")


def load(root: Path, *, name: str) -> LoadedSource:
    """Read every operator of the catalogue ``root``; see :class:`kernel_matrix.sources.Source`."""
    problems: dict[str, Problem] = {}

    def read(entry: Any) -> None:
        problem = _read_problem(root, entry, name)
        if problems.setdefault(problem.id, problem) is not problem:
            raise UnreadableFileError(root, f"{problem.id} is there twice")

    _, unreadable = read_each(_read_catalogue(root), read)
    return LoadedSource(problems=tuple(problems.values()), unreadable=unreadable)


def module_source(operator: str, variant: str, sampled: str, call: str = "") -> str:
    """Return the template with its constants filled in.

    Args:
        operator: name in the database.
        variant: name of the variant in the database.
        sampled: dtype of the samples; ``float`` for torch's default dtype.
        call: JSON, see the template; workloads replace it.
    """
    before, after = _template()
    constants = {"OPERATOR": operator, "VARIANT": variant, "SAMPLED": sampled, "CALL": call}
    return before + "".join(f"{name} = {value!r}\n" for name, value in constants.items()) + after


@cache
def _template() -> tuple[str, str]:
    """Return the text before and after the constants of the template."""
    text = TEMPLATE.read_text(encoding="utf-8")
    before, first, rest = text.partition('OPERATOR = ""\n')
    _, last, after = rest.partition('CALL = ""\n')
    if not (first and last):
        raise ValueError(f"{TEMPLATE} has no constants OPERATOR to CALL")
    return before, after


def _read_catalogue(root: Path) -> list[Any]:
    """Return the entries of a catalogue.

    Raises:
        kernel_matrix.errors.UsageError: the file is not a catalogue of this version.
    """
    hint = f"name a catalogue of format {FORMAT}, or omit the path to read the bundled one"
    try:
        catalogue = parse_json_object(root, read_text(root))
    except UnreadableFileError as error:
        raise UsageError(f"problems: {error.unreadable}", next_step=hint) from None
    if not isinstance(catalogue.get("operators"), list):
        raise UsageError(f"problems: {root} is not a catalogue: it has no list of operators", next_step=hint)
    if catalogue.get("format") != FORMAT:
        found = catalogue.get("format")
        raise UsageError(f"problems: {root} is a catalogue of format {found!r}, not {FORMAT}", next_step=hint)
    entries: list[Any] = catalogue["operators"]
    return entries


class _Entry:
    """One operator of a catalogue; the methods raise ``UnreadableFileError`` for invalid values."""

    def __init__(self, path: Path, values: Any) -> None:
        self._path = path
        self._values: Mapping[str, Any] = values if isinstance(values, dict) else {}
        self._called = str(self._values.get("name", "an operator"))[:80]

    def error(self, reason: str) -> UnreadableFileError:
        """Make the exception for an invalid entry."""
        return UnreadableFileError(self._path, f"{self._called}: {reason}")

    def take(self, key: str, kind: type[T], default: T | None = None) -> T:
        """Return the value of ``key``, which must be of type ``kind``."""
        value = self._values.get(key, default)
        if not isinstance(value, kind):
            raise self.error(f"{key} must be a {kind.__name__}; got {value!r}"[:200])
        return value

    def text(self, key: str, form: re.Pattern[str]) -> str:
        """Return the text of ``key``, which must match ``form``."""
        value = self.take(key, str)
        if not form.match(value):
            raise self.error(f"{key} is {value[:80]!r}; must look like {form.pattern}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of texts of ``key``."""
        values = self.take(key, list)
        if not all(isinstance(value, str) for value in values):
            raise self.error(f"{key} must be a list of texts")
        return tuple(values)


def _read_problem(path: Path, values: Any, source: str) -> Problem:
    entry = _Entry(path, values)
    operator, variant = entry.text("name", _NAME), entry.take("variant", str)
    if variant and not _NAME.match(variant):
        raise entry.error(f"variant is {variant[:80]!r}; must look like {_NAME.pattern}")
    calls = _read_calls(entry)
    workloads = tuple(_make_workloads(entry, calls))
    smoke = next(iter(calls.values()))
    adapter = module_source(operator, variant, entry.text("sampled", _SAMPLED), _call_text(smoke))
    outliers = entry.take("outliers", bool)
    full_name = f"{operator}.{variant}" if variant else operator
    return Problem(
        id=f"aten/{full_name}",
        source=source,
        path=TEMPLATE,
        adapter=adapter,
        category=entry.take("category", str),
        tags=entry.texts("tags"),
        dtypes=_read_dtypes(entry),
        workloads=workloads,
        outliers=outliers,
        digest=digest_of(adapter.encode(), {"workloads": [w.digest_facts for w in workloads], "outliers": outliers}),
        description=f"{smoke['function']} on samples of PyTorch's own tests.",
    )


def _read_dtypes(entry: _Entry) -> tuple[Dtype, ...]:
    names, known = entry.texts("dtypes"), [dtype.value for dtype in Dtype]
    if not names or not set(names) <= set(known):
        raise entry.error(f"dtypes must be some of {', '.join(known)}; got {', '.join(names) or 'none'}")
    return tuple(map(Dtype, names))


def _read_calls(entry: _Entry) -> dict[str, dict[str, Any]]:
    """Return workload → call, at least one."""
    calls = entry.take("calls", dict)
    if not calls:
        raise entry.error("calls is empty; a problem needs at least one")
    for name, call in calls.items():
        if not _WORKLOAD.match(name) or not _is_call(call):
            form = '{"function": "torch.…", "positional": […], "named": {…}}'
            raise entry.error(f"calls.{name[:80]} must be {form} under a name like {_WORKLOAD.pattern}")
    return calls


def _make_workloads(entry: _Entry, calls: Mapping[str, dict[str, Any]]) -> Iterator[Workload]:
    """Yield one workload per call; the cost is known for the one named ``default``."""
    for name, call in calls.items():
        cost = _read_cost(entry) if name == "default" else {}
        yield Workload(
            name=name,
            values={"CALL": _call_text(call)},
            flops=cost.get("flops"),
            bytes={d: cost["numbers"] * size + cost["bytes"] for d, size in ITEMSIZES.items()} if cost else {},
        )


def _call_text(call: dict[str, Any]) -> str:
    return json.dumps(call, separators=(", ", ": "))


def _is_call(call: Any) -> bool:
    if not isinstance(call, dict) or not isinstance(call.get("function"), str):
        return False
    listed = isinstance(call.get("positional"), list) and isinstance(call.get("named"), dict)
    return listed and _FUNCTION.match(call["function"]) is not None


def _read_cost(entry: _Entry) -> Mapping[str, float]:
    """Return the minimum of numbers in the cell's dtype and of further bytes that a call moves, and its FLOPs."""
    cost = entry.take("cost", dict, {})
    for name, value in cost.items():
        if name not in _COSTS or isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            raise entry.error(f"cost.{name[:80]} is {value!r}; allowed are {', '.join(_COSTS)}, none negative"[:200])
    if cost and not {"numbers", "bytes"} <= cost.keys():
        raise entry.error("cost lacks numbers or bytes")
    return cost
