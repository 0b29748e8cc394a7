"""Batches: their sizes, new inputs in each, and what the judge finds, with real workers in threads."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import os
import random
import sys
import threading
import time
from dataclasses import replace
from statistics import median
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from kernel_matrix.inside.batch_times import FEWEST, call_times
from kernel_matrix.inside.judge import batches as batches_module
from kernel_matrix.inside.judge import timing
from kernel_matrix.inside.judge.batches import (
    CHUNKS,
    COPIES,
    LONG_NS,
    LONGEST_NS,
    MOST_SETS,
    MOST_SHARE,
    Batches,
    BatchLayout,
    LentRows,
    NoBatchesError,
    batches_of,
)
from kernel_matrix.inside.judge.input_supply import FRESH
from kernel_matrix.inside.judge.lent_buffers import POISON
from kernel_matrix.inside.judge.verification import GLANCED
from kernel_matrix.inside.judge.worker_client import CallTimes, WorkerClient
from kernel_matrix.inside.wire import MAX_DEVICE_NS, OutputsClaim, Structure, WireError, pack_places
from kernel_matrix.model.enums import Fault, Role, Stage, Status, fault_of
from kernel_matrix.platforms.cpu import inside as cpu
from tests.inside.in_place import PlacingPool, compute_in_place
from tests.inside.runners import opened_runner
from tests.inside.sessions import QUICK, SOFTMAX, make_job
from tests.inside.workers import TIMEOUTS

pytestmark = pytest.mark.torch

MS, SECOND = 1_000_000, 1_000_000_000

# --- sizes -----------------------------------------------------------------------------------------------------------

PER_SET = 2 * (512 + 2048 + 512)  # 8 × 64 numbers with a guard on either side, as input and as output
EXPECTED_BYTES, TEMPORARY_BYTES = 10_000, 1_000


def prepared(
    call_ns,
    *,
    free=None,
    slowest_ns=0,
    contestants=2,
    draw=lambda: torch.zeros(8, 64),
    capture=cpu.capture,
    pool_bytes=0,
):
    """Make batches of calls on 8 × 64 numbers."""
    changed = {"free_bytes": lambda: free, "capture": capture, "pool_bytes": lambda _outputs, _calls: pool_bytes}
    platform = SimpleNamespace(**{**vars(cpu), **changed})
    reference = SimpleNamespace(
        platform=platform,
        ranks=1,
        like=(torch.empty(8, 64, device="meta"),),
        expected_bytes=EXPECTED_BYTES,
        temporary_bytes=TEMPORARY_BYTES,
        draw_unseeded=lambda: [draw()],
    )
    supply = SimpleNamespace(next=lambda: [draw()], kind=FRESH)
    return batches_of(reference, supply, random.Random(1), call_ns, slowest_ns, contestants=contestants)


SIZES = [
    (0.0, MOST_SETS),
    (1_000, MOST_SETS),
    (LONG_NS / 103, 96),
    (LONG_NS / 5.5, 5),
    (LONG_NS, 2),
    (100 * LONG_NS, 2),
]


@pytest.mark.parametrize(("call_ns", "sets"), SIZES)
def test_batches_of_long_calls_have_fewer_sets(call_ns, sets):
    assert prepared(call_ns)._layout.sets == sets


@pytest.mark.parametrize(
    ("slowest_ns", "sets"),
    [(MS / 4, MOST_SETS), (MS, 296), (LONGEST_NS / 20, 20), (LONGEST_NS / 5, 5), (LONGEST_NS / 2, 2)],
)
def test_batches_of_one_slow_side_have_fewer_sets(slowest_ns, sets):
    assert prepared(1_000, slowest_ns=slowest_ns)._layout.sets == sets


def test_batches_of_calls_that_take_long_are_none():
    with pytest.raises(NoBatchesError):
        prepared(1_000, slowest_ns=LONGEST_NS)


@pytest.mark.parametrize(("room", "sets"), [(2, 2), (7, 7), (8, 8), (15, 15), (23, 22), (10**6, MOST_SETS)])
def test_batches_of_little_free_memory_have_fewer_sets(room, sets):
    left = EXPECTED_BYTES + 2 * TEMPORARY_BYTES
    assert prepared(1_000, free=left + room * PER_SET * MOST_SHARE)._layout.sets == sets


def test_batches_of_no_room_for_two_sets_are_none():
    for contestants in (2, 4):
        left = EXPECTED_BYTES + contestants * TEMPORARY_BYTES
        least = left + 2 * PER_SET * (COPIES + contestants)
        assert prepared(1_000, free=least, contestants=contestants)._layout.sets == 2
        with pytest.raises(NoBatchesError):
            prepared(1_000, free=least - 1, contestants=contestants)


@pytest.mark.parametrize(
    ("pool_bytes", "free", "room"),
    [
        (5_000, None, 5_000 + 2 * TEMPORARY_BYTES),
        (5_000, 10 << 20, 5_000 + 2 * TEMPORARY_BYTES),
        (4 << 20, 10 << 20, 0),
        (0, None, 0),
    ],
)
def test_outputs_in_place_have_room_for_temporaries(pool_bytes, free, room):
    assert prepared(1_000, free=free, pool_bytes=pool_bytes)._layout.room_in_place == room


@pytest.mark.parametrize("sets", [18, 96, MOST_SETS])
@pytest.mark.parametrize("numbers", [[3], [0, 16, 5, 2, 9], list(range(17))])
def test_captured_draws_renew_the_chosen_sets(sets, numbers):
    drawn = []

    def capture(draw):
        draw()
        return lambda: draw() or drawn.append(None)

    batches = prepared(LONG_NS / (sets + 0.5), draw=lambda: torch.randn(8, 64), capture=capture)
    before = batches._sent.clone()
    drawn.clear()
    batches._write(numbers)
    changed = (batches._sent != before).any(dim=1)
    assert changed.nonzero().flatten().tolist() == sorted(numbers)
    assert len(batches._sent.unique(dim=0)) == len(batches._sent)
    assert len(drawn) == -(-len(numbers) // min(16, max(1, sets // 8)))


@pytest.mark.parametrize("inputs", [[torch.zeros(8, 63)], [torch.zeros(8, 64), 1], [torch.zeros(8, 64).double()]])
def test_batches_of_inputs_of_other_forms_are_none(inputs):
    supply = iter([[torch.zeros(8, 64)]] * 5 + [inputs])
    reference = SimpleNamespace(platform=cpu, ranks=1, like=(torch.empty(8, 64, device="meta"),))
    with pytest.raises(NoBatchesError):
        batches_of(
            reference,
            SimpleNamespace(next=lambda: next(supply), kind=FRESH),
            random.Random(1),
            1_000,
            1_000,
            contestants=2,
        )


@pytest.mark.parametrize(("most", "sets"), [(21 * PER_SET, 20), (PER_SET, 2)])
def test_batches_of_large_sets_are_two_at_least(most, sets, monkeypatch):
    monkeypatch.setattr(batches_module, "MOST_BYTES", most)
    assert prepared(1_000, free=10**12)._layout.sets == sets


@given(sets=st.integers(2, MOST_SETS), capture=st.booleans(), seed=st.integers(0, 2**32))
def test_draw_length_is_more_than_one_chunk(sets, capture, seed):
    made = Batches.__new__(Batches)
    made._layout, made._dice = SimpleNamespace(sets=sets), random.Random(seed)
    made._chunk = max(1, sets // CHUNKS) if capture else 1
    chunks = sets // made._chunk
    assert max(2, 3 * chunks / 4) <= made.draw_length() <= chunks


# --- one batch, by a contestant that has its memory only ------------------------------------------------------------


class Contestant:
    """Copies each input to the output of its set; ``late`` is called when the judge has taken the outputs."""

    def __init__(self, layout, *, late=lambda _inputs, _outputs: None, role=Role.CANDIDATE):
        self.name = role.value
        self.role = role
        self._layout = layout
        self._late = late
        self._arenas = {}
        self.shown = []
        """Inputs of all sets, per batch."""
        self.called = []

    def lend_batches(self, message, descriptors, most_bytes):
        assert message["sets"] == self._layout.sets
        sizes = (self._layout.input_bytes, self._layout.output_bytes)
        for kind, descriptor, nbytes in zip(("inputs", "outputs"), descriptors, sizes, strict=True):
            self._arenas[kind] = cpu.open_arena(os.dup(descriptor), nbytes * self._layout.sets)
        self._look()
        return message["capture"], 0

    def _look(self):
        rows = self._arenas["inputs"].tensor.view(self._layout.sets, -1)
        self.shown.append([self._views(self._layout.inputs, rows, k) for k in range(self._layout.sets)])

    def call_batch(self, deliver, chunks, calls, take, read_places=None):
        assert read_places is None
        deliver()
        self._look()
        size = calls // len(chunks)
        numbers = [number for chunk in chunks for number in range(chunk * size, (chunk + 1) * size)]
        inputs, outputs = (self._arenas[kind].tensor.view(self._layout.sets, -1) for kind in ("inputs", "outputs"))
        for number in numbers:
            for x, y in zip(
                self._layout.views(self._layout.inputs, inputs, number),
                self._layout.views(self._layout.outputs, outputs, number),
                strict=True,
            ):
                y.copy_(x)
        self.called.append(numbers)
        take()
        self._late(inputs, outputs)
        return OutputsClaim(Structure.TENSOR, ()), (), CallTimes(1, 2, 3)

    def _views(self, specs, rows, number):
        return tuple(view.clone() for view in self._layout.views(specs, rows, number))


def one_batch(*, sets=16, capture=False, **how):
    """Make batches over drawn inputs; return them with their contestant, to which they are lent."""
    reference = SimpleNamespace(platform=cpu, ranks=1, like=(torch.empty(3, device="meta"),))
    layout = BatchLayout(reference, [torch.zeros(3)], sets)
    supply = SimpleNamespace(next=lambda: [torch.randn(3)])
    made, contestant = Batches(reference, supply, random.Random(7), layout), Contestant(layout, **how)
    assert made.lend(contestant, capture=capture) is capture
    return made, contestant


@pytest.mark.parametrize("capture", [False, True])
def test_batch_calls_are_on_inputs_never_shown_before(capture):
    made, contestant = one_batch(capture=capture)
    for chunks in (1, 7, 2, 8, 6):
        made.call(contestant, chunks)
    seen = {tuple(x.tolist()) for (x,) in contestant.shown[0]}
    for shown, called in zip(contestant.shown[1:], contestant.called, strict=True):
        now = [tuple(shown[number][0].tolist()) for number in called]
        assert len(set(now)) == len(now)
        assert not seen & set(now)
        seen |= {tuple(x.tolist()) for (x,) in shown}


class CapturedDraws:
    """A problem on a platform whose ``capture`` is given; ``drawn_alone`` counts the sets that are drawn one by one."""

    def __init__(self, capture):
        platform = SimpleNamespace(**{**vars(cpu), "capture": capture})
        self.reference = SimpleNamespace(
            platform=platform, ranks=1, like=(torch.empty(3, device="meta"),), draw_unseeded=lambda: [torch.randn(3)]
        )
        self.supply = SimpleNamespace(next=self._next, kind=FRESH)
        self.drawn_alone = 0

    def _next(self):
        self.drawn_alone += 1
        return [torch.randn(3)]

    def batches(self, sets=40):
        layout = BatchLayout(self.reference, [torch.zeros(3)], sets)
        made, contestant = Batches(self.reference, self.supply, random.Random(7), layout), Contestant(layout)
        made.lend(contestant, capture=True)
        return made, contestant


def runs_again(function):
    function()
    return function


def draws_the_same_again(function):
    function()
    return lambda: None


def test_batch_draws_are_captured_and_new():
    problem = CapturedDraws(runs_again)
    made, contestant = problem.batches()
    for chunks in (8, 1, 5):
        made.call(contestant, chunks)
    assert problem.drawn_alone == 2
    shown = [[tuple(x.tolist()) for (x,) in sets] for sets in contestant.shown]
    seen = set(shown[0])
    assert len(seen) == 40
    for sets, called in zip(shown[1:], contestant.called, strict=True):
        now = {sets[number] for number in called}
        assert len(now) == len(called)
        assert not seen & now
        seen |= now


def test_batch_draws_are_secret():
    drawn = []
    for seed in (7, 8):
        made, contestant = CapturedDraws(runs_again).batches()
        made._dice = random.Random(seed)
        made.call(contestant, 2)
        drawn.append(contestant.shown[-1][contestant.called[0][0]][0].tolist())
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize("capture", [draws_the_same_again, lambda _function: None], ids=["stale", "impossible"])
def test_batch_draws_that_cannot_be_captured_are_made_one_by_one(capture):
    problem = CapturedDraws(capture)
    made, contestant = problem.batches()
    made.call(contestant, 8)
    assert problem.drawn_alone == 2 + 40 + 40


def test_batch_of_the_baseline_has_new_inputs_too():
    problem = CapturedDraws(lambda _function: None)
    made, _ = problem.batches()
    drawn = problem.drawn_alone
    eager = Contestant(made._layout, role=Role.BASELINE)
    made.lend(eager, capture=True)
    made.call(eager, 8)
    assert problem.drawn_alone == drawn + 40


def test_batch_inputs_of_the_baseline_are_not_compared():
    def write(inputs, _outputs):
        inputs[:, 512:524] = 0

    made, contestant = one_batch(late=write, role=Role.BASELINE)
    batch = made.call(contestant, 5)
    assert batch.inputs is None
    assert batch.damage == ""


def test_batch_calls_are_chunks_of_a_secret_order():
    made, contestant = one_batch(capture=True)
    results = [made.call(contestant, 3) for _ in range(6)]
    assert [batch.calls for batch in results] == [6] * 6
    assert [list(batch.numbers) for batch in results] == contestant.called
    assert len({tuple(numbers) for numbers in contestant.called}) > 1
    for numbers in contestant.called:
        assert [second - first for first, second in zip(numbers[::2], numbers[1::2], strict=True)] == [1] * 3


def test_batch_result_has_each_sets_outputs_and_inputs():
    made, contestant = one_batch()
    batch = made.call(contestant, 5)
    for number in batch.numbers:
        result, arguments = made.result_of(batch, number)
        (shown,) = contestant.shown[-1][number]
        assert torch.equal(result.outputs[0], shown)
        assert torch.equal(arguments[0], shown)
        assert result.sent[0] is result.inputs[0]
        assert result.damage == ""
    (sample,) = made.result_of_all(batch).outputs
    returned = [made.result_of(batch, number)[0].outputs[0] for number in batch.numbers]
    assert len(sample) == 3 * 5
    assert set(sample.tolist()) <= set(torch.cat(returned).tolist())


def test_batch_sample_is_of_all_numbers_of_each_output():
    like = (
        torch.empty(2, 3, device="meta").T,
        torch.empty(5, dtype=torch.bool, device="meta"),
        torch.empty(0, 3, dtype=torch.int64, device="meta"),
    )
    layout = BatchLayout(SimpleNamespace(ranks=1, like=like), [torch.zeros(1)], 4)
    memory = torch.zeros(4, layout.output_bytes, dtype=torch.uint8)
    for number in range(4):
        first, second, _empty = layout.views(layout.outputs, memory, number)
        first.copy_(torch.arange(6.0).view(3, 2) + 10 * number)
        second[number] = True
    seen = [set(), set()]
    for seed in range(40):
        *found, empty = layout.sample(memory.view(-1), layout.places([2, 0]), seed)
        assert [len(sample) for sample in found] == [12, 10]
        assert (empty.numel(), empty.dtype) == (0, torch.int64)
        for kept, sample in zip(seen, found, strict=True):
            kept.update(sample.tolist())
    assert seen == [{*range(20, 26), *range(6)}, {True, False}]
    assert (found[0].dtype, found[1].dtype) == (torch.float32, torch.bool)


def test_batch_sample_of_many_numbers_is_small():
    layout = BatchLayout(SimpleNamespace(ranks=1, like=(torch.empty(GLANCED, device="meta"),)), [torch.zeros(1)], 4)
    memory = torch.zeros(layout.all_output_bytes, dtype=torch.uint8)
    (sample,) = layout.sample(memory, layout.places(range(4)), 1)
    assert len(sample) == GLANCED


def test_batch_written_late_leaves_taken_outputs_alone():
    made, contestant = one_batch(late=lambda _inputs, outputs: outputs.zero_())
    batch = made.call(contestant, 5)
    for number in batch.numbers:
        (shown,) = contestant.shown[-1][number]
        assert torch.equal(made.result_of(batch, number)[0].outputs[0], shown)


def test_batch_changed_inputs_are_seen_beside_those_sent():
    def write(inputs, _outputs):
        inputs[:, 512:524] = 0

    made, contestant = one_batch(late=write)
    batch = made.call(contestant, 5)
    result, arguments = made.result_of(batch, batch.numbers[0])
    assert not result.inputs[0].any()
    assert torch.equal(result.sent[0], arguments[0])
    assert result.sent[0].any()


@pytest.mark.parametrize("place", [0, 511, 512 + 3 * 4, -1])
def test_batch_writes_around_an_output_are_damage(place):
    made, contestant = one_batch()
    contestant.call_batch = writes_first(contestant, place)
    batch = made.call(contestant, 5)
    assert "written to" in made.result_of(batch, 0)[0].damage
    assert "written to" in made.result_of_all(batch).damage


def writes_first(contestant, place):
    usual = contestant.call_batch

    def call_batch(*order):
        contestant._arenas["outputs"].tensor.view(contestant._layout.sets, -1)[3, place] = 0
        return usual(*order)

    return call_batch


# --- whole sessions, timed in batches --------------------------------------------------------------------------------

# A cheat runs in batches only: it finds the worker's object that calls it.
CHEATS = """
import sys, time
import torch

calls = 0
kept = {{}}
inputs = []

def in_batch(name="_call_chunk"):
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame and frame.f_locals["self"]

class ModelNew(torch.nn.Module):
    def forward(self, x):
        global calls
        worker, right = in_batch(), torch.softmax(x, -1)
        inputs.append(float(x.double().pow(2).sum()))
        if worker is not None:
            calls += 1
            {cheat}
        return right
"""


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """Run a workload whose calls are also timed in batches of up to 16; the report, and why it ended."""
    for name in ("candidate", "eager", "library", "kernel_matrix_problem"):
        monkeypatch.setitem(sys.modules, name, None)  # removed afterwards
    monkeypatch.setattr(batches_module, "MOST_SETS", 16)

    def run(cheat, problem=SOFTMAX, source=CHEATS, **changes):
        (tmp_path / "problem.py").write_text(problem)
        (tmp_path / "candidate.py").write_text(source.format(cheat=cheat.replace("\n", "\n            ")))
        job = make_job(**{"timeouts": TIMEOUTS, "protocol": replace(QUICK, precision_s=0.01), **changes})
        with opened_runner(job, tmp_path) as runner:
            runner._in_batches = True
            return runner.run(job.workloads[0])

    return run


def test_batches_of_an_honest_candidate_pass_with_a_bound(judged):
    report, ended = judged("pass")
    assert ended is None
    for name in ("candidate", "eager"):
        blocks = [block for block in report.batches if block.contestant == name]
        assert sum(len(block.calls) for block in blocks if not block.short) >= FEWEST
        assert any(block.short for block in blocks) is (name == "eager")
        assert all(12 <= count <= 16 for block in blocks if not block.short for count in block.calls)
        assert not any(block.captured for block in blocks)
    assert report.two_clocks.bound_ns > 0
    assert "no_batches" not in report.labels


def test_batches_inputs_of_a_session_are_all_new(judged):
    report, ended = judged("pass", protocol=replace(QUICK, precision_s=0.01, trials=1, check_share=0.0))
    assert ended is None
    seen = sys.modules["candidate"].inputs
    timed = sum(count for block in report.batches if block.contestant == "candidate" for count in block.calls)
    assert len(set(seen[-timed:])) == timed
    assert not set(seen[-timed:]) & set(seen[:-timed])


FOUND = {
    "writes outside of its outputs": ("worker._arenas.outputs.tensor[3] = 0", Status.OUT_OF_BOUNDS),
    "writes outside of its inputs": ("worker._arenas.inputs.tensor[3] ^= 1", Status.OUT_OF_BOUNDS),
    "writes to inputs of other calls": ("worker._arenas.inputs.tensor[512::3072] ^= 1", Status.OUT_OF_BOUNDS),
    "leaves outputs unwritten": (
        "if calls % 8 == 0:\n    worker._places[0] = worker._places[5] = [torch.empty(8, 64)]",
        Status.NONFINITE,
    ),
    "computes one of eight calls wrongly": ("if calls % 8 == 0:\n    right = right * 1.1", Status.INCORRECT_VALUES),
    "leaves one of eight calls out": ("if calls % 8 == 0:\n    right = torch.zeros_like(x)", Status.INCORRECT_VALUES),
    "returns outputs of an earlier batch": ("right = kept.setdefault(x.data_ptr(), right)", Status.INCORRECT_VALUES),
    "returns another shape": ("if calls > 20:\n    return right[:-1]", Status.NONFINITE),
    "raises": ("if calls > 20:\n    raise ValueError('enough')", Status.RUNTIME_ERROR),
    "writes to its inputs": ("x.zero_()", Status.INPUT_MODIFIED),
    "claims a huge time of switching": (
        "worker.begin = lambda: 2**63",
        Status.PROTOCOL_VIOLATION,
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_batches_find_a_candidate_that(name, judged, monkeypatch):
    monkeypatch.setattr(timing, "COMPARED", 16)  # all calls of a batch: three at random miss one of eight at times
    cheat, status = FOUND[name]
    _report, ended = judged(cheat)
    assert ended is not None, "it passed"
    assert (ended.status, ended.stage) == (status, Stage.TIME), ended.evidence
    assert fault_of(ended.status) is Fault.CANDIDATE


SLEEPS = """
import time
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.002)
        return torch.softmax(x, -1)
def get_inputs(): return [torch.randn(8, 64)]
"""
LATER = """
usual = type(worker).hand_over
def hand_over(returned):
    time.sleep(0.002 * len(returned))
    return usual(worker, returned)
worker.hand_over = hand_over
return right
"""


def test_batches_count_what_waits_for_the_hand_over(judged):
    source = CHEATS.replace("        return right\n", "        time.sleep(0.002)\n        return right\n")
    report, ended = judged(LATER, SLEEPS, source)
    assert ended is None
    times = call_times(report.batches, "candidate", "eager")
    ours = [block for block in report.batches if block.contestant == "candidate"]
    shown = [median(block.wall_ns) / median(block.calls) for block in ours]
    assert median(shown) < 1.5 * MS
    assert min(median(times), report.two_clocks.bound_ns) > 1.9 * MS


# --- outputs in place ------------------------------------------------------------------------------------------------


@pytest.fixture
def judged_in_place(judged, monkeypatch):
    """Run a workload whose calls in batches compute their outputs in the judge's memory.

    A cheat can import ``judge``, whose event ``has_taken`` is set when the judge has taken the outputs of a batch.
    """
    compute_in_place(monkeypatch)
    monkeypatch.setattr(PlacingPool, "capture", lambda _pool, _function: None)
    has_taken, usual = threading.Event(), WorkerClient.call_batch
    monkeypatch.setitem(sys.modules, "judge", SimpleNamespace(has_taken=has_taken))

    def call_batch(*given):
        *before, take, read_places = given
        has_taken.clear()
        return usual(*before, lambda: take() or has_taken.set(), read_places)

    monkeypatch.setattr(WorkerClient, "call_batch", call_batch)
    return judged


@pytest.mark.parametrize("captured", [False, True])
def test_in_place_honest_candidate_passes_with_a_bound(captured, judged, monkeypatch):
    compute_in_place(monkeypatch)
    monkeypatch.setattr(timing, "CAPTURED_BELOW_NS", captured * SECOND)
    report, ended = judged("pass")
    assert ended is None
    assert all(block.in_place and block.captured is captured for block in report.batches)
    assert 0 < report.two_clocks.bound_ns < MAX_DEVICE_NS


LATE = """
usual = type(worker).hand_over
pending = kept.setdefault('pending', [])
def hand_over(returned):
    import judge
    judge.has_taken.wait(1)  # a judge that waits for the hand-over before it takes them is deceived
    for held, answer in pending:
        held.copy_(answer)
    pending.clear()
    return usual(worker, returned)
worker.hand_over = hand_over
pending.append((torch.zeros_like(right), right))
if calls > 20:
    return pending[-1][0]
"""
NAMES = """
usual = type(worker).hand_over
def hand_over(returned):
    claim, places = usual(worker, returned)
    return claim, {}
worker.hand_over = hand_over
"""
FOUND_IN_PLACE = {
    "writes outside of its inputs": FOUND["writes outside of its inputs"],
    "writes to inputs of other calls": FOUND["writes to inputs of other calls"],
    "computes one of eight calls wrongly": FOUND["computes one of eight calls wrongly"],
    "leaves one of eight calls out": FOUND["leaves one of eight calls out"],
    "writes to its inputs": FOUND["writes to its inputs"],
    "raises": FOUND["raises"],
    "leaves outputs unwritten": (
        "if calls > 20 and calls % 8 == 0:\n    right.view(torch.int32).fill_(-1)",
        Status.NONFINITE,
    ),
    "writes when the calls have ended": (LATE, Status.INCORRECT_VALUES),
    "names one place for two calls": (NAMES.format("places[:1] + places[:-1]"), Status.PROTOCOL_VIOLATION),
    "names a place outside of the memory": (
        NAMES.format("[places[0] + 2**40, *places[1:]]"),
        Status.PROTOCOL_VIOLATION,
    ),
    "names a place between two numbers": (NAMES.format("[places[0] + 1, *places[1:]]"), Status.PROTOCOL_VIOLATION),
    "names too few places": (NAMES.format("places[1:]"), Status.PROTOCOL_VIOLATION),
    "claims more memory than there is": (
        "usual = worker._locate\nworker._locate = lambda given: setattr(worker, 'pool_bytes', 2**40) or usual(given)",
        Status.PROTOCOL_VIOLATION,
    ),
}


@pytest.mark.parametrize("name", FOUND_IN_PLACE)
def test_in_place_finds_a_candidate_that(name, judged_in_place, monkeypatch):
    monkeypatch.setattr(timing, "COMPARED", 16)
    cheat, status = FOUND_IN_PLACE[name]
    _report, ended = judged_in_place(cheat)
    assert ended is not None, "it passed"
    assert (ended.status, ended.stage) == (status, Stage.TIME), ended.evidence
    assert fault_of(ended.status) is Fault.CANDIDATE


def test_in_place_outputs_elsewhere_conclude_nothing(judged_in_place):
    report, ended = judged_in_place("if calls > 20:\n    return torch.from_numpy(right.numpy().copy())")
    assert ended is None
    assert "no_batches" in report.labels
    assert report.two_clocks.bound_ns == MAX_DEVICE_NS


def test_in_place_bound_holds_what_waits_for_the_hand_over(judged_in_place, monkeypatch):
    usual = WorkerClient.call_batch

    def call_batch(client, descriptor, chunks, calls, *functions):
        take, read_places = functions

        def take_late():
            time.sleep(0.002 * calls if client.name == "candidate" else 0)
            take()

        return usual(client, descriptor, chunks, calls, take_late, read_places)

    monkeypatch.setattr(WorkerClient, "call_batch", call_batch)
    report, ended = judged_in_place("pass")
    assert ended is None
    assert report.two_clocks.bound_ns > 2 * MS


def test_batch_layout_of_ranks_has_a_segment_for_each():
    like = tuple(torch.empty(size, device="meta") for size in (3, 700))
    layout = BatchLayout(SimpleNamespace(ranks=2, like=like), [torch.zeros(5), torch.zeros(9)], 4)
    (first, second) = layout.to_json(1, capture=False)["ranks"]
    assert [first["strides"][1], second["strides"][1]] == [stop - start for start, stop in layout.output_row.segments]
    assert [one["output_bytes"] for one in (first, second)] == [4 * second["strides"][1]] * 2
    assert [len(one["inputs"]) for one in (first, second)] == [1, 1]
    assert [spec.offset for spec in layout.inputs] == [512, layout.input_row.segments[1][0] + 512]


def test_batch_memory_of_a_rank_is_all_it_may_claim_in_place():
    like = (torch.empty(1 << 20, device="meta"),) * 2
    layout = BatchLayout(SimpleNamespace(ranks=2, like=like), [torch.zeros(1)] * 2, 4)
    layout.room_in_place = 1
    made = Batches.__new__(Batches)
    made._layout = layout
    assert made._most_in_place() == layout.memory_sizes(1)[1] < layout.all_output_bytes


def test_batch_rows_of_ranks_come_back_where_they_were_sent():
    like = (torch.empty(3, device="meta"),) * 2
    layout = BatchLayout(SimpleNamespace(ranks=2, like=like), [torch.zeros(5), torch.zeros(9)], 4)
    rows = LentRows(cpu, layout)
    sent = torch.randint(0, 256, (4, layout.input_bytes), dtype=torch.uint8)
    rows.fill(sent)
    assert torch.equal(rows.inputs_now(), sent)
    rows.arenas.poison()
    taken = torch.zeros(layout.all_output_bytes, dtype=torch.uint8)
    rows.take(taken, in_place=False)
    assert bool((taken == POISON).all())
    rows.arenas.close()


def test_batch_places_of_ranks_lie_in_each_ones_part():
    like = (torch.empty(2, device="meta"),) * 2
    layout = BatchLayout(SimpleNamespace(ranks=2, like=like), [torch.zeros(1), torch.zeros(1)], 2)
    payload = pack_places([0, 64, 128, 512])  # two calls of rank 0, then two of rank 1
    assert layout.read_places(payload, 2, 2048) == ((0, 1024 + 128), (64, 1024 + 512))
    assert layout.read_places(b"", 2, 2048) == ()
    with pytest.raises(WireError):
        layout.read_places(pack_places([0, 1020, 0, 64]), 2, 2048)
