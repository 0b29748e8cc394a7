"""What a client sends to a service, when it sends it again, and how it reads the answers; no input or output.

Each exchange is a generator. It yields an :class:`HttpCall` and is sent the reply, or yields a :class:`Pause`; its
return value is what the caller asked for. So the clients with and without ``async`` share all of it.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from math import inf
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

from kernel_matrix.errors import KernelMatrixError, ServiceError, ServiceRefusedError
from kernel_matrix.model.evaluation import EvaluationResult

_T = TypeVar("_T")

MOST_IN_BATCH: Final = 1000
MOST_BATCH_BYTES: Final = 32 << 20
"""Half of what a service accepts as a body; a larger request is sent alone, and the service decides."""
_IDS_PER_CALL: Final = 100
"""Longer addresses than this many ids make are refused by common proxies."""
_AGAIN: Final = (
    *(HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.BAD_GATEWAY),
    *(HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT),
)
_FIRST_RETRY_S: Final = 0.25
_LONGEST_RETRY_S: Final = 10.0
_FIRST_LOOK_S: Final = 0.05
_LONGEST_LOOK_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A candidate that was sent to a service, and what has become of it."""

    id: str
    number: int
    """Grows with each evaluation: the cursor of a list."""
    key: str | None
    """Names the request: sent again, it is the same evaluation."""
    state: str
    """``queued``, ``running``, ``ended``, ``cancelled`` or ``expired``."""
    created_at: str
    ended_at: str | None
    result: EvaluationResult | None
    """None before the end, and if it was cancelled or has expired."""

    @property
    def has_ended(self) -> bool:
        """True if its state does not change any more."""
        return self.state in ("ended", "cancelled", "expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpCall:
    """A request to send."""

    method: str
    path: str
    params: Sequence[tuple[str, str | int]] = ()
    body: bytes | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Pause:
    """A time to wait before the next call."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """The answer to a call."""

    status: int
    body: bytes
    retry_after: str | None = None
    """The header of that name."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A call that was not answered, in place of its answer."""

    why: str


Evaluations: TypeAlias = list[Evaluation]
Steps: TypeAlias = Generator[HttpCall | Pause, Any, _T]
"""An exchange. A call is sent an :class:`HttpAnswer` or :class:`Unreachable`, a pause anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanges:
    """Exchanges with one service.

    Args:
        address: The service's, as errors name it.
        retry_for_s: How long a call is repeated while the service cannot be reached or refuses it for now.
    """

    address: str
    retry_for_s: float

    def submit(self, requests: Iterable[Mapping[str, Any]]) -> Steps[Evaluations]:
        """Submit candidates in batches; each batch is accepted whole or not at all."""
        accepted: Evaluations = []
        for count, body in _batches(requests):
            call = HttpCall(method="POST", path="/evaluations/batch", body=body)
            batch = yield from self.ask(call, _evaluations)
            if len(batch) != count:
                raise self._odd_answer(call, f"{count} evaluations were sent, and {len(batch)} answered")
            accepted += batch
        return accepted

    def wait(self, ids: Iterable[str], timeout_s: float | None) -> Steps[Evaluations]:
        """Wait until evaluations have ended, or the time is over."""
        deadline_s = inf if timeout_s is None else time.monotonic() + timeout_s
        wanted = list(ids)
        found: dict[str, Evaluation] = {}
        # One group after the other: the later ones end meanwhile, and need not be asked for before.
        for group in _groups(dict.fromkeys(wanted), _IDS_PER_CALL):
            yield from self._wait_for(group, deadline_s, found)
        return [found[id_] for id_ in wanted]

    def get(self, id_: str) -> Steps[Evaluation]:
        """Return an evaluation."""
        return self.ask(HttpCall(method="GET", path=f"/evaluations/{quote(id_, safe='')}"), _evaluation)

    def cancel(self, id_: str) -> Steps[Evaluation]:
        """Cancel an evaluation if it has not begun."""
        return self.ask(HttpCall(method="POST", path=f"/evaluations/{quote(id_, safe='')}/cancel"), _evaluation)

    def page(self, after: int) -> Steps[Evaluations]:
        """Return the next evaluations whose numbers are greater than ``after``; none at the end."""
        params = (("after", after), ("limit", MOST_IN_BATCH))
        return self.ask(HttpCall(method="GET", path="/evaluations", params=params), _evaluations)

    def read(self, path: str) -> Steps[Any]:
        """Return the document at a path."""
        return self.ask(HttpCall(method="GET", path=path), lambda document: document)

    def ask(self, call: HttpCall, reader: Callable[[Any], _T]) -> Steps[_T]:
        """Send a call, again if it is refused for now, and read the answer.

        Raises:
            ServiceRefusedError: The service refuses the call.
            ServiceError: The service cannot be reached, fails, or answers in no form that ``reader`` knows.
        """
        end_s, pause_s = time.monotonic() + self.retry_for_s, _FIRST_RETRY_S
        while True:
            reply: HttpAnswer | Unreachable = yield call
            if isinstance(reply, HttpAnswer) and reply.status not in _AGAIN:
                return self._read(call, reply, reader)
            wait_s = _retry_after_s(reply)
            wait_s = pause_s if wait_s is None else wait_s
            if time.monotonic() + wait_s > end_s:
                raise self._error(call, reply)
            yield Pause(wait_s)
            pause_s = min(2 * pause_s, _LONGEST_RETRY_S)

    def _wait_for(self, ids: Sequence[str], deadline_s: float, found: dict[str, Evaluation]) -> Steps[None]:
        """Add evaluations to ``found`` as they are when all have ended, or at the deadline."""
        pause_s = _FIRST_LOOK_S
        while True:
            call = HttpCall(method="GET", path="/evaluations", params=[("id", id_) for id_ in ids])
            answered = yield from self.ask(call, _evaluations)
            found.update((one.id, one) for one in answered)
            for id_ in ids:
                if id_ not in found:
                    raise ServiceRefusedError(f"{self.address} has no evaluation {id_!r} of this client", status=404)
            ids = [id_ for id_ in ids if not found[id_].has_ended]
            left_s = deadline_s - time.monotonic()
            if not ids or left_s <= 0:
                return
            yield Pause(min(pause_s, left_s))
            pause_s = min(1.5 * pause_s, _LONGEST_LOOK_S)

    def _read(self, call: HttpCall, answer: HttpAnswer, reader: Callable[[Any], _T]) -> _T:
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            raise self._error(call, answer)
        try:
            return reader(json.loads(answer.body))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise self._odd_answer(call, f"{type(error).__name__}: {error}") from None

    def _error(self, call: HttpCall, reply: HttpAnswer | Unreachable) -> KernelMatrixError:
        if isinstance(reply, Unreachable):
            hint = "check that the service runs, and that this is its address"
            return ServiceError(f"{self.address} cannot be reached: {reply.why}", next_step=hint)
        what, next_step = _said(reply)
        what = what or f"{self.address} answered {call} with status {reply.status}"
        if reply.status in _AGAIN or not HTTPStatus.BAD_REQUEST <= reply.status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return ServiceError(what, next_step=next_step)
        return ServiceRefusedError(what, next_step=next_step, status=reply.status)

    def _odd_answer(self, call: HttpCall, why: str) -> ServiceError:
        what = f"the answer of {self.address} to {call} cannot be read: {why}"
        return ServiceError(what, next_step="check that this is the address of a kernel-matrix service")


def _batches(requests: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, bytes]]:
    """Yield the number of requests and the body of each batch."""
    batch: list[bytes] = []
    size = 0
    for request in requests:
        document = json.dumps(_with_key(request)).encode()
        if batch and (len(batch) == MOST_IN_BATCH or size + len(document) > MOST_BATCH_BYTES):
            yield len(batch), b'{"evaluations": [' + b",".join(batch) + b"]}"
            batch, size = [], 0
        batch.append(document)
        size += len(document)
    if batch:
        yield len(batch), b'{"evaluations": [' + b",".join(batch) + b"]}"


def _with_key(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value, and a key, with which the request can be sent again."""
    return {"key": secrets.token_hex(16)} | {name: value for name, value in request.items() if value is not None}


def _evaluation(document: Mapping[str, Any]) -> Evaluation:
    result = document["result"]
    return Evaluation(
        id=document["id"],
        number=document["number"],
        key=document["key"],
        state=document["state"],
        created_at=document["created_at"],
        ended_at=document["ended_at"],
        result=None if result is None else EvaluationResult.from_json(result),
    )


def _evaluations(document: Mapping[str, Any]) -> Evaluations:
    return [_evaluation(one) for one in document["evaluations"]]


def _said(answer: HttpAnswer) -> tuple[str, str]:
    """Return what a service says of an error, and its next step; empty if it is not a service's answer."""
    try:
        error = json.loads(answer.body)["error"]
        return str(error["what"]), str(error["next_step"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return "", ""


def _retry_after_s(reply: HttpAnswer | Unreachable) -> float | None:
    text = reply.retry_after if isinstance(reply, HttpAnswer) else None
    return float(text) if text is not None and text.isascii() and text.isdigit() else None


def _groups(items: Iterable[str], most: int) -> Iterator[list[str]]:
    left = iter(items)
    while group := list(islice(left, most)):
        yield group
