"""What the loop of `generate` costs: many requests to a recorded server, with a stub in place of the judge.

    python benchmarks/generation.py [--problems 100] [--samples 4] [--rounds 3] [--concurrency 16] [--folder FOLDER]

Half of the first answers are wrong, the others right. Prints the time for all answers and for a second pass over the
stored ones, and what both counted. Wanted: the ledger's counts equal to the server's to the token, each request sent
once, the second pass sends nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernel_matrix.generation import GeneratedCandidate
from kernel_matrix.generation.chat import ChatEndpoint
from kernel_matrix.generation.generation_events import GenerationResult
from kernel_matrix.generation.prompts import PromptTarget
from kernel_matrix.generation.recorded_server import RecordedServer, recorded_server
from kernel_matrix.generation.rounds import Generation, GenerationSettings
from kernel_matrix.matrix import GpuAxis
from kernel_matrix.model.enums import Dtype
from kernel_matrix.model.evaluation import EvaluationResult
from kernel_matrix.sources import Problem, load_source

CODE = "```python\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    {}\n```\n"
ANSWERS = (
    {"contains": "is not right", "text": CODE.format("repaired = True")},
    {"contains": "is right", "text": CODE.format("faster = True")},
    {"seed": 0, "text": CODE.format("wrong = True")},
    {"seed": 1, "text": CODE.format("wrong = True")},
    {"text": CODE.format("right = True")},
)


class StubJudge:
    """Judges by a word of the source, at once."""

    def evaluate(
        self, candidates: Sequence[GeneratedCandidate], /
    ) -> Iterator[tuple[GeneratedCandidate, EvaluationResult]]:
        """See :class:`kernel_matrix.generation.CandidateEvaluator`."""
        for candidate in candidates:
            if "wrong" in candidate.source:
                yield candidate, EvaluationResult("incorrect_values", "candidate", stage="verify")
            else:
                workloads = {"default": {"speedup": 2.0 if "faster" in candidate.source else 1.0}}
                yield candidate, EvaluationResult("passed", "none", stage="done", workloads=workloads)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("problems", 100), ("samples", 4), ("rounds", 3), ("concurrency", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=Path, help="where files go; a temporary folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        recorded = folder / "recorded"
        recorded.mkdir(parents=True)
        for number, answer in enumerate(ANSWERS):
            (recorded / f"{number}.json").write_text(json.dumps(answer))
        problems = load_source("folder", None).problems[: arguments.problems]
        with recorded_server(recorded) as server:
            first = generate("first", server, problems, folder, arguments)
            second = generate("again", server, problems, folder, arguments)
        wanted = len(problems) * arguments.samples * arguments.rounds
        counted = server.prompt_tokens + server.completion_tokens
        print(f"requests {len(server.requests)} of {wanted}; tokens: ledger {first.tokens}, server {counted}")
        if (len(server.requests), first.tokens, second.sent) != (wanted, counted, 0):
            sys.exit("counts differ")


def generate(
    name: str, server: RecordedServer, problems: Sequence[Problem], folder: Path, arguments: argparse.Namespace
) -> GenerationResult:
    gpu = GpuAxis(name="cpu")
    targets = [PromptTarget(problem=it, workloads=it.workloads, gpu=gpu, dtype=Dtype.FP32) for it in problems]
    settings = GenerationSettings(
        model="recorded",
        samples=arguments.samples,
        rounds=arguments.rounds,
        concurrency=arguments.concurrency,
    )
    start = time.monotonic()
    endpoint = ChatEndpoint(base_url=server.url)
    result = Generation(settings, targets, folder / "out", endpoint=endpoint, evaluator=StubJudge()).run()
    seconds = time.monotonic() - start
    print(f"{name}: {result.answers} answers, {result.sent} new, {result.right} right, {seconds:.1f} s")
    return result


if __name__ == "__main__":
    main()
