"""Judge candidates that are sent over HTTP, with the problems and devices of a matrix."""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvicorn

from kernel_matrix.api.fleet_plan import check_fleet_options, load_fleet
from kernel_matrix.api.judge_candidates import CandidateJudge, HostJudge, OpenRun, SentCandidate, result_of
from kernel_matrix.api.judge_on_fleet import FleetJudge
from kernel_matrix.api.plan import load_matrix
from kernel_matrix.errors import KernelMatrixError, UsageError
from kernel_matrix.executors.events import EventKind, RunEvent
from kernel_matrix.hosts.survey import AUTO, survey
from kernel_matrix.matrix import Matrix
from kernel_matrix.model.enums import Fault, Status
from kernel_matrix.model.evaluation import EvaluationResult
from kernel_matrix.model.messages import dumps
from kernel_matrix.plan import Cell
from kernel_matrix.results.record import Record
from kernel_matrix.service.clients import RequestLimit, Tokens
from kernel_matrix.service.evaluation_queue import ClaimedWork, EvaluationQueue, NewEvaluation
from kernel_matrix.service.forgetting import forgetting
from kernel_matrix.service.http_app import EvaluationRequest, Service, make_app

__all__ = ["ServedMatrix", "ServiceOptions", "open_service", "serving"]

_QUEUE_FILE: Final = "queue.sqlite"
_MOST_AT_ONCE: Final = 20
"""Evaluations that are claimed together: being of one kind, they share a judge and a baseline."""
_LEFT_EACH: Final = 20
"""Evaluations left for each device when more are claimed, so that those are built while these are judged."""
_PAUSE_S: Final = 1.0
"""Pause between runs, since what ended the last one may still fail."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Options of a service."""

    matrix: Path
    folder: Path
    """Where the queue, sources and records are kept."""
    sandbox: str = AUTO
    lock: Path | None = None
    fleet: Path | None = None
    """Fleet file: the sites judge, and not this host."""
    release_after_s: float = 300.0
    """How long a job of the fleet that has nothing to do keeps its GPU."""
    tokens: Path | None = None
    """File of the clients' tokens; None: everybody who reaches it is one client."""
    requests_per_s: float = 50.0
    takes_references: bool = False
    """Accept references in place of problems. The judge runs them, so who sends one decides what is right."""
    keep_days: int | None = None
    """Forget evaluations that ended before; None: keep all. Records and sources stay."""
    most_queued: int = 100_000
    most_queued_each: int = 20_000


class ServedMatrix:
    """The evaluator of a service: judges what is in its queue, on all devices of a matrix at the same time."""

    def __init__(self, judge: CandidateJudge, queue: EvaluationQueue, *, takes_references: bool = False) -> None:
        self._judge = judge
        self._queue = queue
        self._takes_references = takes_references
        self._is_new = threading.Event()
        self._stop = threading.Event()
        self._policy = judge.open_policy()
        self._running: dict[str, tuple[str, str]] = {}
        """Cell id → digest of its work when it was accepted, and its GPU."""
        self._counts: Counter[Status] = Counter()

    # ---- what the interface asks

    def prepare(self, request: EvaluationRequest) -> NewEvaluation:
        """Check a request, and say what work answers it.

        Raises:
            UsageError: It cannot be judged here.
        """
        if request.reference and not self._takes_references:
            raise UsageError("this service takes no references", next_step="name a problem of GET /problems")
        wanted = request.model_dump(exclude={"priority", "key", "timeout_s"}, exclude_none=True)
        cell = self._judge.cell_of(SentCandidate(**wanted))
        return NewEvaluation(
            digest=cell.id,
            place=cell.gpu.name,
            kind=f"{cell.problem.id} {cell.dtype.value} {cell.toolchain.name} {request.tier}",
            request=json.dumps(wanted),
            priority=request.priority,
            timeout_s=request.timeout_s,
            key=request.key,
        )

    def problems(self) -> Sequence[Mapping[str, Any]]:
        """Describe the problems."""
        offered = self._judge.matrix.dtypes
        return [
            {
                "id": chosen.problem.id,
                "category": chosen.problem.category,
                "dtypes": [dtype.value for dtype in offered if dtype in chosen.problem.dtypes],
                "workloads": [workload.name for workload in chosen.workloads],
            }
            for chosen in self._judge.problems.values()
        ]

    def workers(self) -> Sequence[Mapping[str, Any]]:
        """Describe the devices of each GPU of the matrix, and how many evaluations are judged there now."""
        running = Counter(place for _, place in tuple(self._running.values()))
        return [
            {
                "gpu": gpu.name,
                "toolchains": [toolchain.name for toolchain in self._judge.matrix.toolchains],
                "devices": self._judge.devices_of(gpu),
                "running": running[gpu.name],
            }
            for gpu in self._judge.matrix.gpus
        ]

    def counts(self) -> Mapping[str, int]:
        """Return how many evaluations have ended with each status since the service started."""
        return {status.value: count for status, count in self._counts.items()}

    def wake(self) -> None:
        """Look into the queue now."""
        self._is_new.set()

    # ---- judging

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Judge in the background; on leaving, what is being judged is ended and stays in the queue."""
        with self._judge.described(self._policy.run_id, self._counts) as removed:
            for line in removed:
                _log.warning("%s", line)
            thread = threading.Thread(target=self._serve, name="judging")
            thread.start()
            try:
                yield
            finally:
                self._stop.set()
                self._judge.stop()
                self.wake()
                thread.join()

    def _serve(self) -> None:
        """Run after run, judge what is in the queue. A run ends early if a device or the sandbox fails."""
        while not self._stop.is_set():
            why = "no device took it"
            try:
                with self._judge.opened(self._policy) as (run, events):
                    self._judge_in(run, events)
            except KernelMatrixError as error:
                _log.error("a run has failed: %s", error)
                why = error.what
            except Exception as error:  # noqa: BLE001  # the service goes on
                _log.exception("a run has failed")
                why = type(error).__name__
            lost, self._running = self._running, {}
            if not self._stop.is_set():  # else they stay what they are, and the next service judges them again
                for digest, _ in lost.values():
                    self._queue.finish(digest, _machine_failed(why), is_final=False)
            self._stop.wait(_PAUSE_S)

    def _judge_in(self, run: OpenRun, events: Iterator[RunEvent]) -> None:
        is_ending = threading.Event()
        feeder = threading.Thread(target=self._feed, args=(run, is_ending), name="feeding")
        feeder.start()
        try:
            for event in events:
                if event.happening is EventKind.CELL_ENDED and event.record is not None:
                    self._note(event.record)
                elif event.happening is EventKind.CELL_SKIPPED:
                    digest, _ = self._running.pop(event.cell.id)
                    self._queue.finish(digest, _machine_failed(event.text), is_final=False)
                elif event.happening is EventKind.GPU_QUARANTINED:
                    is_ending.set()  # a new run looks at the device again
                self.wake()
        finally:
            is_ending.set()
            run.stop()
            self.wake()
            feeder.join()

    def _note(self, record: Record) -> None:
        self._counts[record.outcome.status] += 1
        digest, _ = self._running.pop(record.cell_id)
        is_final = record.outcome.fault is not Fault.INFRA
        self._queue.finish(digest, dumps(result_of(record)), is_final=is_final)

    def _feed(self, run: OpenRun, is_ending: threading.Event) -> None:
        """Give the run what is in the queue, a little more than its devices judge at once."""
        try:
            while not (is_ending.is_set() or self._stop.is_set() or run.planned >= self._judge.most_in_run):
                self._is_new.clear()
                self._queue.expire()
                if cells := self._claim():
                    run.add(cells)
                else:
                    self._is_new.wait(1.0)
            run.end()
        except Exception:  # noqa: BLE001  # ends the run, and the service goes on with another
            _log.exception("the queue cannot be read")
            run.stop()

    def _claim(self) -> Sequence[tuple[Cell, SentCandidate]]:
        """Claim work for every GPU of the matrix whose devices may soon have none."""
        cells: list[tuple[Cell, SentCandidate]] = []
        for worker in self.workers():
            if worker["running"] <= _LEFT_EACH * max(1, len(worker["devices"])):
                cells += self._cells_of(worker["gpu"], self._queue.claim(worker["gpu"], _MOST_AT_ONCE))
        return cells

    def _cells_of(self, place: str, works: Sequence[ClaimedWork]) -> Iterator[tuple[Cell, SentCandidate]]:
        for work in works:
            sent = SentCandidate(**json.loads(work.request))
            try:
                cell = self._judge.cell_of(sent)
            except KernelMatrixError as error:  # the matrix was changed since, or the disk is full
                self._queue.finish(work.digest, _machine_failed(error.what), is_final=False)
            else:
                self._running[cell.id] = work.digest, place
                yield cell, sent


def _machine_failed(why: str) -> str:
    """Return the answer to an evaluation that left no record."""
    return dumps(EvaluationResult(Status.INFRA_ERROR.value, Fault.INFRA.value, evidence={"message": why}))


@contextmanager
def open_service(options: ServiceOptions) -> Iterator[Service]:
    """Open the service of a matrix, and judge in the background what is in its queue.

    Raises:
        UsageError: The matrix or the file of tokens cannot be used.
        StoreError: The folder cannot be used, or is another service's.
        InfrastructureError: The sandbox cannot be used here.
    """
    matrix = load_matrix(options.matrix)
    tokens = Tokens() if options.tokens is None else Tokens.read(options.tokens)
    with ExitStack() as undo:
        folder = options.folder / matrix.name
        queue = EvaluationQueue(folder / _QUEUE_FILE, most=options.most_queued, most_each=options.most_queued_each)
        undo.callback(queue.close)
        undo.enter_context(forgetting(queue, options.keep_days))
        judge = _judge_of(matrix, options)
        served = ServedMatrix(judge, queue, takes_references=options.takes_references)
        undo.enter_context(served.judging())
        limit = RequestLimit(options.requests_per_s, most=max(1, round(10 * options.requests_per_s)))
        yield Service(queue=queue, evaluator=served, tokens=tokens, limit=limit, wake=served.wake)


def _judge_of(matrix: Matrix, options: ServiceOptions) -> CandidateJudge:
    folder = options.folder / matrix.name
    if options.fleet is None:
        return HostJudge(matrix, folder, survey(matrix, sandbox=options.sandbox, lock_path=options.lock))
    check_fleet_options(sandbox=options.sandbox)
    return FleetJudge(
        matrix, load_fleet(options.fleet), options.folder, lock=options.lock, release_after_s=options.release_after_s
    )


@contextmanager
def serving(options: ServiceOptions, *, host: str = "127.0.0.1", port: int = 8000) -> Iterator[str]:
    """Serve a matrix over HTTP in the background, and provide the address.

    Args:
        options: Options of the service.
        host: Address to listen at. Other machines reach the service only by another one than loopback, for which
            clients must have tokens.
        port: Port to listen at; 0 for a free one.

    Raises:
        UsageError: The address cannot be listened at, or would be open to everybody.
        StoreError: As for :func:`open_service`.
        InfrastructureError: As for :func:`open_service`.
    """
    if options.tokens is None and not _is_loopback(host):
        what = f"{host} is reached by other machines, and no client has a token"
        raise UsageError(what, next_step="--tokens FILE names the clients, with a line CLIENT SHA256 for each")
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        what = f"{host}:{port} cannot be listened at: {error.strerror}"
        raise UsageError(what, next_step="choose another --host or --port") from None
    with listener, open_service(options) as service:
        config = uvicorn.Config(make_app(service), log_level="warning", lifespan="off", timeout_graceful_shutdown=5)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="http")
        thread.start()
        try:
            yield f"http://{host}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
