"""A service that is killed while many clients send: what is lost, answered twice, and how its memory grows.

    python benchmarks/service_kills.py [--evaluations 10000] [--clients 50] [--kills 20] [--seed 0]

The queue and the HTTP interface are those of `serve`, in a process of their own; a judge that answers at once takes the
place of devices. Its answers have a random number, and it notes each before it is kept. Clients send evaluations with
keys, singly and in batches; a fifth has the content of another one under a key of its own. Wanted: each key has one
answer, and the same when it is sent again; nothing is lost; no content has two answers; memory does not grow by half.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from kernel_matrix import Client, Evaluation
from kernel_matrix.service.clients import RequestLimit, Tokens
from kernel_matrix.service.evaluation_queue import EvaluationQueue, NewEvaluation
from kernel_matrix.service.http_app import EvaluationRequest, Service, make_app

PLACE = "here"
LINE_LENGTH = 65
"""Bytes of a digest and the end of the line, in the judge's notes."""
MOST_IN_BATCH = 40
MOST_GROWTH = 1.5
RETRY_FOR_S = 600.0
"""On a slow machine, clients are served one after the other when a service comes back."""


def main() -> None:
    """Serve if told so; else kill services, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("evaluations", 10_000), ("clients", 50), ("kills", 20), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--serve", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.port)
        return
    with tempfile.TemporaryDirectory() as folder, killed_service(Path(folder), arguments) as service:
        dice = random.Random(arguments.seed)
        requests = make_requests(arguments.evaluations, dice)
        began = time.monotonic()
        answers = send_all(service.address, requests, arguments)
        took_s = time.monotonic() - began
        service.killing.join()
        problems = find_problems(service.address, requests, answers)
        growth = service.memory() / service.memory_before
        judged = service.judged()
        contents = len({request["source"] for request in requests})
    print(f"evaluations {len(requests)}, contents {contents}, clients {arguments.clients}, kills {service.kills}")
    print(f"seconds     {took_s:.0f}")
    print(f"judged      {judged}, of which {judged - contents} again after a kill")
    print(f"memory      {growth:.2f} of what it was after the first {service.first}")
    print(f"problems    {'; '.join(problems) or 'none'}")
    if problems or growth > MOST_GROWTH:
        sys.exit(1)


# ---- the service


class InstantJudge:
    """Answers at once; see :class:`kernel_matrix.service.http_app.Evaluator`."""

    def __init__(self, queue: EvaluationQueue, notes: Path) -> None:
        self._queue = queue
        self._notes = notes
        self.is_new = threading.Event()

    def prepare(self, request: EvaluationRequest) -> NewEvaluation:
        """Name the work by the source."""
        digest = hashlib.sha256(request.source.encode()).hexdigest()
        return NewEvaluation(digest=digest, place=PLACE, kind="k", request="{}", key=request.key)

    def problems(self) -> Sequence[Mapping[str, Any]]:
        """Return none."""
        return ()

    def workers(self) -> Sequence[Mapping[str, Any]]:
        """Return none."""
        return ()

    def counts(self) -> Mapping[str, int]:
        """Return none."""
        return {}

    def judge(self) -> None:
        """Answer what is in the queue, for ever."""
        with self._notes.open("ab", buffering=0) as notes:
            while True:
                self.is_new.clear()
                works = self._queue.claim(PLACE, 20)
                for work in works:
                    notes.write(f"{work.digest}\n".encode())
                    evidence = {"digest": work.digest, "number": secrets.randbits(53)}
                    answer = {"status": "passed", "fault": "none", "evidence": evidence}
                    self._queue.finish(work.digest, json.dumps(answer))
                if not works:
                    self.is_new.wait(1.0)


def serve(folder: Path, port: int) -> None:
    """Serve until the end of the process, as ``kernel_matrix.api.serve`` does."""
    queue = EvaluationQueue(folder / "queue.sqlite")
    judge = InstantJudge(queue, folder / "notes")
    threading.Thread(target=judge.judge, daemon=True).start()
    limit = RequestLimit(1e6, most=1_000_000)
    service = Service(queue=queue, evaluator=judge, tokens=Tokens(), limit=limit, wake=judge.is_new.set)
    uvicorn.run(make_app(service), port=port, log_level="error", lifespan="off")


@dataclass(slots=True, kw_only=True)
class KilledService:
    """A service that is killed at random moments, and started again at once."""

    folder: Path
    port: int
    moments: list[int]
    """Numbers of judged evaluations, in order; the service is killed soon after each."""
    first: int
    """Number of judged evaluations after which its memory is read first."""
    process: subprocess.Popen[bytes] = field(init=False)
    killing: threading.Thread = field(init=False)
    memory_before: int = 0
    kills: int = 0

    @property
    def address(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start a process."""
        argv = (sys.executable, __file__, "--serve", self.folder, "--port", str(self.port))
        self.process = subprocess.Popen(argv)

    def judged(self) -> int:
        """Return how many evaluations were judged."""
        notes = self.folder / "notes"
        return notes.stat().st_size // LINE_LENGTH if notes.exists() else 0

    def memory(self) -> int:
        """Return the pages of memory that its process has."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])

    def kill_often(self, dice: random.Random) -> None:
        """Kill it at all moments."""
        self._await(self.first)
        self.memory_before = self.memory()
        for moment in self.moments:
            self._await(moment)
            time.sleep(dice.uniform(0, 0.05))
            self.process.kill()
            self.process.wait()
            self.kills += 1
            self.start()

    def _await(self, judged: int) -> None:
        while self.judged() < judged:
            if self.process.poll() is not None:
                os._exit(1)  # it has ended by itself, and said why
            time.sleep(0.002)


@contextmanager
def killed_service(folder: Path, arguments: argparse.Namespace) -> Iterator[KilledService]:
    """Provide a service, which is being killed."""
    dice = random.Random(arguments.seed + 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    first, last = arguments.evaluations // 10, arguments.evaluations * 3 // 4
    moments = sorted(dice.randrange(first, last) for _ in range(arguments.kills))
    service = KilledService(folder=folder, port=port, moments=moments, first=first)
    service.start()
    service.killing = threading.Thread(target=service.kill_often, args=(dice,), daemon=True)
    service.killing.start()
    try:
        yield service
    finally:
        service.process.kill()
        service.process.wait()


# ---- the clients


def make_requests(count: int, dice: random.Random) -> list[dict[str, str]]:
    """Return requests in random order; a fifth has the source of another one."""
    contents = count * 4 // 5
    made = [{"key": f"key {n}", "source": f"x = {n % contents}\n{'#' * 500}"} for n in range(count)]
    dice.shuffle(made)
    return made


def send_all(
    address: str, requests: Sequence[Mapping[str, str]], arguments: argparse.Namespace
) -> dict[str, Evaluation]:
    """Have clients send their shares at the same time; return the evaluations by key when all have ended."""
    answers: dict[str, Evaluation] = {}

    def send(number: int) -> None:
        dice = random.Random(arguments.seed + number)
        left = list(requests[number :: arguments.clients])
        ids: list[str] = []
        with Client(address, retry_for_s=RETRY_FOR_S) as client:
            while left:
                size = dice.choice((1, dice.randint(2, MOST_IN_BATCH)))
                ids += [one.id for one in client.submit_many(left[:size])]
                del left[:size]
            answers.update((str(one.key), one) for one in client.wait(ids))

    with ThreadPoolExecutor(arguments.clients) as pool:
        list(pool.map(send, range(arguments.clients)))
    return answers


def find_problems(address: str, requests: Sequence[Mapping[str, str]], answers: Mapping[str, Evaluation]) -> list[str]:
    """Ask for everything again, and return what is wrong."""
    with Client(address, retry_for_s=RETRY_FOR_S) as client:
        again = {one.key: one for one in client.submit_many(requests)}
        kept = list(client.list())
    numbers: dict[str, set[Any]] = {}
    for request in requests:
        one = answers.get(request["key"])
        number = one.result.evidence.get("number") if one and one.result else None
        numbers.setdefault(request["source"], set()).add(number)
    counted = {
        "keys without an answer": sum(None in found for found in numbers.values()),
        "keys with another answer the second time": sum(again[key] != one for key, one in answers.items()),
        "contents with two answers": sum(len(found) != 1 for found in numbers.values()),
        "evaluations too many or too few": abs(len(kept) - len(requests)),
        "keys lost": len({request["key"] for request in requests} - {one.key for one in kept}),
    }
    return [f"{count} {what}" for what, count in counted.items() if count]


if __name__ == "__main__":
    main()
