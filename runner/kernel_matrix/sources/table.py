"""Problems and candidates in JSONL or Parquet tables, such as data sets on Hugging Face; each row is a module.

Column names differ between data sets: :data:`PROBLEM_COLUMNS` and :data:`CANDIDATE_COLUMNS` list the known ones. Case
does not matter, and blanks and hyphens count as underscores.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Dtype
from kernel_matrix.python_syntax import parse
from kernel_matrix.sources import Candidate, LoadedSource, Origin, Problem, UnreadableItem, Workload
from kernel_matrix.sources.document import ID_FORM, NOT_IN_IDS, JsonObject, UnreadableFileError, parse_json_object
from kernel_matrix.sources.kernelbench.reader import OTHER
from kernel_matrix.sources.reference_module import detect_language, digest_of, find_missing_definition
from kernel_matrix.untrusted_json import read_lines

Columns = Mapping[str, tuple[str, ...]]

# The formatter would put each name on a line of its own.
# fmt: off
_COMMON_COLUMNS: Columns = {
    "level": ("level", "level_id"),
    "problem_id": ("problem_id", "task_id"),
}
_NAMES = ("problem_name", "task_name", "op_name", "name", "problem", "task")

PROBLEM_COLUMNS: Columns = {
    "code": ("ref_arch_src", "pytorch_code", "pytorch_code_module", "reference_code", "reference", "code", "source"),
    "name": _NAMES,
    "category": ("category",),
    "description": ("description",),
    **_COMMON_COLUMNS,
}
"""Field of a problem → possible names of its column; the first that exists counts. Only ``code`` is required."""

CANDIDATE_COLUMNS: Columns = {
    "code": (
        "custom_code", "custom_kernel", "generated_code", "kernel_code", "kernel", "predict", "prediction",
        "triton_code", "cuda_code", "completion", "code", "source",
    ),
    "name": _NAMES,
    "sample": ("sample_id", "sample"),
    "round": ("round", "round_id", "turn"),
    "method": ("method",),
    "model": ("model_name", "model"),
    "tokens_in": ("tokens_in", "input_tokens", "prompt_tokens"),
    "tokens_cached": ("tokens_cached", "cached_tokens"),
    "tokens_out": ("tokens_out", "output_tokens", "completion_tokens"),
    "cost_usd": ("cost_usd", "cost", "estimated_cost_usd"),
    "wall_s": ("wall_s", "wall_time_s", "generation_time_s"),
    **_COMMON_COLUMNS,
}
"""The same for candidates."""

_CATEGORIES = frozenset({
    "Activation", "Convolution", "Fusion", "Index", "LinearAlgebra", "Loss", "Math", "MatrixMultiply",
    "Normalization", "Optimizer", "Pooling", "Quantization", "Random", "Reduce", "SpatialOps", "Communication", OTHER,
})
# fmt: on

MAX_FILE_BYTES = 1 << 30
MAX_ROW_BYTES = 4 << 20
"""Longest line in bytes, and longest code in characters."""
MAX_ROWS = 100_000

_SUFFIXES = (".jsonl", ".ndjson", ".parquet")
_BATCH_ROWS = 1024
_ROW_FILE = "table_row.py"
_ADAPTER = """\
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from table_row import ModelNew
"""
"""Module of a candidate; the code of its row is in a file beside it."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a table."""

    path: Path
    number: int
    """Number of the row from 1, or the line of a JSONL file."""
    values: Mapping[str, Any]
    """Field → value."""

    def error(self, reason: str) -> UnreadableFileError:
        return UnreadableFileError(self.path, reason, self.number)

    def text(self, field: str) -> str | None:
        value = self.values.get(field)
        return value.strip() or None if isinstance(value, str) else None

    def whole(self, field: str) -> int | None:
        """Return a whole number that may be stored as integer, float or text; ``level_2`` is 2."""
        value: Any = self.values.get(field)
        if isinstance(value, str):
            match = re.fullmatch(r"(?:level[_ -]?)?(\d{1,9})", value.strip(), re.IGNORECASE)
            return int(match[1]) if match else None
        is_whole = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**53
        return int(value) if is_whole and value == int(value) and value >= 0 else None

    def real(self, field: str) -> float | None:
        value: Any = self.values.get(field)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return float(value) if is_number and 0 <= value < 1e12 else None

    def code(self) -> str:
        value = self.values.get("code")
        if not isinstance(value, str) or not value.strip():
            raise self.error(f"has no code; got {type(value).__name__}")
        if len(value) > MAX_ROW_BYTES:
            raise self.error(f"the code is larger than {MAX_ROW_BYTES >> 20} MiB")
        return value

    def key(self) -> str:
        """Return ``level1/19_ReLU``, or as much of it as the row has."""
        level, number, name = self.whole("level"), self.whole("problem_id"), self.text("name") or ""
        title = name.removesuffix(".py")
        if number is not None and title != str(number) and not title.startswith(f"{number}_"):
            title = f"{number}_{title}" if title else f"{number}"
        return f"level{level}/{title}" if level is not None and title else title


def load(root: Path, *, name: str) -> LoadedSource:
    """Read the rows of a table, or of the tables in a folder, as problems; see :class:`kernel_matrix.sources.Source`.

    Raises:
        kernel_matrix.errors.UsageError: there is no table, or none has a code column.
    """
    problems: dict[str, Problem] = {}
    unreadable: list[UnreadableItem] = []
    for row in _read_rows(root, PROBLEM_COLUMNS, "problems", unreadable):
        try:
            problem = _make_problem(row, name)
            if problem.id in problems:
                raise row.error(f"has the name {problem.id!r} of another row")
            problems[problem.id] = problem
        except UnreadableFileError as error:  # noqa: PERF203  # one bad row must not end the others
            unreadable.append(error.unreadable)
    return LoadedSource(problems=tuple(problems.values()), unreadable=tuple(unreadable))


def load_candidates(
    path: Path, problems: Mapping[str, Problem]
) -> tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]:
    """Read the rows of a table, or of the tables in a folder, as candidates.

    A row names its problem by id, by level and number, or by a name that only one problem has.

    Raises:
        kernel_matrix.errors.UsageError: there is no table, or none has a code column.
    """
    known = _KnownProblems.of(problems)
    candidates: dict[str, Candidate] = {}
    unreadable: list[UnreadableItem] = []
    for row in _read_rows(path, CANDIDATE_COLUMNS, "candidates", unreadable):
        try:
            problem_id = known.find(row)
            name = _name_candidate(row, problem_id, candidates)
            candidates[f"{problem_id}/{name}"] = _make_candidate(row, problems[problem_id], name)
        except UnreadableFileError as error:  # noqa: PERF203  # one bad row must not end the others
            unreadable.append(error.unreadable)
    return tuple(candidates.values()), tuple(unreadable)


# ---- rows


def _read_rows(root: Path, columns: Columns, key: str, unreadable: list[UnreadableItem]) -> Iterator[_Row]:
    """Yield the rows of all tables, and add unreadable items to ``unreadable``."""
    paths = [root] if root.is_file() else sorted(p for p in root.rglob("*") if p.suffix in _SUFFIXES and p.is_file())
    if not paths:
        what = "no such file or folder" if not root.exists() else f"a folder without any {', '.join(_SUFFIXES)}"
        raise UsageError(f"{key}: {root}: {what}", next_step="name a table, or a folder of tables")
    without_code: list[UnreadableFileError] = []
    for path in paths:
        try:
            yield from _read_table(path, columns, unreadable)
        except _NoCodeError as error:  # noqa: PERF203  # one bad table must not end the others
            without_code.append(error)
        except UnreadableFileError as error:
            unreadable.append(error.unreadable)
    if len(without_code) == len(paths):
        raise UsageError(f"{key}: {without_code[0]}", next_step="rename the column with the code")
    unreadable += [error.unreadable for error in without_code]


class _NoCodeError(UnreadableFileError):
    """A table has no code column."""


def _read_table(path: Path, columns: Columns, unreadable: list[UnreadableItem]) -> Iterator[_Row]:
    if path.suffix not in _SUFFIXES:
        raise UnreadableFileError(path, f"is not a table; known: {', '.join(_SUFFIXES)}")
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UnreadableFileError(path, f"is larger than {MAX_FILE_BYTES >> 30} GiB")
        if path.suffix == ".parquet":
            yield from _read_parquet(path, columns)
        else:
            yield from _read_jsonl(path, columns, unreadable)
    except OSError as error:
        raise UnreadableFileError(path, f"cannot be read: {error.strerror}") from None


def _read_jsonl(path: Path, columns: Columns, unreadable: list[UnreadableItem]) -> Iterator[_Row]:
    """Yield the rows of a JSONL file, whose lines may have different keys."""
    seen: dict[str, None] = {}
    without_code: list[UnreadableItem] = []
    has_code = False
    for number, line in _numbered_lines(path):
        try:
            values = _parse_row(path, line, number)
        except UnreadableFileError as error:
            unreadable.append(error.unreadable)
            continue
        found = _match_columns(values, columns)
        if "code" in found:
            has_code = True
            yield _Row(path, number, {field: values[column] for field, column in found.items()})
        else:
            seen.update(dict.fromkeys(values))
            without_code.append(UnreadableItem(path=path, reason=_explain_no_code(columns, values), line=number))
    if without_code and not has_code:
        raise _NoCodeError(path, _explain_no_code(columns, seen))
    unreadable += without_code


def _parse_row(path: Path, line: bytes | None, number: int) -> JsonObject:
    if line is None:
        raise UnreadableFileError(path, f"the line is longer than {MAX_ROW_BYTES >> 20} MiB", number)
    return parse_json_object(path, line, number)


def _numbered_lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yield (number from 1, line) for each line that is not blank, with None for a line that is too long."""
    with path.open("rb") as file:
        for row, (number, line) in enumerate(read_lines(file, MAX_ROW_BYTES), start=1):
            if row > MAX_ROWS:
                raise UnreadableFileError(path, f"has more than {MAX_ROWS} rows; the rest is ignored", number)
            yield number, line


def _read_parquet(path: Path, columns: Columns) -> Iterator[_Row]:
    import polars as pl  # noqa: PLC0415  # slow to import, and few matrices need it

    # A damaged file can make polars panic, and PanicException is not an Exception.
    faults = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
    try:
        schema = pl.read_parquet_schema(path)
        found = _match_columns(schema, columns)
        if "code" not in found:
            raise _NoCodeError(path, _explain_no_code(columns, schema))
        table = pl.scan_parquet(path, glob=False).select(found.values())
        for start in range(0, MAX_ROWS, _BATCH_ROWS):
            rows = table.slice(start, _BATCH_ROWS).collect().to_dicts()
            for number, values in enumerate(rows, start=start + 1):
                yield _Row(path, number, {field: values[column] for field, column in found.items()})
            if len(rows) < _BATCH_ROWS:
                return
    except faults as error:
        reason = " ".join(str(error).split())[:200]
        raise UnreadableFileError(path, f"is not readable as Parquet: {reason}") from None
    raise UnreadableFileError(path, f"has more than {MAX_ROWS} rows; the rest is ignored", MAX_ROWS + 1)


def _match_columns(given: Iterable[str], columns: Columns) -> dict[str, str]:
    """Return field → column for the fields that the table has."""
    plain = {re.sub(r"[\s-]+", "_", column.strip().lower()): column for column in given}
    found = {field: next((plain[name] for name in names if name in plain), None) for field, names in columns.items()}
    return {field: column for field, column in found.items() if column is not None}


def _explain_no_code(columns: Columns, given: Iterable[str]) -> str:
    has = ", ".join(list(given)[:20])[:300]
    return f"has no code column; looked for: {', '.join(columns['code'])}; it has: {has}"


# ---- problems


def _make_problem(row: _Row, source: str) -> Problem:
    code, id_ = row.code(), row.key()
    if not ID_FORM.match(id_.partition("/")[2] if row.whole("level") is not None else id_):
        columns = ", ".join((*PROBLEM_COLUMNS["name"], *PROBLEM_COLUMNS["problem_id"]))
        raise row.error(f"{id_!r} cannot be an id; a row needs letters, digits, '.', '_' or '-' in one of: {columns}")
    _check_form(row, code)
    level, category = row.whole("level"), row.text("category")
    return Problem(
        id=id_,
        source=source,
        path=row.path,
        adapter=code,
        category=category if category in _CATEGORIES else ("Fusion" if level == 2 else OTHER),
        level=level,
        dtypes=(Dtype.FP32, Dtype.FP16, Dtype.BF16),
        workloads=(Workload(name="default"),),
        digest=digest_of(code.encode(), {"workloads": [{"name": "default", "values": {}}]}),
        description=row.text("description") or " ".join(id_.rpartition("/")[2].replace("_", " ").split()),
    )


def _check_form(row: _Row, code: str) -> None:
    """Check that the code is in KernelBench's form."""
    try:
        missing = find_missing_definition(parse(code))
    except SyntaxError as error:
        raise row.error(f"not valid Python at line {error.lineno} of its code: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise row.error(f"not valid Python: {str(error) or 'nested too deeply'}") from None
    if missing:
        raise row.error(missing)


# ---- candidates


@dataclass(frozen=True, slots=True)
class _KnownProblems:
    """Problems by the names that a row may use for them."""

    ids: frozenset[str]
    by_number: Mapping[tuple[int, int], str]
    by_title: Mapping[str, str]
    """Last part of an id, if unique → id."""

    @classmethod
    def of(cls, ids: Iterable[str]) -> _KnownProblems:
        numbered: dict[tuple[int, int], str] = {}
        titles: dict[str, list[str]] = {}
        for id_ in ids:
            match = re.match(r"level(\d+)/(\d+)(?:_|\Z)", id_)
            if match:
                numbered[int(match[1]), int(match[2])] = id_
            titles.setdefault(id_.rpartition("/")[2], []).append(id_)
        return cls(frozenset(ids), numbered, {title: its[0] for title, its in titles.items() if len(its) == 1})

    def find(self, row: _Row) -> str:
        """Return the id of the problem of a row."""
        name, key = (row.text("name") or "").removesuffix(".py"), row.key()
        for id_ in (name, key):
            if id_ in self.ids:
                return id_
        level, number = row.whole("level"), row.whole("problem_id")
        if level is not None and number is None and (match := re.match(r"\d+", name)):
            number = int(match[0])
        if level is not None and number is not None:
            found = self.by_number.get((level, number))
        else:
            found = self.by_title.get(name)
        if found is None:
            raise row.error(f"is for {key or 'an unnamed problem'}, which is not among the problems read")
        return found


def _name_candidate(row: _Row, problem_id: str, taken: Iterable[str]) -> str:
    """Return ``<model or method>-<sample>``, with the number of the row if needed to be unique."""
    maker = row.text("model") or row.text("method") or ""
    numbers = [row.whole(field) for field in ("sample", "round")]
    parts = [NOT_IN_IDS.sub("_", maker).strip("_.-"), *(str(number) for number in numbers if number is not None)]
    name = "-".join(part for part in parts if part)
    if not name or f"{problem_id}/{name}" in taken:
        name = f"{name}-row{row.number}" if name else f"row{row.number}"
    if f"{problem_id}/{name}" in taken:
        raise row.error(f"has the name {problem_id}/{name!r} of a row in another table")
    return name


def _make_candidate(row: _Row, problem: Problem, name: str) -> Candidate:
    source = row.code().encode()
    language = detect_language(source)
    return Candidate(
        id=f"{problem.id}/{name}",
        problem_id=problem.id,
        path=row.path,
        language=language,
        adapter=_ADAPTER,
        extra_files={_ROW_FILE: source},
        defines="ModelNew",
        origin=Origin(
            method=row.text("method"),
            model=row.text("model"),
            sample=row.whole("sample"),
            round=row.whole("round"),
            tokens_in=row.whole("tokens_in"),
            tokens_cached=row.whole("tokens_cached"),
            tokens_out=row.whole("tokens_out"),
            cost_usd=row.real("cost_usd"),
            wall_s=row.real("wall_s"),
        ),
        digest=digest_of(source, {"language": language.value, "entry": "ModelNew"}),
    )
