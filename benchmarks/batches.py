"""The time of a call in batches, by the judge's clock alone, beside what single calls claim: identical code twice.

    python benchmarks/batches.py [--device cuda] [--pairs 16] [relu:1048576 mm:1048576 …]

Two workers with the same code are timed in turns, without a sandbox. A call is the name of an operator and the number
of elements of its input. Prints, per call and for captured and launched calls: the two medians of cold calls, the two
times in batches with the half-widths of their 95 % intervals, the bound as a multiple of the time, hand-over, start of
a batch, and delivery of its inputs (with the least that it must take).
Wanted: the bound within 1 % of the time from 30 µs, and within 3 % from 2 µs where calls can be captured.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median

from kernel_matrix.inside.batch_times import call_times, longest_ns, median_interval, start_ns
from kernel_matrix.inside.judge.batches import CAPTURED_BELOW_NS, Batches, NoBatchesError, batches_of
from kernel_matrix.inside.judge.input_supply import InputSupply
from kernel_matrix.inside.judge.judge import _accepted, _listen_at
from kernel_matrix.inside.judge.reference import ReferenceModel
from kernel_matrix.inside.judge.timing import block_of
from kernel_matrix.inside.judge.worker_client import WorkerClient
from kernel_matrix.inside.platform import load_platform
from kernel_matrix.inside.wire import AWAKE_S, MAX_FROM_WORKER, Channel
from kernel_matrix.inside.worker.worker import SOCKET_NAME
from kernel_matrix.model.enums import Dtype, Role, Stage
from kernel_matrix.model.messages import BatchBlock, ContestantSpec, JudgeTimeouts, ProtocolSpec

OPERATORS = {
    "relu": ("torch.relu(x)", "torch.randn({n})"),
    "softmax": ("torch.softmax(x, -1)", "torch.randn({n} // 1024, 1024)"),
    "sum": ("x.sum(-1)", "torch.randn({n} // 1024, 1024)"),
    "mm": ("x @ x", "torch.randn(int({n} ** 0.5), int({n} ** 0.5))"),
}
CALLS = ("relu:16384", "relu:1048576", "relu:16777216", "relu:268435456", "mm:1048576", "mm:16777216")
COLD_CALLS = 25
NAMES = ("candidate", "eager")
SOURCE = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return {call}
class ModelNew(Model):
    pass
def get_inputs():
    return [{inputs}]
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("calls", nargs="*", default=CALLS)
    arguments = parser.parse_args()
    load_platform(arguments.device).open_device()
    for call in arguments.calls:
        operator, _, elements = call.partition(":")
        with tempfile.TemporaryDirectory() as folder:
            code, inputs = OPERATORS[operator]
            source = SOURCE.format(call=code, inputs=inputs.format(n=elements))
            (Path(folder) / "problem.py").write_text(source)
            measure(call, Path(folder), arguments.device, arguments.pairs)


def measure(call: str, folder: Path, device: str, pairs: int) -> None:
    """Time one call both ways, and print a line each for captured and for launched calls."""
    reference = ReferenceModel(folder / "problem.py", {}, device, Dtype.FP32, "benchmark")
    dice = random.Random(1)
    supply = InputSupply(reference, ProtocolSpec(), dice)
    with ExitStack() as undo:
        clients = [undo.enter_context(worker(name, folder, device, reference)) for name in NAMES]
        cold = [median(cold_calls(client, supply, reference)) for client in clients]
        for capture in (True, False) if min(cold) < CAPTURED_BELOW_NS else (False,):
            try:
                batches = batches_of(reference, supply, dice, min(cold), max(cold), contestants=len(clients))
            except NoBatchesError:
                print(f"{call}: too little memory for two sets")
                continue
            with closing(batches):
                lent = [batches.lend(client, capture=capture) for client in clients]
                if capture and not all(lent):
                    print(f"{call}: cannot be captured")
                    continue
                started = time.monotonic()
                blocks = timed(clients, batches, pairs, captured=capture)
            print(line(call, cold, blocks), f"in {time.monotonic() - started:.1f} s", flush=True)
    load_platform(device).release_memory()


def cold_calls(client: WorkerClient, supply: InputSupply, reference: ReferenceModel) -> Iterator[int]:
    """Yield the claimed times of single calls, nanoseconds."""
    for _ in range(COLD_CALLS):
        client.deliver(supply.next(), reference.like)
        yield client.call(stage=Stage.TIME).times.device_ns


def timed(clients: Sequence[WorkerClient], batches: Batches, pairs: int, *, captured: bool) -> list[BatchBlock]:
    """Make a short and a long batch of each in turns."""
    for client in clients:
        batches.call(client, batches.draw_length())  # untimed: libraries load code in a first one
    blocks = []
    for turn in range(pairs):
        for client in clients if turn % 2 else clients[::-1]:
            for chunks in (1, batches.draw_length()):
                started_ns = time.monotonic_ns()
                made = batches.call(client, chunks)
                blocks.append(block_of(client.name, [made], started_ns, captured=captured, short=chunks == 1))
    return blocks


def line(call: str, cold: Sequence[float], blocks: Sequence[BatchBlock]) -> str:
    """Return the line of one call."""
    times = [median_interval(call_times(blocks, name, NAMES[1])) for name in NAMES]
    handovers = (median(b.handover_ns[0] for b in blocks if b.contestant == name and not b.short) for name in NAMES)
    delivered = median(b.delivered_ns[0] for b in blocks if b.contestant == NAMES[0] and not b.short)
    least = median(b.least_ns[0] for b in blocks if b.contestant == NAMES[1] and not b.short)
    where = "outputs in place" if all(block.in_place for block in blocks) else "outputs copied"
    longest = longest_ns(blocks, *NAMES)
    texts = [f"{one.estimate / 1e3:.3f} µs ± {one.half_width:.2%}" for one in times]
    how = "captured" if blocks[0].captured else "launched"
    return (
        f"{call} {how}: cold {cold[0] / 1e3:.2f}, {cold[1] / 1e3:.2f} µs; "
        f"batches {', '.join(texts)}; bound {longest / times[0].estimate:.3f}; "
        f"hand-over {', '.join(f'{ns / 1e3:.0f}' for ns in handovers)} µs; "
        f"start {start_ns(blocks, NAMES[1]) / 1e3:.0f} µs; delivery {delivered / 1e3:.0f} µs ({least / 1e3:.0f}); "
        f"{max(block.calls[0] for block in blocks)} sets; {where}"
    )


@contextmanager
def worker(name: str, folder: Path, device: str, reference: ReferenceModel) -> Iterator[WorkerClient]:
    """Start a worker with the model of ``folder``, ready to be called."""
    (folder / name).mkdir()
    listener = _listen_at(folder / name / SOCKET_NAME)
    module = "kernel_matrix.inside.worker.worker"
    places = ("--channel", str(folder / name), "--code", str(folder), "--device", device)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen((sys.executable, "-m", module, *places), env=environment) as process:
        try:
            role = Role.CANDIDATE if name == NAMES[0] else Role.BASELINE
            contestant = ContestantSpec(name, role, "problem.py", "ModelNew")
            channel = Channel(_accepted(listener, contestant, 120)[0], MAX_FROM_WORKER)
            if load_platform(device).IS_ACCELERATOR:
                channel.stay_awake(AWAKE_S)
            client = WorkerClient(contestant, channel, device, JudgeTimeouts())
            client.open()
            client.load({})
            client.construct(reference, 2 * load_platform(device).cache_bytes())
            yield client
            client.close()
        finally:
            process.kill()


if __name__ == "__main__":
    main()
