"""Judge candidates of a problem in this process, with the core's own verifier and workers in threads."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from kernel_matrix.inside.judge.reference import ReferenceModel
from kernel_matrix.inside.judge.verification import Verifier
from kernel_matrix.inside.judge.worker_client import WorkerClient
from tests.inside.sessions import CANDIDATE, EAGER, make_job
from tests.inside.workers import TIMEOUTS, ranks_served, served


def judge(folder: Path, problem: str, candidate: str, values: dict[str, Any] | None = None, **job: Any) -> Verifier:
    """Verify a candidate as before and after timing; both are sources, and ``job`` has fields of the judge's job.

    Raises:
        SessionEnded: if it fails.
    """
    (folder / "problem.py").write_text(problem)
    (folder / "candidate.py").write_text(candidate)
    made = make_job(timeouts=TIMEOUTS, **job)
    reference = ReferenceModel(folder / "problem.py", values or {}, "cpu", made.dtype, made.seed, ranks=made.ranks)
    with ExitStack() as undo:
        clients = {}
        for contestant in (CANDIDATE, EAGER):
            channel = undo.enter_context(served(folder) if made.ranks == 1 else ranks_served(folder, made.ranks))
            client = clients[contestant.name] = WorkerClient(contestant, channel, "cpu", TIMEOUTS, ranks=made.ranks)
            undo.callback(client.close)
            client.open()
            client.load(values or {} if contestant is EAGER else {})
            client.construct(reference, 0)
        verifier = Verifier(made, clients, random.Random(1))
        verifier.controls(reference)
        for phase, trials in (("before", 2), ("after", 1)):
            verifier.verify(reference, phase, trials)
        return verifier
