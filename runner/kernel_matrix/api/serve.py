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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import uvicorn

from kernel_matrix.api.judge_candidates import CandidateJudge, SentCandidate, result_of
from kernel_matrix.api.plan import load_matrix
from kernel_matrix.api.run_cells import new_run_id, run_info, sweep_before_run
from kernel_matrix.errors import UsageError
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.hosts.survey import AUTO
from kernel_matrix.model.enums import Fault, Status
from kernel_matrix.model.evaluation import EvaluationResult
from kernel_matrix.model.instants import utc_now
from kernel_matrix.model.messages import dumps
from kernel_matrix.plan import Cell, devices_matching
from kernel_matrix.service.clients import RequestLimit, Tokens
from kernel_matrix.service.evaluation_queue import ClaimedWork, EvaluationQueue, NewEvaluation
from kernel_matrix.service.http_app import EvaluationRequest, Service, make_app

__all__ = ["ServedMatrix", "ServiceOptions", "open_service", "serving"]

_QUEUE_FILE: Final = "queue.sqlite"
_MOST_AT_ONCE: Final = 20
"""Evaluations that are judged together: they share a judge and a baseline, and all are answered as they end."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Options of a service."""

    matrix: Path
    folder: Path
    """Where the queue, sources and records are kept."""
    sandbox: str = AUTO
    lock: Path | None = None
    tokens: Path | None = None
    """File of the clients' tokens; None: everybody who reaches it is one client."""
    requests_per_s: float = 50.0
    most_queued: int = 100_000
    most_queued_each: int = 20_000


class ServedMatrix:
    """The evaluator of a service: judges what is in its queue, on all GPU models of a matrix at the same time."""

    def __init__(self, judge: CandidateJudge, queue: EvaluationQueue) -> None:
        self._judge = judge
        self._queue = queue
        self._is_new = threading.Condition()
        self._stop = threading.Event()
        self._run_id = new_run_id()
        self._counts: Counter[Status] = Counter()
        self._busy: dict[str, int] = {}
        """GPU of the matrix → evaluations that are being judged there."""

    # ---- what the interface asks

    def prepare(self, request: EvaluationRequest) -> NewEvaluation:
        """Check a request, and say what work answers it.

        Raises:
            UsageError: It cannot be judged here.
        """
        wanted = request.model_dump(exclude={"priority", "key"})
        cell = self._judge.cell_of(SentCandidate(**wanted))
        return NewEvaluation(
            digest=cell.id,
            place=cell.gpu.name,
            kind=f"{cell.problem.id} {cell.dtype.value} {cell.toolchain.name}",
            request=json.dumps(wanted),
            priority=request.priority,
            key=request.key,
        )

    def problems(self) -> Sequence[Mapping[str, Any]]:
        """Describe the problems."""
        return [
            {
                "id": chosen.problem.id,
                "category": chosen.problem.category,
                "dtypes": [dtype.value for dtype in chosen.problem.dtypes],
                "workloads": [workload.name for workload in chosen.workloads],
            }
            for chosen in self._judge.problems.values()
        ]

    def workers(self) -> Sequence[Mapping[str, Any]]:
        """Describe the devices of each GPU of the matrix, and how many evaluations are judged there now."""
        return [
            {
                "gpu": gpu.name,
                "devices": [device.name for device in devices_matching(gpu, self._judge.host.inventory.gpus)],
                "running": self._busy.get(gpu.name, 0),
            }
            for gpu in self._judge.matrix.gpus
        ]

    def wake(self) -> None:
        """Look into the queue now."""
        with self._is_new:
            self._is_new.notify_all()

    # ---- judging

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Judge in the background; on leaving, what is being judged is ended and stays in the queue."""
        threads = [
            threading.Thread(target=self._serve, args=(gpu.name,), name=gpu.name) for gpu in self._judge.matrix.gpus
        ]
        judge = self._judge
        for line in sweep_before_run(judge.host.sandbox):
            _log.warning("%s", line)
        info = run_info(judge.matrix, self._run_id, engine=judge.host.sandbox.name, command=(), planned=0)
        judge.store.save_run(info)
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            judge.stop()
            self.wake()
            for thread in threads:
                thread.join()
            judged = dict(self._counts)
            judge.store.save_run(replace(info, ended_at=utc_now(), planned=sum(judged.values()), counts=judged))

    def _serve(self, place: str) -> None:
        while not self._stop.is_set():
            with self._is_new:
                works = self._queue.claim(place, _MOST_AT_ONCE)
                if not works:
                    self._is_new.wait(1.0)
                    continue
            self._busy[place] = len(works)
            why = "no device took it"
            try:
                self._judge_works(place, works)
            except Exception as error:  # noqa: BLE001  # the service goes on
                _log.exception("evaluations on %s could not be judged", place)
                why = type(error).__name__
            if not self._stop.is_set():  # else they stay what they are, and the next service judges them again
                for work in works:  # those that have an answer keep it
                    self._queue.finish(work.digest, _machine_failed(why), is_final=False)
            self._busy[place] = 0

    def _judge_works(self, place: str, works: Sequence[ClaimedWork]) -> None:
        cells: dict[str, Cell] = {}
        digests: dict[str, str] = {}
        for work in works:
            try:
                cell = self._judge.cell_of(SentCandidate(**json.loads(work.request)))
            except UsageError as error:  # noqa: PERF203  # the matrix was changed since it was accepted
                self._queue.finish(work.digest, _machine_failed(error.what), is_final=False)
            else:
                cells[cell.id], digests[cell.id] = cell, work.digest
        policy = RunPolicy(run_id=self._run_id, build_workers=self._judge.matrix.policy.build_workers)
        for record in self._judge.judge(tuple(cells.values()), policy):
            self._busy[place] -= 1
            self._counts[record.outcome.status] += 1
            is_final = record.outcome.fault is not Fault.INFRA
            self._queue.finish(digests[record.cell_id], dumps(result_of(record)), is_final=is_final)


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
        served = ServedMatrix(CandidateJudge(matrix, folder, sandbox=options.sandbox, lock=options.lock), queue)
        undo.enter_context(served.judging())
        limit = RequestLimit(options.requests_per_s, most=max(1, round(10 * options.requests_per_s)))
        yield Service(queue=queue, evaluator=served, tokens=tokens, limit=limit, wake=served.wake)


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
