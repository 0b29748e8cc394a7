"""Operators of PyTorch by name, with the sample inputs of its own test database (OpInfo).

The host has no PyTorch, so the operators are listed in a catalogue, ``problems/aten.json``, which
``tools/make_aten.py`` writes. A problem's module is made from the template ``adapter.py`` beside this file.
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
from kernel_matrix.sources import LoadedSource, Problem, UnreadableItem, Workload
from kernel_matrix.sources.document import UnreadableFileError, read_bytes
from kernel_matrix.sources.folder import ITEMSIZES
from kernel_matrix.sources.reference_module import digest_of

TEMPLATE = Path(__file__).with_name("adapter.py")
"""The module that a problem's is made from."""

FORMAT = 1
"""Version of the catalogue's form that is read and written here."""

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
_WORKLOAD = re.compile(r"[a-z][a-z0-9_-]*\Z")
_SAMPLED = re.compile(r"[a-z][a-z0-9]*\Z")
_FUNCTION = re.compile(r"torch(\.\w+)+\Z", re.ASCII)
_COSTS = ("numbers", "bytes", "flops")


def load(root: Path, *, name: str) -> LoadedSource:
    """Read every operator of a catalogue; see :class:`kernel_matrix.sources.Source`.

    :param root: the catalogue, ``aten.json``.
    :raises kernel_matrix.errors.UsageError: when it is none.
    """
    problems: dict[str, Problem] = {}
    unreadable: list[UnreadableItem] = []
    for entry in _read_catalogue(root):
        try:
            problem = _read_problem(root, entry, name)
        except UnreadableFileError as error:
            unreadable.append(error.unreadable)
            continue
        if problem.id in problems:
            unreadable.append(UnreadableItem(path=root, reason=f"{problem.id} is there twice"))
        problems.setdefault(problem.id, problem)
    return LoadedSource(problems=tuple(problems.values()), unreadable=tuple(unreadable))


def module_source(operator: str, variant: str, sampled: str, call: str = "") -> str:
    """The template with its constants filled in.

    :param operator: its name in the database, and ``variant`` that of its variant there.
    :param sampled: the dtype that samples are asked for; ``float``: the one that numbers have by default.
    :param call: JSON, see the template; a workload replaces it.
    """
    before, after = _template()
    constants = {"OPERATOR": operator, "VARIANT": variant, "SAMPLED": sampled, "CALL": call}
    return before + "".join(f"{name} = {value!r}\n" for name, value in constants.items()) + after


@cache
def _template() -> tuple[str, str]:
    """What comes before and after the template's constants."""
    text = TEMPLATE.read_text(encoding="utf-8")
    before, first, rest = text.partition('OPERATOR = ""\n')
    _, last, after = rest.partition('CALL = ""\n')
    if not (first and last):
        raise ValueError(f"{TEMPLATE} has no constants OPERATOR to CALL")
    return before, after


def _read_catalogue(root: Path) -> list[Any]:
    """The entries of a catalogue.

    :raises kernel_matrix.errors.UsageError: when the file is no catalogue of this version.
    """
    hint = f"name a catalogue of format {FORMAT}, or leave the path out: one comes with the source"
    try:
        catalogue = json.loads(read_bytes(root))
    except UnreadableFileError as error:
        raise UsageError(f"problems: {error.unreadable}", next_step=hint) from None
    except (ValueError, RecursionError) as error:
        what = str(error) or "nested too deeply"
        raise UsageError(f"problems: {root} is not JSON: {what}", next_step=hint) from None
    if not isinstance(catalogue, dict) or not isinstance(catalogue.get("operators"), list):
        raise UsageError(f"problems: {root} is no catalogue: it has no list of operators", next_step=hint)
    if catalogue.get("format") != FORMAT:
        found = catalogue.get("format")
        raise UsageError(f"problems: {root} is a catalogue of format {found!r}, not {FORMAT}", next_step=hint)
    entries: list[Any] = catalogue["operators"]
    return entries


class _Entry:
    """One operator of a catalogue, whose every value is held against what it must be."""

    def __init__(self, path: Path, values: Any) -> None:
        self._path = path
        self._values: Mapping[str, Any] = values if isinstance(values, dict) else {}
        self._called = str(self._values.get("name", "an operator"))[:80]

    def error(self, reason: str) -> UnreadableFileError:
        """What to raise where the entry makes no sense."""
        return UnreadableFileError(self._path, f"{self._called}: {reason}")

    def take(self, key: str, kind: type[T], default: T | None = None) -> T:
        """The value of ``key``.

        :raises UnreadableError: when there is none and no ``default``, or it is of another kind.
        """
        value = self._values.get(key, default)
        if not isinstance(value, kind):
            raise self.error(f"{key} must be a {kind.__name__}; got {value!r}"[:200])
        return value

    def text(self, key: str, form: re.Pattern[str]) -> str:
        """The text of ``key``, which must have this form.

        :raises UnreadableError: when it has not.
        """
        value = self.take(key, str)
        if not form.match(value):
            raise self.error(f"{key} is {value[:80]!r}; must look like {form.pattern}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """The texts of ``key``.

        :raises UnreadableError: when it is no list of texts.
        """
        values = self.take(key, list)
        if not all(isinstance(value, str) for value in values):
            raise self.error(f"{key} must be a list of texts")
        return tuple(values)


def _read_problem(path: Path, values: Any, source: str) -> Problem:
    entry = _Entry(path, values)
    operator, variant = entry.text("name", _NAME), entry.take("variant", str)
    if variant and not _NAME.match(variant):
        raise entry.error(f"variant is {variant[:80]!r}; must look like {_NAME.pattern}")
    calls = _calls(entry)
    workloads = tuple(_workloads(entry, calls))
    smoke = next(iter(calls.values()))
    adapter = module_source(operator, variant, entry.text("sampled", _SAMPLED), _written(smoke))
    outliers = entry.take("outliers", bool)
    full_name = f"{operator}.{variant}" if variant else operator
    return Problem(
        id=f"aten/{full_name}",
        source=source,
        path=TEMPLATE,
        adapter=adapter,
        category=entry.take("category", str),
        tags=entry.texts("tags"),
        dtypes=_dtypes(entry),
        workloads=workloads,
        outliers=outliers,
        digest=digest_of(adapter.encode(), {"workloads": _canonical(workloads), "outliers": outliers}),
        description=f"{smoke['function']} on samples of PyTorch's own tests.",
    )


def _dtypes(entry: _Entry) -> tuple[Dtype, ...]:
    names, known = entry.texts("dtypes"), [dtype.value for dtype in Dtype]
    strange = next((name for name in names if name not in known), None)
    if strange is not None or not names:
        raise entry.error(f"dtypes must be some of {', '.join(known)}; got {', '.join(names) or 'none'}")
    return tuple(map(Dtype, names))


def _calls(entry: _Entry) -> dict[str, dict[str, Any]]:
    """The calls by the names of their workloads; one at least.

    :raises UnreadableError: when one is no call.
    """
    calls = entry.take("calls", dict)
    if not calls:
        raise entry.error("calls is empty; a problem needs one at least")
    for name, call in calls.items():
        if not _WORKLOAD.match(name) or not _is_call(call):
            form = '{"function": "torch.…", "positional": […], "named": {…}}'
            raise entry.error(f"calls.{name[:80]} must be {form} under a name like {_WORKLOAD.pattern}")
    return calls


def _workloads(entry: _Entry, calls: Mapping[str, dict[str, Any]]) -> Iterator[Workload]:
    """One per call; what it costs is known of the one called ``default``."""
    for name, call in calls.items():
        cost = _cost(entry) if name == "default" else {}
        yield Workload(
            name=name,
            values={"CALL": _written(call)},
            flops=cost.get("flops"),
            bytes={d: cost["numbers"] * size + cost["bytes"] for d, size in ITEMSIZES.items()} if cost else {},
        )


def _written(call: dict[str, Any]) -> str:
    return json.dumps(call, separators=(", ", ": "))


def _is_call(call: Any) -> bool:
    if not isinstance(call, dict) or not isinstance(call.get("function"), str):
        return False
    listed = isinstance(call.get("positional"), list) and isinstance(call.get("named"), dict)
    return listed and _FUNCTION.match(call["function"]) is not None


def _cost(entry: _Entry) -> Mapping[str, float]:
    """Numbers in the cell's dtype and bytes besides that a call must move at least, and its operations where known.

    :raises UnreadableError: when one is no number, or negative.
    """
    cost = entry.take("cost", dict, {})
    for name, value in cost.items():
        if name not in _COSTS or isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
            raise entry.error(f"cost.{name[:80]} is {value!r}; allowed are {', '.join(_COSTS)}, none negative"[:200])
    if cost and not {"numbers", "bytes"} <= cost.keys():
        raise entry.error("cost lacks numbers or bytes")
    return cost


def _canonical(workloads: tuple[Workload, ...]) -> list[Any]:
    return [
        {"name": w.name, "values": w.values, "flops": w.flops, "bytes": {d.value: n for d, n in w.bytes.items()}}
        for w in workloads
    ]
