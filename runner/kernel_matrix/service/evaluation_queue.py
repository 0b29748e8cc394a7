"""The queue of a service, in one SQLite file: what clients asked for, and the work that answers it.

An evaluation is one client's request. Its work is named by a digest of all that the answer depends on, so that two
requests for the same work are answered by one judgement. The file survives the end of the process at any moment: what
was accepted is kept, and work that was being done is done again.

Clients have equal shares. Each claim takes the work of the client that was served least, and counts as served for it. A
client that comes, or comes back, begins where the last served one is, so that it neither waits for the others nor they
for it (start-time fair queueing: Goyal, Vin and Cheng, SIGCOMM 1996). Priorities order the evaluations of one client.
"""

from __future__ import annotations

import fcntl
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from json import dumps
from pathlib import Path
from typing import IO, Any, Final

from kernel_matrix.errors import KernelMatrixError, StoreError, UsageError
from kernel_matrix.model.instants import utc_now

MOST_LOSSES: Final = 3
"""How often the machine may fail at one work before that is its answer."""
_BUSY_S: Final = 30.0
"""How long another process, such as a backup, may lock the file."""

_MIGRATIONS: Final = (
    """
    CREATE TABLE works (
        name TEXT PRIMARY KEY,
        request TEXT NOT NULL,
        state TEXT NOT NULL,
        losses INTEGER NOT NULL DEFAULT 0,
        answer TEXT
    );
    CREATE TABLE evaluations (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        client TEXT NOT NULL,
        key TEXT,
        priority INTEGER NOT NULL,
        digest TEXT NOT NULL,
        work TEXT NOT NULL,
        place TEXT NOT NULL,
        kind TEXT NOT NULL,
        state TEXT NOT NULL,
        created_at TEXT NOT NULL,
        ended_at TEXT,
        UNIQUE (client, key)
    );
    CREATE TABLE clients (name TEXT PRIMARY KEY, served INTEGER NOT NULL);
    CREATE TABLE clock (served INTEGER NOT NULL);
    INSERT INTO clock VALUES (0);
    CREATE INDEX queued ON evaluations (client, place, priority DESC, number) WHERE state = 'queued';
    CREATE INDEX by_client ON evaluations (client, number);
    CREATE INDEX by_work ON evaluations (work);
    CREATE INDEX unfinished ON evaluations (state) WHERE state IN ('queued', 'running');
    """,
    """
    ALTER TABLE evaluations ADD COLUMN begin_by_s REAL;
    CREATE INDEX expiring ON evaluations (begin_by_s) WHERE state = 'queued' AND begin_by_s IS NOT NULL;
    """,
    "CREATE INDEX by_end ON evaluations (ended_at) WHERE ended_at IS NOT NULL;",
)
"""What brings a file from each version to the next; the number of them is the version."""


_Execute = Callable[..., sqlite3.Cursor]


class EvaluationState(str, Enum):
    """State of an evaluation."""

    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    """It did not begin in time."""


UNFINISHED: Final = (EvaluationState.QUEUED, EvaluationState.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEvaluation:
    """An evaluation as a client submits it."""

    digest: str
    """Names the work: equal for requests that have one answer."""
    place: str
    """Where the work can be done, such as a GPU model; claims are for one place."""
    kind: str
    """Equal for works that are done well together, such as candidates of one problem in one dtype."""
    request: str
    """JSON text from which the work can be done."""
    priority: int = 0
    """Higher first, among those of the client."""
    timeout_s: float | None = None
    """It expires if it has not begun after this; None: it waits for ever."""
    key: str | None = None
    """The client's name for it: a request with a key that was used is the same evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedEvaluation:
    """An evaluation and what has become of it."""

    number: int
    """Grows with each evaluation of the file."""
    id: str
    client: str
    key: str | None
    digest: str
    state: EvaluationState
    created_at: str
    ended_at: str | None
    answer: str | None
    """JSON text; None before the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedWork:
    """Work to do now."""

    digest: str
    request: str
    losses: int
    """How often the machine has failed at it."""


class QueueFullError(KernelMatrixError):
    """A client, or all together, have as many unfinished evaluations as are allowed."""


class KeyReusedError(UsageError):
    """A client's key names an evaluation of something else."""


class EvaluationQueue:
    """The queue of one service; threads may share it.

    Args:
        path: The file, which is made if it is absent.
        most: Unfinished evaluations of all clients together.
        most_each: Those of one client.

    Raises:
        StoreError: The file is another service's now, was written by a later version, or cannot be used.
    """

    def __init__(self, path: Path, *, most: int = 100_000, most_each: int = 20_000) -> None:
        self._most, self._most_each = most, most_each
        self._turn = threading.Lock()
        self._lock = _lock_file(path)
        try:
            self._database = sqlite3.connect(
                path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False, cached_statements=64
            )
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")  # what was accepted survives a power cut
            self._migrate(path)
            with self._transaction() as write:
                write("UPDATE works SET state = 'queued' WHERE state = 'running'")
                write("UPDATE evaluations SET state = 'queued' WHERE state = 'running'")
        except (sqlite3.Error, StoreError) as error:
            self._lock.close()
            if isinstance(error, StoreError):
                raise
            raise StoreError(f"{path} is no queue of a service: {error}", next_step="name another folder") from None

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            self._database.close()
            self._lock.close()

    def submit(self, client: str, wanted: Sequence[NewEvaluation]) -> list[QueuedEvaluation]:
        """Accept all of ``wanted`` or, if an error is raised, none.

        Returns:
            The evaluations, in order; one whose work was done before has ended already.

        Raises:
            QueueFullError: There are too many unfinished evaluations.
            KeyReusedError: A key was used for something else.
        """
        with self._transaction() as write:
            self._check_room(client, wanted)
            self._enter(client)
            return [self._submit_one(write, client, one) for one in wanted]

    def find(self, client: str, ids: Sequence[str]) -> list[QueuedEvaluation]:
        """Return those of the client's evaluations that have these ids, oldest first."""
        return self._select("client = ? AND id IN (SELECT value FROM json_each(?)) ORDER BY number", client, dumps(ids))

    def page(self, client: str, *, after: int = 0, limit: int = 100) -> list[QueuedEvaluation]:
        """Return the client's next evaluations whose numbers are greater than ``after``, oldest first."""
        return self._select("client = ? AND number > ? ORDER BY number LIMIT ?", client, after, limit)

    def cancel(self, client: str, ids: Sequence[str]) -> int:
        """Cancel those of the client's evaluations that have not begun; return how many.

        Work that other evaluations wait for as well is done all the same.
        """
        with self._transaction() as write:
            cancelled = 0
            for id_ in ids:
                cancelled += write(
                    "UPDATE evaluations SET state = 'cancelled', ended_at = ?"
                    " WHERE client = ? AND id = ? AND state = 'queued'",
                    (utc_now(), client, id_),
                ).rowcount
            return cancelled

    def expire(self) -> int:
        """End the evaluations that have not begun in time; return how many."""
        with self._transaction() as write:
            return write(
                "UPDATE evaluations SET state = 'expired', ended_at = ? WHERE state = 'queued' AND begin_by_s < ?",
                (utc_now(), time.time()),
            ).rowcount

    def forget(self, before: str, most: int) -> int:
        """Remove at most ``most`` evaluations that ended before an instant; return how many.

        Their keys go with them, and answers that no evaluation is left for.
        """
        with self._transaction() as write:
            rows = write(
                "SELECT number, work FROM evaluations JOIN works ON name = work"
                " WHERE ended_at < ? AND works.state != 'running' LIMIT ?",
                (before, most),
            ).fetchall()
            numbers, works = (dumps([row[column] for row in rows]) for column in (0, 1))
            write("DELETE FROM evaluations WHERE number IN (SELECT value FROM json_each(?))", (numbers,))
            write(
                "DELETE FROM works WHERE name IN (SELECT value FROM json_each(?))"
                " AND NOT EXISTS (SELECT 1 FROM evaluations WHERE work = name)",
                (works,),
            )
            return len(rows)

    def claim(self, place: str, most: int) -> list[ClaimedWork]:
        """Take work that is to be done at a place now, all of one kind; none if nothing waits for it."""
        claimed: list[ClaimedWork] = []
        with self._transaction() as write:
            kind: str | None = None
            while len(claimed) < most and (found := self._next(write, place, kind)) is not None:
                client, digest, kind = found
                write("UPDATE clock SET served = (SELECT served FROM clients WHERE name = ?)", (client,))
                write("UPDATE clients SET served = served + 1 WHERE name = ?", (client,))
                write("UPDATE works SET state = 'running' WHERE name = ?", (digest,))
                write("UPDATE evaluations SET state = 'running' WHERE work = ? AND state = 'queued'", (digest,))
                row = write("SELECT request, losses FROM works WHERE name = ?", (digest,)).fetchone()
                claimed.append(ClaimedWork(digest=digest, request=row[0], losses=row[1]))
        return claimed

    def finish(self, digest: str, answer: str, *, is_final: bool = True) -> bool:
        """Keep the answer of a work that was claimed, unless it has one.

        Args:
            digest: The work's.
            answer: JSON text.
            is_final: False: the machine failed. The work is queued again, unless that has happened too often; then this
                is the answer for now, and the next request for the work has it done again.

        Returns:
            Whether its evaluations have ended.
        """
        with self._transaction() as write:
            row = write("SELECT losses FROM works WHERE name = ? AND state = 'running'", (digest,)).fetchone()
            if row is None:
                return False
            losses = row[0] + (not is_final)
            if not is_final and losses < MOST_LOSSES:
                write("UPDATE works SET state = 'queued', losses = ? WHERE name = ?", (losses, digest))
                write("UPDATE evaluations SET state = 'queued' WHERE work = ? AND state = 'running'", (digest,))
                return False
            # One at which the machine failed gets another name, so that the next request for it is new work.
            kept_as = digest if is_final else f"{digest}-{secrets.token_hex(4)}"
            write("UPDATE works SET name = ?, state = 'ended', answer = ? WHERE name = ?", (kept_as, answer, digest))
            write(
                "UPDATE evaluations SET state = 'ended', ended_at = ? WHERE work = ? AND state = 'running'",
                (utc_now(), digest),
            )
            write("UPDATE evaluations SET work = ? WHERE work = ?", (kept_as, digest))
            return True

    def unfinished(self) -> Mapping[EvaluationState, int]:
        """Return how many evaluations wait, and how many run."""
        with self._turn:
            rows = self._database.execute(
                "SELECT state, count(*) FROM evaluations WHERE state IN ('queued', 'running') GROUP BY state"
            ).fetchall()
        found = {EvaluationState(state): count for state, count in rows}
        return {state: found.get(state, 0) for state in UNFINISHED}

    # ---- within a transaction

    def _check_room(self, client: str, wanted: Sequence[NewEvaluation]) -> None:
        execute = self._database.execute
        unfinished = "SELECT count(*) FROM evaluations WHERE state IN ('queued', 'running')"
        of_all = execute(unfinished).fetchone()[0]
        own = execute(f"{unfinished} AND client = ?", (client,)).fetchone()[0]
        for count, limit, whose in ((own, self._most_each, "of this client"), (of_all, self._most, "of all clients")):
            if count + len(wanted) > limit:
                what = f"{count} evaluations {whose} have not ended, and {limit} are allowed"
                raise QueueFullError(what, next_step="wait until some have ended")

    def _enter(self, client: str) -> None:
        """Let a client of whom nothing waits begin where the last served one is."""
        self._database.execute(
            "INSERT INTO clients SELECT ?, served FROM clock WHERE true"
            " ON CONFLICT (name) DO UPDATE SET served = max(served, excluded.served) WHERE NOT EXISTS"
            " (SELECT 1 FROM evaluations WHERE client = excluded.name AND state = 'queued')",
            (client,),
        )

    def _submit_one(self, write: _Execute, client: str, one: NewEvaluation) -> QueuedEvaluation:
        if one.key is not None:
            earlier = self._select_now("client = ? AND key = ?", client, one.key)
            if earlier and earlier[0].digest != one.digest:
                what = f"the key {one.key!r} names evaluation {earlier[0].id}, which is of something else"
                raise KeyReusedError(what, next_step="give each evaluation a key of its own")
            if earlier:
                return earlier[0]
        write("INSERT OR IGNORE INTO works VALUES (?, ?, 'queued', 0, NULL)", (one.digest, one.request))
        (state,) = write("SELECT state FROM works WHERE name = ?", (one.digest,)).fetchone()
        id_, now = f"ev-{secrets.token_hex(10)}", utc_now()
        write(
            "INSERT INTO evaluations (id, client, key, priority, digest, work, place, kind, state, created_at,"
            " ended_at, begin_by_s) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(id_, client, one.key, one.priority, one.digest, one.digest, one.place, one.kind, state, now),
                now if state == "ended" else None,
                None if one.timeout_s is None else time.time() + one.timeout_s,
            ),
        )
        return self._select_now("id = ?", id_)[0]

    def _next(self, write: _Execute, place: str, kind: str | None) -> tuple[str, str, str] | None:
        """Return client, work and kind of what comes next, of this kind if one is given."""
        client = write(
            "SELECT name FROM clients WHERE EXISTS (SELECT 1 FROM evaluations"
            " WHERE client = clients.name AND place = ?1 AND state = 'queued' AND (?2 IS NULL OR kind = ?2))"
            " ORDER BY served, name LIMIT 1",
            (place, kind),
        ).fetchone()
        if client is None:
            return None
        found: tuple[str, str, str] = write(
            "SELECT client, work, kind FROM evaluations"
            " WHERE client = ?1 AND place = ?2 AND state = 'queued' AND (?3 IS NULL OR kind = ?3)"
            " ORDER BY priority DESC, number LIMIT 1",
            (*client, place, kind),
        ).fetchone()
        return found

    def _select(self, which: str, *values: Any) -> list[QueuedEvaluation]:
        with self._turn:
            return self._select_now(which, *values)

    def _select_now(self, which: str, *values: Any) -> list[QueuedEvaluation]:
        rows = self._database.execute(
            "SELECT number, id, client, key, digest, evaluations.state, created_at, ended_at,"  # noqa: S608
            " CASE evaluations.state WHEN 'ended' THEN answer END"
            f" FROM evaluations JOIN works ON name = work WHERE {which}",
            values,
        )
        return [
            QueuedEvaluation(
                number=row[0],
                id=row[1],
                client=row[2],
                key=row[3],
                digest=row[4],
                state=EvaluationState(row[5]),
                created_at=row[6],
                ended_at=row[7],
                answer=row[8],
            )
            for row in rows
        ]

    def _migrate(self, path: Path) -> None:
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version > len(_MIGRATIONS):
            raise StoreError(f"{path} was written by a later version", next_step="upgrade kernel-matrix")
        for number, script in enumerate(_MIGRATIONS[version:], start=version + 1):
            self._database.executescript(f"BEGIN; {script} PRAGMA user_version = {number}; COMMIT;")

    @contextmanager
    def _transaction(self) -> Iterator[_Execute]:
        with self._turn:
            try:
                self._database.execute("BEGIN IMMEDIATE")
                yield self._database.execute
                self._database.execute("COMMIT")
            except BaseException as error:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise StoreError(f"the queue cannot be used: {error}") from None
                raise


def _lock_file(path: Path) -> IO[bytes]:
    """Lock the queue for this process.

    Raises:
        StoreError: Another process has it, or its folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.with_name(f"{path.name}.lock").open("wb")
    except OSError as error:
        what = f"{path.parent} cannot be written: {error.strerror}"
        raise StoreError(what, next_step="name a folder that can be written") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise StoreError(f"{path} is in use by another service", next_step="end it, or name another folder") from None
    return file
