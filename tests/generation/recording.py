"""Recorded answers in a folder, and a generation on them with a stub in place of the judge."""

from __future__ import annotations

import json
from contextlib import contextmanager

from kernel_matrix.generation.chat import ChatEndpoint
from kernel_matrix.generation.prompts import PromptTarget
from kernel_matrix.generation.recorded_server import recorded_server
from kernel_matrix.generation.rounds import Generation, GenerationSettings
from kernel_matrix.matrix import GpuAxis
from kernel_matrix.model.enums import Dtype
from kernel_matrix.model.evaluation import EvaluationResult
from kernel_matrix.sources import Problem, Workload

REFERENCE = "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
WRONG = EvaluationResult("incorrect_values", "candidate", stage="verify", evidence={"message": "3 elements differ"})
MACHINE = EvaluationResult("gpu_lost", "infra", stage="time", evidence={"message": "the GPU is gone"})


def right(speedup=1.5):
    times = {"candidate_median_ns": 2000.0, "baseline_median_ns": 2000.0 * speedup, "speedup": speedup}
    return EvaluationResult("passed", "none", stage="done", workloads={"smoke": times})


def code(text="return x + 1"):
    return f"Here it is.\n\n```python\nclass ModelNew:\n    def forward(self, x):\n        {text}\n```\n"


def target(folder, problem="tiny"):
    path = folder / "reference.py"
    path.write_text(REFERENCE)
    workload = Workload(name="smoke", values={"N": 24}, flops=24.0, bytes={Dtype.FP32: 192.0})
    return PromptTarget(
        problem=Problem(id=problem, source="folder", path=path, category="Math", workloads=(workload,)),
        workloads=(workload,),
        gpu=GpuAxis(name="h200", platform="cuda", model="NVIDIA H200*"),
        dtype=Dtype.FP32,
    )


@contextmanager
def serving(folder, *answers):
    """Serve recorded answers, the first that fits each request."""
    folder = folder / "recorded"
    folder.mkdir(exist_ok=True)
    for number, answer in enumerate(answers):
        (folder / f"{number:02}.json").write_text(json.dumps(answer))
    with recorded_server(folder) as server:
        yield server


class StubEvaluator:
    """Gives results by words of the source, and keeps what it was asked."""

    def __init__(self, results=None, default=None):
        self.results = results or {}
        self.default = default or right()
        self.asked = []

    def evaluate(self, candidates):
        self.asked += candidates
        for candidate in candidates:
            found = [result for words, result in self.results.items() if words in candidate.source]
            yield candidate, found[0] if found else self.default


def generation(server, folder, *, evaluator=None, targets=None, endpoint=None, listener=None, runs=None, **settings):
    return Generation(
        GenerationSettings(**{"model": "tester", "samples": 2, "concurrency": 2, **settings}),
        targets or [target(folder)],
        folder / "out",
        endpoint=ChatEndpoint(base_url=server.url, **{"first_wait_s": 0.01, "retries": 1, **(endpoint or {})}),
        evaluator=evaluator or StubEvaluator(),
        runs=runs,
        **({"listener": listener} if listener else {}),
    )


def ledger_of(folder):
    return [json.loads(line) for line in (folder / "out" / "ledger.jsonl").read_text().splitlines()]
