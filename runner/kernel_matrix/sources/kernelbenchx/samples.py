"""Candidates for the tasks of KernelBench-X and TritonBench-T: lines of JSON, Python files, or folders of both."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_matrix.errors import UsageError, suggestion
from kernel_matrix.sources import Candidate, Origin, Problem, UnreadableItem
from kernel_matrix.sources.document import MAX_BYTES, UnreadableFileError, read_bytes, read_each, refusals_of
from kernel_matrix.sources.kernelbenchx.reader import TASK_FILE, TEST_FILE, adapter_of, read_task, split
from kernel_matrix.sources.reference_module import detect_language, digest_of
from kernel_matrix.untrusted_json import decode, parse_lenient, read_lines

CODE_FILE = "kernel.py"
"""Name of a candidate's file beside its adapter."""
OTHER_NAME = "kernel_function"
"""Name that a candidate may use for the function instead of its name in the task."""

_FENCED_BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_OPEN_FENCE = re.compile(r"\A\s*```[^\n]*\n")
_ENTRY_IN_PROMPT = re.compile(r"Wrapper Entry Information:\s*(?:def\s+)?([\w.]+)\s*\(")
_PROMPTS = ("instruction", "prompt", "query")
_NUMBERS: Mapping[str, Sequence[str]] = {
    "sample": ("sample", "sample_id"),
    "round": ("round",),
    "tokens_in": ("tokens_in", "prompt_tokens", "input_tokens"),
    "tokens_cached": ("tokens_cached",),
    "tokens_out": ("tokens_out", "completion_tokens", "output_tokens"),
}
"""Integer field of :class:`.Origin` → possible fields of the line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The content of a line or file."""

    path: Path
    line: int | None = None
    file: str = ""
    """File of the task, as named by the answer."""
    prompt: str = ""
    text: str
    origin: Mapping[str, Any] = field(default_factory=dict)

    def error(self, reason: str) -> UnreadableFileError:
        return UnreadableFileError(self.path, reason, self.line)


def load_candidates(
    path: Path, problems: Mapping[str, Problem]
) -> tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]:
    """Read a file ``.jsonl`` or ``.py``, or all such files below a folder; see :func:`.load_candidates`.

    Candidates without a ``sample`` are numbered per task in the order of files and lines.
    """
    tasks = _Tasks([problem for problem in problems.values() if {TASK_FILE, TEST_FILE} <= set(problem.extra_files)])
    return read_each((answer for file in _files(path) for answer in _read_answers(file)), tasks.candidate)


class _Tasks:
    """The known tasks."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self._problems = problems
        self._functions: dict[str, str] = {}
        self._taken: dict[str, set[int]] = defaultdict(set)

    def candidate(self, answer: _Answer | UnreadableFileError) -> Candidate:
        """Make the candidate of an answer.

        Raises:
            UnreadableFileError: the answer was unreadable, has no code, or is not for a known task.
        """
        if isinstance(answer, UnreadableFileError):
            raise answer
        problem = self._problem(answer)
        code = _extract_code(answer.text)
        if not code.strip():
            raise answer.error("has no code")
        function = self._function(problem)
        defines = OTHER_NAME if not _defines(code, function) and _defines(code, OTHER_NAME) else function
        adapter = f"{adapter_of(function, CODE_FILE)}\n\nModelNew = Model\n"
        language = detect_language(code)
        sample = self._take_number(problem, answer.origin.get("sample"))
        facts = {
            "language": language.value,
            "entry": "ModelNew",
            "defines": defines,
            "adapter": hashlib.sha256(adapter.encode()).hexdigest(),
        }
        return Candidate(
            id=f"{problem.id}/{sample}",
            problem_id=problem.id,
            path=answer.path,
            adapter=adapter,
            extra_files={CODE_FILE: code},
            language=language,
            defines=defines,
            origin=Origin(**{**answer.origin, "sample": sample}),
            digest=digest_of(code, facts),
        )

    def _problem(self, answer: _Answer) -> Problem:
        known = self._match_file(answer.file) if answer.file else self._match_prompt(answer.prompt)
        if len(known) == 1:
            return known[0]
        if known:
            raise answer.error(f"is for {answer.file!r}, which is any of {', '.join(problem.id for problem in known)}")
        if not answer.file:
            raise answer.error("has neither a `file` nor a known task in `instruction`")
        hint = suggestion(Path(answer.file).stem, [problem.path.stem for problem in self._problems])
        raise answer.error(f"is for {answer.file!r}, which is not a known task{hint}")

    def _match_file(self, file: str) -> list[Problem]:
        """Return the tasks with the file's name, or the only one that is also in its folder."""
        alike = [problem for problem in self._problems if problem.path.stem == Path(file).stem]
        return [problem for problem in alike if problem.id == Path(file).with_suffix("").as_posix()] or alike

    def _match_prompt(self, prompt: str) -> list[Problem]:
        """Return the tasks whose description is in a prompt, or whose function the prompt names."""
        words = " ".join(prompt.split())
        described = [problem for problem in self._problems if problem.description and problem.description in words]
        longest = max((len(problem.description) for problem in described), default=0)
        best = [problem for problem in described if len(problem.description) == longest]
        entry = _ENTRY_IN_PROMPT.search(prompt)
        if len(best) == 1 or entry is None:
            return best
        name = entry[1].rsplit(".", maxsplit=1)[-1]
        return [problem for problem in self._problems if problem.path.stem == name]

    def _function(self, problem: Problem) -> str:
        if problem.id not in self._functions:
            self._functions[problem.id] = read_task(problem.path).function
        return self._functions[problem.id]

    def _take_number(self, problem: Problem, wanted: int | None) -> int:
        taken = self._taken[problem.id]
        preferred = itertools.count() if wanted is None else itertools.chain((wanted,), itertools.count())
        number = next(number for number in preferred if number not in taken)
        taken.add(number)
        return number


def _files(path: Path) -> list[Path]:
    kinds = (".jsonl", ".py")
    found = [path] if path.is_file() else sorted(file for file in path.rglob("*") if "__pycache__" not in file.parts)
    files = [file for file in found if file.suffix in kinds and file.is_file()]
    if not files:
        raise UsageError(
            f"candidates: {path} neither is nor has a candidate for KernelBench-X",
            next_step="name a file .jsonl or .py, or a folder with such files",
        )
    return files


def _read_answers(file: Path) -> Iterator[_Answer | UnreadableFileError]:
    """Yield the answers of a file, with an error in place of each unreadable one."""
    try:
        if file.suffix == ".py":
            text = read_bytes(file).decode("utf-8-sig", errors="replace")
            yield _Answer(path=file, file=f"{file.parent.name}/{file.name}", text=text)
        else:
            yield from _read_lines(file)
    except UnreadableFileError as error:
        yield error
    except OSError as error:
        yield UnreadableFileError(file, f"cannot be read: {error.strerror}")


def _read_lines(file: Path) -> Iterator[_Answer | UnreadableFileError]:
    with file.open("rb") as lines:
        for number, line in read_lines(lines, MAX_BYTES):
            try:
                yield _parse_answer(file, number, line)
            except UnreadableFileError as error:  # noqa: PERF203  # one bad line must not end the others
                yield error


def _parse_answer(file: Path, number: int, line: bytes | None) -> _Answer:
    if line is None:
        raise UnreadableFileError(file, f"the line is longer than {MAX_BYTES >> 20} MiB", number)
    with refusals_of(file):
        row = parse_lenient(decode(line, number), number)
    if not isinstance(row, dict) or not isinstance(row.get("predict"), str):
        raise UnreadableFileError(file, "is not an object with the code as text in `predict`", number)
    prompt = next((str(row[key]) for key in _PROMPTS if row.get(key)), "")
    return _Answer(
        path=file,
        line=number,
        file=str(row.get("file") or ""),
        prompt=prompt,
        text=row["predict"],
        origin=_read_origin(row, prompt),
    )


def _read_origin(row: Mapping[str, Any], prompt: str) -> dict[str, Any]:
    """Read the fields of :class:`.Origin` from a line, without values of the wrong type."""
    usage = row.get("usage")
    fields = {**(usage if isinstance(usage, dict) else {}), **row}
    words = {key: fields[key] for key in ("method", "model", "parent") if isinstance(fields.get(key), str)}
    reals = {key: float(fields[key]) for key in ("cost_usd", "wall_s") if type(fields.get(key)) in (int, float)}
    wholes = {
        name: fields[key]
        for name, keys in _NUMBERS.items()
        for key in keys[::-1]
        if type(fields.get(key)) is int and fields[key] >= 0
    }
    digest = {"prompt_sha256": hashlib.sha256(prompt.encode()).hexdigest()} if prompt else {}
    return {**words, **reals, **wholes, **digest}


def _extract_code(text: str) -> bytes:
    """Return the code without Markdown fences and without a test."""
    blocks = _FENCED_BLOCK.findall(text)
    inner = max(blocks, key=len) if blocks else _OPEN_FENCE.sub("", text)
    return split(inner.encode("utf-8", errors="replace"))[0]


def _defines(code: bytes, name: str) -> bool:
    definition = rf"^(async\s+)?(def|class)\s+{re.escape(name)}\b|^{re.escape(name)}\s*[:=]"
    return re.search(definition.encode(), code, re.MULTILINE) is not None
