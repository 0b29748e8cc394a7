"""Ledger of a generation: every answer that an endpoint gave, kept as soon as it is there.

The answer is written first, to ``answers/<digest>.json``, then its line is appended to ``ledger.jsonl``. An answer file
holds its line too, so that an answer without a line gets it when the ledger is opened again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kernel_matrix.errors import StoreError, UsageError
from kernel_matrix.inside.atomic_write import replace_file, sync_folder
from kernel_matrix.model.messages import dumps
from kernel_matrix.untrusted_json import NoSuchFileError, UntrustedJsonError, parse_object, read_object

LEDGER_FILE: Final = "ledger.jsonl"
ANSWER_FOLDER: Final = "answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLine:
    """One answer of an endpoint."""

    digest: str
    """SHA-256 of the request."""
    answered_at: str
    model: str
    provider: str
    """Host of the endpoint."""
    prompt_sha256: str
    """SHA-256 of the messages."""
    problem: str
    sample: int
    round: int
    parent: str | None
    tokens_prompt: int | None
    """Counts of tokens are None if the endpoint does not say."""
    tokens_cached: int | None
    tokens_completion: int | None
    tokens_reasoning: int | None
    usd: float | None
    """None if the price or the count of tokens is unknown."""
    latency_s: float
    """From sending the request, the last time if it was repeated, to the end of the answer."""
    finish_reason: str
    retries: int
    answer: str
    """File of the answer, relative to the ledger."""

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> LedgerLine:
        """Read a line.

        Raises:
            TypeError: It has other fields.
        """
        return LedgerLine(**document)

    @property
    def tokens(self) -> int:
        """Tokens read and written; 0 if unknown."""
        return (self.tokens_prompt or 0) + (self.tokens_completion or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAnswer:
    """An answer in the ledger."""

    line: LedgerLine
    response: str
    """Text of the endpoint's answer, as it was received."""


class Ledger:
    """The ledger in a folder, of which one process at a time may be the writer.

    Args:
        folder: Folder of the generation; it is made.

    Raises:
        UsageError: Another process writes to it.
        StoreError: It cannot be read or written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._answers = folder / ANSWER_FOLDER
        self._path = folder / LEDGER_FILE
        self._lock = threading.Lock()
        self._lines: dict[str, LedgerLine] = {}
        self.tokens = 0
        """Tokens of all answers that say how many."""
        self.usd = 0.0
        """Price of all answers whose price is known."""
        try:
            self._answers.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise StoreError(f"{folder} cannot be used: {error.strerror}", next_step="choose another --out") from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read()
            self._add_missing_lines()
        except BlockingIOError:
            self.close()
            what = f"another process generates into {folder}"
            raise UsageError(what, next_step="wait for its end, or choose another --out") from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the folder to other processes."""
        os.close(self._descriptor)

    @property
    def lines(self) -> tuple[LedgerLine, ...]:
        """All lines in the order in which the answers came."""
        with self._lock:
            return tuple(self._lines.values())

    def find(self, digest: str) -> StoredAnswer | None:
        """Return the answer to a request; None if there is none.

        Raises:
            StoreError: Its file cannot be read.
        """
        path = self._answers / f"{digest}.json"
        try:
            document = read_object(path)
            return StoredAnswer(line=LedgerLine.from_json(document["line"]), response=str(document["response"]))
        except NoSuchFileError:
            return None
        except (UntrustedJsonError, KeyError, TypeError) as error:
            what = f"{path} is no stored answer: {error}"
            raise StoreError(what, next_step="move it away; its request is then sent again") from None

    def keep(self, line: LedgerLine, request: Mapping[str, Any], response: str) -> None:
        """Store an answer, then its line; both are on disk when this returns.

        Raises:
            StoreError: It cannot be written.
        """
        document = {"line": line, "request": request, "response": response}
        try:
            replace_file(self._answers / f"{line.digest}.json", dumps(document))
            sync_folder(self._answers)
            with self._lock:
                self._append(line)
        except OSError as error:
            what = f"the answer cannot be kept in {self._folder}: {error.strerror}"
            raise StoreError(what, next_step="make room, and start the same command again") from None

    def _append(self, line: LedgerLine) -> None:
        content, size = dumps(line).encode() + b"\n", os.fstat(self._descriptor).st_size
        if os.write(self._descriptor, content) != len(content):
            os.ftruncate(self._descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(self._descriptor)
        self._add(line)

    def _add(self, line: LedgerLine) -> None:
        self._lines[line.digest] = line
        self.tokens += line.tokens
        self.usd += line.usd or 0.0

    def _read(self) -> None:
        """Read the lines; a last one that was cut short by a kill is removed."""
        content = self._path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.ftruncate(self._descriptor, len(whole))
        for number, text in enumerate(whole.splitlines(), start=1):
            try:
                line = LedgerLine.from_json(parse_object(text))
            except (UntrustedJsonError, TypeError) as error:
                what = f"{self._path}:{number} is no line of a ledger: {error}"
                raise StoreError(what, next_step="remove the line; it is written again from its answer") from None
            self._add(line)

    def _add_missing_lines(self) -> None:
        for path in sorted(self._answers.glob("*.json")):
            stored = None if path.stem in self._lines else self.find(path.stem)
            if stored is not None:
                self._append(stored.line)
