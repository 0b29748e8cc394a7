"""Batches in a real worker: where sets lie, what is handed over, and what the worker answers to wrong orders."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import sys
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge.batches import BatchLayout
from kernel_matrix.inside.judge.lent_buffers import POISON
from kernel_matrix.inside.judge.session_ended import SessionEnded
from kernel_matrix.inside.memory import guards
from kernel_matrix.inside.wire import OutputClaim, Structure, unpack_places
from kernel_matrix.model.enums import Dtype, Status
from kernel_matrix.platforms.cpu import inside as cpu
from tests.inside.in_place import PlacingPool, compute_in_place
from tests.inside.workers import side_of

pytestmark = pytest.mark.torch

SETS = 6
LIKE = (torch.empty(3, device="meta"),)


@pytest.fixture(autouse=True)
def _forget_the_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "candidate", None)


def model(forward):
    return (
        "import torch\ncalls = 0\nseen = []\nkept = torch.zeros(3)\nclass ModelNew(torch.nn.Module):\n"
        f"    def forward(self, x):\n        global calls\n        calls += 1\n        {forward}\n"
    )


class Lender:
    """The judge's part of batches of one input of three numbers: set ``k`` of a batch has ``first + k`` everywhere."""

    def __init__(self, side, like=LIKE, sets=SETS, chunk=1):
        self.side = side
        self._memory = []
        self.layout = BatchLayout(SimpleNamespace(like=like, ranks=1), [torch.zeros(3)], sets)
        self.layout.room_in_place = cpu.pool_bytes([nbytes for nbytes, _ in self.layout.output_sizes(0)], sets)
        self.chunk = chunk
        self.used = 0

    def lend(self, *, capture=False):
        """Lend a first batch; return whether its calls are captured."""
        message = self.layout.to_json(self.chunk, capture=capture)
        sizes = self.layout.memory_sizes(0)
        self.close()
        self.inputs, self.outputs = self._memory = [cpu.create_arena(size) for size in sizes]
        self.fill(0)
        captured, self.used = self.side.lend_batches(
            message, (self.inputs.descriptor, self.outputs.descriptor), message["output_bytes"] * message["in_place"]
        )
        return captured

    def close(self):
        """Take the memory back."""
        while self._memory:
            self._memory.pop().close()

    def batch(self, first, chunks):
        """Make one batch; return the claim, and the memory of all outputs, a row per set."""
        claim, _, taken = self.taken(first, chunks)
        return claim, taken[: self.layout.all_output_bytes].view(self.layout.sets, -1)

    def batch_in_place(self, first, chunks):
        """Make one batch; return each call's outputs, which are taken as soon as the calls end."""
        _, places, taken = self.taken(first, chunks)
        specs = self.layout.outputs
        return [
            [replace(spec, offset=start).view(taken).tolist() for spec, start in zip(specs, call, strict=True)]
            for call in places
        ]

    def taken(self, first, chunks):
        calls = len(chunks) * self.chunk
        taken = []
        claim, places, _ = self.side.call_batch(
            partial(self.fill, first),
            chunks,
            calls,
            lambda: taken.append(self.outputs.tensor.clone()),
            partial(unpack_places, outputs=self.layout.output_sizes(0), calls=calls, most_bytes=self.used)
            if self.used
            else None,
        )
        return claim, places, taken[0]

    def fill(self, first):
        """Write a batch's inputs, and fill the memory for outputs."""
        layout = self.layout
        for number in range(layout.sets):
            (x,) = layout.views(layout.inputs, self.inputs.tensor.view(layout.sets, -1), number)
            x.fill_(first + number)
        self.outputs.tensor.fill_(POISON)

    def outputs_of(self, rows, number):
        return [view.tolist() for view in self.layout.views(self.layout.outputs, rows, number)]


@pytest.fixture
def lender(tmp_path):
    """Makes a lender to a worker with this ``forward``; the worker ends with the test."""
    undo = ExitStack()

    def make(forward, **layout):
        side = undo.enter_context(side_of(tmp_path, model(forward)))
        side.open()
        side.load({})
        side.construct(SimpleNamespace(init_arguments=[], state={}, dtype=Dtype.FP32), 0)
        return undo.enter_context(closing(Lender(side, **layout)))

    with undo:
        yield make


def test_batch_outputs_are_those_of_their_sets(lender):
    made = lender("return x * 10")
    assert made.lend() is False
    claim, rows = made.batch(100, (4, 1))
    assert claim.structure is Structure.TENSOR
    assert claim.outputs == (OutputClaim("float32", (3,), same_device=True, copied=True),)
    assert made.outputs_of(rows, 4) == [[1040] * 3]
    assert made.outputs_of(rows, 1) == [[1010] * 3]
    assert all(bool((rows[number] == POISON).all()) for number in (0, 2, 3, 5)), "the others were not called on"


def test_batch_hand_over_writes_outputs_and_nothing_around(lender):
    made = lender("return x")
    made.lend()
    _, rows = made.batch(1, range(SETS))
    for start, stop in guards(made.layout.outputs, rows.shape[1]):
        assert bool((rows[:, start:stop] == POISON).all())


def test_batch_sets_are_at_same_addresses_with_new_numbers(lender):
    made = lender("seen.append((x.data_ptr(), float(x[0])))\n        return x")
    made.lend()
    for first in (10, 20, 30):
        made.batch(first, (0, 5))
    seen = sys.modules["candidate"].seen
    places = [place for place, _ in seen]
    assert places == places[:2] * 3
    assert places[1] - places[0] == 5 * made.layout.input_bytes
    assert [value for _, value in seen] == [10, 15, 20, 25, 30, 35]


def test_batch_chunk_is_sets_in_a_row(lender):
    made = lender("return x", chunk=2)
    made.lend()
    _, rows = made.batch(0, (2, 0))
    written = [number for number in range(SETS) if made.outputs_of(rows, number) == [[number] * 3]]
    assert written == [0, 1, 4, 5]


def test_batch_several_outputs_each_have_their_place(lender):
    like = (torch.empty(3, device="meta"), torch.empty(2, 3, dtype=torch.int64, device="meta"))
    made = lender("return x + 1, x.long().expand(2, 3)", like=like)
    made.lend()
    claim, rows = made.batch(7, (3, 0))
    assert claim.structure is Structure.TUPLE
    assert all(output.copied for output in claim.outputs)
    assert made.outputs_of(rows, 3) == [[11] * 3, [[10] * 3] * 2]
    assert made.outputs_of(rows, 0) == [[8] * 3, [[7] * 3] * 2]


OTHERS = {
    "another shape": ("torch.cat([x, x])", Structure.TENSOR, [("float32", (6,), False)]),
    "another dtype": ("x.double()", Structure.TENSOR, [("float64", (3,), False)]),
    "a tuple": ("(x,)", Structure.TUPLE, [("float32", (3,), True)]),
    "one more": ("[x, x]", Structure.LIST, [("float32", (3,), False)] * 2),
    "no tensor": ("3", Structure.OTHER, []),
}


@pytest.mark.parametrize("name", OTHERS)
def test_batch_claim_describes_the_call_that_differs(name, lender):
    value, structure, outputs = OTHERS[name]
    made = lender(f"return {value} if calls == 3 else x")
    made.lend()
    claim, _ = made.batch(0, range(4))
    assert claim.structure is structure
    assert [(one.dtype, one.shape, one.copied) for one in claim.outputs] == outputs


@pytest.mark.parametrize("name", OTHERS)
def test_batch_first_call_differs_and_outputs_are_missing(name, lender):
    value, structure, _ = OTHERS[name]
    made = lender(f"return {value} if calls == 1 else x")
    made.lend()
    claim, rows = made.batch(0, range(4))
    assert claim.structure is structure or bool((rows[2:] == POISON).all())


def test_batch_differs_always_has_claim_and_no_outputs(lender):
    made = lender("return torch.cat([x, x])")
    made.lend()
    claim, rows = made.batch(0, range(4))
    assert [(one.shape, one.copied) for one in claim.outputs] == [((6,), False)]
    assert bool((rows == POISON).all())


def test_batch_of_a_model_that_raises_fails_and_goes_on(lender):
    made = lender("if calls == 2: raise ValueError('second')\n        return x")
    made.lend()
    with pytest.raises(SessionEnded, match="ValueError: second") as found:
        made.batch(0, range(3))
    assert found.value.status is Status.RUNTIME_ERROR
    _, rows = made.batch(5, (2,))
    assert made.outputs_of(rows, 2) == [[7] * 3]


def test_batch_before_its_buffers_is_refused(lender):
    made = lender("return x")
    for _ in range(2):
        with pytest.raises(SessionEnded, match="CALLS before there is a batch"):
            made.side.call_batch(lambda: None, (0,), 1, lambda: None)
        made.side.deliver([torch.ones(3)], LIKE)  # other buffers are none for batches


def test_batch_memory_is_given_back_with_the_next_buffers(lender):
    made = lender("return x")
    made.side.deliver([torch.ones(3)], LIKE)
    before = open_arenas()
    for _ in range(3):
        made.lend()
        made.batch(1, (0, 1))
    made.close()
    assert open_arenas() > 0
    made.side.deliver([torch.ones(3)], LIKE)
    assert open_arenas() == before


def open_arenas():
    """Return the number of this process's descriptors of arenas, those of mappings included."""
    count = 0
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing itself
            count += "kernel-matrix-arena" in str(path.readlink())
    return count


# --- captured calls --------------------------------------------------------------------------------------------------


@pytest.fixture
def capturing(monkeypatch):
    """The worker's platform captures calls; the replays of each capture, in order."""
    captured = []

    def capture(function):
        first = function()
        if any(returned is None for _, returned in first):
            return None
        replays = []
        captured.append(replays)

        def replay():
            replays.append(True)
            for (_, kept), (_, new) in zip(first, function(), strict=True):
                kept.copy_(new)
            return first

        return replay

    platform = SimpleNamespace(**{**vars(cpu), "capture": capture})
    monkeypatch.setattr("kernel_matrix.inside.worker.service.load_platform", lambda _name: platform)
    return captured


def test_batch_cannot_be_captured_on_a_cpu(lender):
    made = lender("return x + 1", chunk=2)
    assert made.lend(capture=True) is False
    claim, rows = made.batch(1, (1,))
    assert not claim.captured
    assert made.outputs_of(rows, 2) == [[4] * 3]


def test_batch_captured_chunks_are_replayed_on_new_inputs(capturing, lender):
    made = lender("return x + 1", chunk=2)
    assert made.lend(capture=True) is True
    assert capturing == [[], [], []], "a capture per chunk"
    for first in (10, 20):
        claim, rows = made.batch(first, (2, 0))
        assert claim.captured
        assert [made.outputs_of(rows, number)[0][0] for number in (4, 5, 0, 1)] == [
            first + number + 1 for number in (4, 5, 0, 1)
        ]
    assert [len(replays) for replays in capturing] == [2, 0, 2]


def test_batch_one_chunk_not_captured_means_none_is(capturing, lender):
    made = lender("return None if calls == 6 else x + 1", chunk=2)
    assert made.lend(capture=True) is False
    claim, rows = made.batch(1, (2,))
    assert not claim.captured
    assert made.outputs_of(rows, 5) == [[7] * 3]
    assert capturing == [[], []]


def test_batch_is_not_captured_unless_asked_for(capturing, lender):
    assert lender("return x").lend() is False
    assert capturing == []


# --- outputs in place ------------------------------------------------------------------------------------------------


@pytest.fixture
def in_place(monkeypatch):
    """Calls of batches find memory of the judge to allocate in."""
    compute_in_place(monkeypatch)


@pytest.mark.usefixtures("in_place")
def test_in_place_outputs_are_there_when_calls_end(lender):
    made = lender("return x * 10")
    assert made.lend() is False
    assert made.used == SETS * 512
    for first in (100, 200):
        assert made.batch_in_place(first, (4, 1)) == [[[(first + 4) * 10] * 3], [[(first + 1) * 10] * 3]]


@pytest.mark.usefixtures("in_place")
def test_in_place_claim_is_as_if_outputs_were_copied(lender):
    made = lender("return x * 10")
    made.lend()
    claim, _, _ = made.taken(0, (1, 2))
    assert claim.structure is Structure.TENSOR
    assert claim.outputs == (OutputClaim("float32", (3,), same_device=True, copied=True),)


@pytest.mark.usefixtures("in_place")
def test_in_place_several_outputs_each_have_a_place(lender):
    like = (torch.empty(3, device="meta"), torch.empty(2, 3, dtype=torch.int64, device="meta"))
    made = lender("return x + 1, x.long().expand(2, 3).contiguous()", like=like)
    made.lend()
    assert made.used
    assert made.batch_in_place(7, (3, 0)) == [[[11] * 3, [[10] * 3] * 2], [[8] * 3, [[7] * 3] * 2]]


@pytest.mark.usefixtures("in_place")
def test_in_place_captured_chunks_are_replayed(lender):
    made = lender("return x + 1", chunk=2)
    assert made.lend(capture=True) is True
    assert made.used
    for first in (10, 20):
        assert made.batch_in_place(first, (2, 0)) == [[[first + number + 1] * 3] for number in (4, 5, 0, 1)]


COPIED = {
    "the input itself": "x",
    "memory that was there before": "kept.copy_(x)",
    "another layout in memory": "torch.stack([x, x], 1)[:, 0]",
}


@pytest.mark.usefixtures("in_place")
@pytest.mark.parametrize("value", COPIED.values(), ids=COPIED)
def test_in_place_outputs_elsewhere_are_copied(value, lender):
    made = lender(f"return {value}")
    made.lend()
    assert made.used == 0
    _, rows = made.batch(5, (2, 3))
    assert made.outputs_of(rows, 3) == [[8] * 3]


@pytest.mark.usefixtures("in_place")
def test_in_place_outputs_in_one_place_are_copied(lender):
    made = lender("y = x + 1\n        return y, y", like=LIKE * 2)
    made.lend()
    assert made.used == 0
    _, rows = made.batch(5, (2, 3))
    assert made.outputs_of(rows, 3) == [[9] * 3] * 2


@pytest.mark.usefixtures("in_place")
@pytest.mark.parametrize("capture", [False, True])
def test_in_place_without_room_outputs_are_copied(capture, lender, monkeypatch):
    monkeypatch.setattr(cpu, "pool_bytes", lambda _outputs, calls: calls * 512)
    made = lender("return x.repeat(1000)[:3] + 1")
    made.lend(capture=capture)
    assert made.used == 0
    _, rows = made.batch(5, (2, 3))
    assert made.outputs_of(rows, 3) == [[9] * 3]


@pytest.mark.usefixtures("in_place")
def test_in_place_without_a_pool_outputs_are_copied(lender, monkeypatch):
    monkeypatch.setattr(cpu, "open_pool", lambda _arena: None)
    made = lender("return x")
    made.lend()
    assert made.used == 0


@pytest.mark.usefixtures("in_place")
def test_in_place_not_captured_is_not_captured_elsewhere(lender, monkeypatch):
    monkeypatch.setattr(PlacingPool, "capture", lambda _pool, _function: None)
    made = lender("return x + 1")
    assert made.lend(capture=True) is False
    assert made.used == 0


LATER = {"the input": "x", "another shape": "torch.cat([x, x])", "no tensor": "3", "one more": "(x + 1, x + 1)"}


@pytest.mark.usefixtures("in_place")
@pytest.mark.parametrize("value", LATER.values(), ids=LATER)
def test_in_place_later_output_elsewhere_has_no_place(value, lender):
    made = lender(f"return {value} if calls == {SETS + 5} else x + 1")
    made.lend()
    assert made.batch_in_place(0, range(3)) == [[[1 + number] * 3] for number in range(3)]
    assert made.batch_in_place(0, range(3)) == []


@pytest.mark.usefixtures("in_place")
def test_in_place_model_that_raises_fails(lender):
    made = lender("if calls == 3: raise ValueError('third')\n        return x + 1")
    with pytest.raises(SessionEnded, match="ValueError: third"):
        made.lend()
