"""The HTTP interface of a service.

Every answer is JSON, errors included: ``{"error": {"what": …, "next_step": …}}``. A client sees its own evaluations
alone, and no path of this machine.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal, Protocol, cast

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kernel_matrix.errors import KernelMatrixError, UsageError
from kernel_matrix.model.enums import Language
from kernel_matrix.model.fields import INT64
from kernel_matrix.service.clients import RequestLimit, Tokens, TooManyRequestsError, UnknownClientError
from kernel_matrix.service.evaluation_queue import (
    UNFINISHED,
    EvaluationQueue,
    EvaluationState,
    KeyReusedError,
    NewEvaluation,
    QueuedEvaluation,
    QueueFullError,
)
from kernel_matrix.version import __version__

MOST_IN_BATCH: Final = 1000
MOST_SOURCE: Final = 1 << 20
"""Characters of a source."""
_LOOK_EVERY_S: Final = 0.1
MOST_BODY: Final = 64 << 20
"""Bytes of a request's body."""
_RETRY_FULL_S: Final = 10.0
_MOST_FAULTS: Final = 10


_LANGUAGES = f"^(|{'|'.join(one.value for one in Language)})$"
_Name = Annotated[str | None, Field(max_length=300)]
_Count = Annotated[int | None, Field(ge=0, le=INT64)]
_Amount = Annotated[float | None, Field(ge=0, allow_inf_nan=False)]


class CandidateOrigin(BaseModel):
    """Origin of a candidate, as far as it is known. It is kept with the source, and changes no answer."""

    model_config = ConfigDict(extra="forbid", strict=True)

    method: _Name = None
    model: _Name = None
    sample: _Count = None
    round: _Count = None
    parent: Annotated[
        str | None,
        Field(
            max_length=300, description="16 hex digits: SHA-256 of sent language, suffix and source of the one before."
        ),
    ] = None
    prompt: _Name = None
    prompt_sha256: Annotated[str | None, Field(pattern="^[0-9a-f]{64}$")] = None
    no_code: Annotated[
        str | None, Field(max_length=3000, description="Reason why an answer has no code; its source is a comment.")
    ] = None
    tokens_in: _Count = None
    tokens_cached: _Count = None
    tokens_out: _Count = None
    cost_usd: _Amount = None
    wall_s: _Amount = None


class EvaluationRequest(BaseModel):
    """A candidate to judge. Names that are left out are the matrix's first."""

    model_config = ConfigDict(extra="forbid", strict=True)

    problem: Annotated[str, Field(max_length=300, description="Id of a problem, of GET /problems.")] = ""
    reference: Annotated[
        str, Field(max_length=MOST_SOURCE, description="In place of a problem: a module with Model and get_inputs.")
    ] = ""
    source: Annotated[str, Field(min_length=1, max_length=MOST_SOURCE, description="The candidate's source.")]
    suffix: Annotated[Literal[".py", ".cu", ".cpp", ".hip"], Field(description=".py for a module with ModelNew.")] = (
        ".py"
    )
    language: Annotated[
        str, Field(pattern=_LANGUAGES, description="What it must have a kernel in; empty: whatever its source shows.")
    ] = ""
    dtype: Annotated[str, Field(max_length=30, description="One of the matrix's dtypes.")] = ""
    gpu: Annotated[str, Field(max_length=100, description="Name of a GPU of the matrix.")] = ""
    toolchain: Annotated[str, Field(max_length=100, description="Name of a toolchain of the matrix.")] = ""
    tier: Annotated[
        Literal["", "compile", "values", "quick", "screen", "publish"],
        Field(description="Effort; empty: what the matrix asks for."),
    ] = ""
    timeout_s: Annotated[
        float | None, Field(gt=0, le=30 * 86400, description="It expires if it has not begun after so many seconds.")
    ] = None
    priority: Annotated[int, Field(ge=-100, le=100, description="Higher first, among the client's own.")] = 0
    key: Annotated[
        str | None, Field(min_length=1, max_length=200, description="Idempotency key: sent again, it is the same one.")
    ] = None
    origin: Annotated[
        CandidateOrigin | None, Field(description="Of a candidate that came before, the first counts.")
    ] = None

    @model_validator(mode="after")
    def _check_no_code(self) -> EvaluationRequest:
        """Refuse code that is said to be none: the next client that sends the same source would have it judged so."""
        lines = (line.strip() for line in self.source.splitlines())
        has_code = self.suffix != ".py" or any(line and not line.startswith("#") for line in lines)
        if self.origin and self.origin.no_code and has_code:
            raise ValueError("no_code is said of a source that is more than comments of Python")
        return self


class BatchRequest(BaseModel):
    """Candidates to judge; all are accepted, or none."""

    model_config = ConfigDict(extra="forbid", strict=True)

    evaluations: Annotated[list[EvaluationRequest], Field(min_length=1, max_length=MOST_IN_BATCH)]


class EvaluationAnswer(BaseModel):
    """An evaluation and what has become of it."""

    id: str
    number: Annotated[int, Field(description="Grows with each evaluation: the cursor of GET /evaluations.")]
    key: str | None
    state: EvaluationState
    created_at: str
    ended_at: str | None
    result: Annotated[dict[str, Any] | None, Field(description="None before the end.")]


class EvaluationList(BaseModel):
    """Evaluations, oldest first."""

    evaluations: list[EvaluationAnswer]


class ErrorText(BaseModel):
    """Text of an error, and the next step."""

    what: str
    next_step: str


class ErrorAnswer(BaseModel):
    """Answer to a request that is not accepted."""

    error: ErrorText


class Evaluator(Protocol):
    """Interface between the HTTP service and the code that judges candidates."""

    def prepare(self, request: EvaluationRequest) -> NewEvaluation:
        """Check a request, and say what work answers it.

        Raises:
            UsageError: It cannot be judged here.
        """
        ...

    def problems(self) -> Sequence[Mapping[str, Any]]:
        """Describe the problems."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Return how many evaluations have ended with each status since the service started."""
        ...

    def workers(self) -> Sequence[Mapping[str, Any]]:
        """Describe the devices and what they do."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Parts of a running service that requests use."""

    queue: EvaluationQueue
    evaluator: Evaluator
    tokens: Tokens
    limit: RequestLimit
    wake: Callable[[], None] = lambda: None
    """Called when there is something new in the queue."""


_STATUS: Final[Mapping[type[KernelMatrixError], HTTPStatus]] = {
    UnknownClientError: HTTPStatus.UNAUTHORIZED,
    TooManyRequestsError: HTTPStatus.TOO_MANY_REQUESTS,
    QueueFullError: HTTPStatus.TOO_MANY_REQUESTS,
    KeyReusedError: HTTPStatus.CONFLICT,
    UsageError: HTTPStatus.UNPROCESSABLE_ENTITY,
}


@dataclass(frozen=True, slots=True)
class _Caller:
    """The client that sent a request, and the service that it was sent to."""

    client: str
    service: Service


def _service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


def _caller(request: Request, authorization: Annotated[str | None, Header()] = None) -> _Caller:
    service = _service(request)
    client = service.tokens.client_of(authorization)
    service.limit.take(client)
    return _Caller(client, service)


Caller = Annotated[_Caller, Depends(_caller)]
_REFUSALS: Final = (
    *(HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    *(*_STATUS.values(), HTTPStatus.SERVICE_UNAVAILABLE),
)
_router = APIRouter(responses={status.value: {"model": ErrorAnswer} for status in _REFUSALS})


def make_app(service: Service) -> FastAPI:
    """Return the interface of a service."""
    app = FastAPI(title="kernel-matrix", version=__version__, description="Judges GPU kernels.", redoc_url=None)
    app.state.service = service
    app.include_router(_router)
    app.add_middleware(_BodyLimit)
    app.add_exception_handler(KernelMatrixError, _answer_own)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(RequestValidationError, _answer_form)
    return app


@_router.post("/evaluations", status_code=HTTPStatus.ACCEPTED)
def submit(wanted: EvaluationRequest, caller: Caller) -> EvaluationAnswer:
    """Accept a candidate; its evaluation has ended already if the same was judged before."""
    return _submitted(caller, [wanted])[0]


@_router.post("/evaluations/batch", status_code=HTTPStatus.ACCEPTED)
def submit_batch(wanted: BatchRequest, caller: Caller) -> EvaluationList:
    """Accept candidates, all or none."""
    return EvaluationList(evaluations=_submitted(caller, wanted.evaluations))


@_router.get("/evaluations")
def list_evaluations(
    caller: Caller,
    after: Annotated[int, Query(ge=0, le=2**62)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_IN_BATCH)] = 100,
    id: Annotated[list[str] | None, Query(max_length=MOST_IN_BATCH)] = None,  # noqa: A002  # its name in the URL
) -> EvaluationList:
    """Return the client's evaluations with these ids, or the next ones after a number."""
    queue = caller.service.queue
    found = queue.page(caller.client, after=after, limit=limit) if id is None else queue.find(caller.client, id)
    return EvaluationList(evaluations=[_answer(one) for one in found])


@_router.get("/evaluations/{id}")
def get_evaluation(id: str, caller: Caller) -> EvaluationAnswer:  # noqa: A002  # its name in the URL
    """Return an evaluation."""
    return _answer(_one(caller, id))


@_router.post("/evaluations/{id}/cancel")
def cancel(id: str, caller: Caller) -> EvaluationAnswer:  # noqa: A002  # its name in the URL
    """Cancel an evaluation that has not begun; one that has is judged to its end."""
    caller.service.queue.cancel(caller.client, [id])
    return _answer(_one(caller, id))


@_router.get(
    "/evaluations/{id}/events",
    response_class=StreamingResponse,
    responses={HTTPStatus.OK.value: {"content": {"text/event-stream": {}}}},
)
def events(id: str, caller: Caller) -> StreamingResponse:  # noqa: A002  # its name in the URL
    """Stream the states of an evaluation as server-sent events, until it has ended."""
    _one(caller, id)
    return StreamingResponse(_states(caller, id), media_type="text/event-stream")


@_router.get("/problems")
def problems(caller: Caller) -> list[dict[str, Any]]:
    """Describe the problems that candidates may be for."""
    return [dict(one) for one in caller.service.evaluator.problems()]


@_router.get("/workers")
def workers(caller: Caller) -> list[dict[str, Any]]:
    """Describe the devices."""
    return [dict(one) for one in caller.service.evaluator.workers()]


@_router.get("/health")
def health() -> dict[str, str]:
    """Say that the service answers."""
    return {"status": "ok", "version": __version__}


@_router.get("/metrics", response_class=PlainTextResponse)
def metrics(service: Annotated[Service, Depends(_service)]) -> str:
    """Return what Prometheus reads."""
    lines = ["# TYPE kernel_matrix_evaluations gauge"]
    for state, count in service.queue.unfinished().items():
        lines.append(f'kernel_matrix_evaluations{{state="{state.value}"}} {count}')
    lines.append("# TYPE kernel_matrix_results_total counter")
    lines += [
        f'kernel_matrix_results_total{{status="{status}"}} {count}'
        for status, count in service.evaluator.counts().items()
    ]
    return "\n".join((*lines, ""))


class _BodyLimit:
    """Refuses requests whose body is too large, before it is in memory."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        left = MOST_BODY

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TOO_LARGE)
            return message

        length = dict(scope.get("headers", ())).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > MOST_BODY:
            await _error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _TOO_LARGE)(scope, receive, send)
            return
        await self._app(scope, counted, send)


_TOO_LARGE: Final = f"the body of a request may have {MOST_BODY >> 20} MiB"


def _submitted(caller: _Caller, wanted: Sequence[EvaluationRequest]) -> list[EvaluationAnswer]:
    service = caller.service
    accepted = service.queue.submit(caller.client, [service.evaluator.prepare(one) for one in wanted])
    service.wake()
    return [_answer(one) for one in accepted]


def _one(caller: _Caller, id_: str) -> QueuedEvaluation:
    found = caller.service.queue.find(caller.client, [id_])
    if not found:
        raise HTTPException(HTTPStatus.NOT_FOUND, "there is no such evaluation")
    return found[0]


def _answer(one: QueuedEvaluation) -> EvaluationAnswer:
    return EvaluationAnswer(
        id=one.id,
        number=one.number,
        key=one.key,
        state=one.state,
        created_at=one.created_at,
        ended_at=one.ended_at,
        result=None if one.answer is None else json.loads(one.answer),
    )


async def _states(caller: _Caller, id_: str) -> AsyncIterator[str]:
    """Yield an event whenever the state of an evaluation has changed."""
    told: EvaluationState | None = None
    while told is None or told in UNFINISHED:
        found = await asyncio.to_thread(caller.service.queue.find, caller.client, [id_])
        if not found:  # forgotten since
            return
        if found[0].state is not told:
            told = found[0].state
            yield f"event: {told.value}\ndata: {_answer(found[0]).model_dump_json()}\n\n"
        await asyncio.sleep(_LOOK_EVERY_S)


async def _answer_own(_: Request, error: Exception) -> JSONResponse:
    status = next((its for kind, its in _STATUS.items() if isinstance(error, kind)), HTTPStatus.SERVICE_UNAVAILABLE)
    headers = {"WWW-Authenticate": "Bearer"} if status is HTTPStatus.UNAUTHORIZED else {}
    if status is HTTPStatus.TOO_MANY_REQUESTS:
        wait_s = error.retry_after_s if isinstance(error, TooManyRequestsError) else _RETRY_FULL_S
        headers["Retry-After"] = str(math.ceil(wait_s))
    known = cast("KernelMatrixError", error)
    return _error(status, known.what, known.next_step, headers)


async def _answer_http(_: Request, error: Exception) -> JSONResponse:
    known = cast("HTTPException", error)
    return _error(HTTPStatus(known.status_code), str(known.detail), headers=known.headers)


async def _answer_form(_: Request, error: Exception) -> JSONResponse:
    faults = cast("RequestValidationError", error).errors()[:_MOST_FAULTS]
    told = (f"{'.'.join(map(str, fault['loc']))}: {fault['msg'].removeprefix('Value error, ')}" for fault in faults)
    return _error(HTTPStatus.UNPROCESSABLE_ENTITY, "; ".join(told), "GET /openapi.json has the form")


def _error(
    status: HTTPStatus, what: str, next_step: str = "", headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse({"error": {"what": what, "next_step": next_step}}, status, dict(headers or {}))
