"""The judge's client of a worker: every message or silence of the peer is assigned the right fault."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import itertools
import json
import os
import socket
import sys
import threading
import time
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge.session_ended import MAX_LOG, SessionEnded
from kernel_matrix.inside.judge.worker_client import FIRST_CALL_S, TRACER_S, WorkerClient, _last_line
from kernel_matrix.inside.memory import TensorSpec
from kernel_matrix.inside.wire import (
    HEADER,
    MAGIC,
    MAX_FROM_JUDGE,
    MAX_FROM_WORKER,
    CallFailure,
    Channel,
    FrameKind,
    OutputClaim,
    OutputsClaim,
    Structure,
    pack_begun,
    pack_done,
    pack_failed,
    pack_outputs,
    pack_traced,
    unpack_replay,
)
from kernel_matrix.model.enums import Dtype, Role, Stage, Status
from kernel_matrix.model.messages import JudgeTimeouts
from kernel_matrix.platforms.cpu import inside as cpu
from tests.inside.sessions import CANDIDATE, EAGER, LIBRARY

pytestmark = pytest.mark.torch

TIMEOUTS = JudgeTimeouts(connect_s=0.2, load_s=0.2, first_call_s=0.2, call_s=0.1)
CLAIM = OutputsClaim(Structure.TENSOR, (OutputClaim("float32", (4,), same_device=True, copied=True),))
LIKE = [torch.empty(4, device="meta")]


class Peer:
    """The other end: frames that it sends beforehand are there when the client waits for an answer."""

    def __init__(self, connection):
        self.socket = connection
        self.channel = Channel(connection, MAX_FROM_JUDGE)

    def ready(self):
        self.channel.send(FrameKind.READY)

    def answer(self, sequence, *, device_ns=5, claim=CLAIM, traced=None):
        self.channel.send(FrameKind.DONE, sequence, pack_done(device_ns))
        if traced is not None:
            self.channel.send(FrameKind.TRACED, sequence, pack_traced(traced))
        self.channel.send(FrameKind.OUTPUTS, sequence, pack_outputs(claim))

    def read(self):
        """Return kind, JSON or sequence, and descriptors of the next order."""
        kind, sequence, payload, descriptors = self.channel.receive_with_descriptors()
        return kind, json.loads(payload) if payload.startswith(b"{") else sequence, descriptors


@pytest.fixture(autouse=True)
def foreseeable_sequence(monkeypatch):
    """Number calls from 1, since frames sent beforehand cannot carry the real, random numbers."""
    numbers = itertools.count(1)
    monkeypatch.setattr(
        "kernel_matrix.inside.judge.worker_client.secrets", SimpleNamespace(randbits=lambda _bits: next(numbers))
    )


@pytest.fixture
def pair(request):
    """A client and the peer that it talks to."""
    contestant = getattr(request, "param", CANDIDATE)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    theirs.settimeout(10)
    side, peer = WorkerClient(contestant, Channel(ours, MAX_FROM_WORKER), "cpu", TIMEOUTS), Peer(theirs)
    yield side, peer
    side.close()
    ours.close()
    theirs.close()


def load(side):
    side.load({"n": 1})


def call(side):
    return side.call(stage=Stage.VERIFY)


def test_a_worker_is_told_what_to_load(pair):
    side, peer = pair
    peer.ready()
    load(side)
    kind, order, descriptors = peer.read()
    assert kind is FrameKind.LOAD
    assert order == {
        "file": "candidate.py",
        "entry": "ModelNew",
        "values": {"n": 1},
        "module": "candidate",
        "compile_mode": "",
    }
    assert descriptors == []


def test_an_answered_call_is_measured_by_both_clocks(pair):
    side, peer = pair
    peer.answer(1, device_ns=5)
    peer.answer(2, device_ns=6)
    results = [call(side), call(side)]
    assert [r.times.device_ns for r in results] == [5, 6]
    assert all(r.claim == CLAIM for r in results)
    assert all(r.times.wall_ns > 0 for r in results)
    assert [peer.read()[:2] for _ in results] == [(FrameKind.CALL, 1), (FrameKind.CALL, 2)]


def test_replay_sends_count_and_trace_returns_kernels(pair):
    side, peer = pair
    seen = [("kernel", 3, 40)]
    peer.answer(1)
    peer.answer(2, traced=seen)
    assert side.replay(7, Stage.TIME).times.device_ns == 5
    result, kernels = side.trace(Stage.VERIFY)
    assert (result.claim, kernels) == (CLAIM, seen)
    kind, sequence, payload, _ = peer.channel.receive_with_descriptors()
    assert (kind, sequence, unpack_replay(payload)) == (FrameKind.REPLAY, 1, 7)
    assert peer.read()[:2] == (FrameKind.TRACE, 2)


@pytest.mark.parametrize("sequence", [1, 3], ids=["another call's", "no call's"])
def test_kernels_of_a_call_that_was_not_traced_are_a_violation(sequence, pair):
    side, peer = pair
    peer.answer(1)
    call(side)
    peer.channel.send(FrameKind.DONE, 2, pack_done(5))
    peer.channel.send(FrameKind.TRACED, sequence, pack_traced([]))
    with pytest.raises(SessionEnded, match="TRACED for a call that was not asked for"):
        side.trace(Stage.VERIFY)


def test_contestants_get_ready_at_the_same_time(pair):
    side, peer = pair
    steps = [
        (side.start_open, side.finish_open, FrameKind.OPEN),
        (lambda: side.start_load({}), side.finish_load, FrameKind.LOAD),
        (lambda: side.start_construct(reference(), 0), side.finish_construct, FrameKind.MODEL),
    ]
    for begin, finish, kind in steps:
        begin()  # returns although there is no answer
        order = peer.read()
        assert order[0] is kind
        for fd in order[2]:
            os.close(fd)
        peer.ready()
        finish()


# --- how long it waits -----------------------------------------------------------------------------------------------


def patience(side):
    """Return how long the client would wait for its next call, seconds."""
    waits = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(side, "_run", lambda _kind, _stage, seconds, _order=b"": waits.append(seconds))
        side.replay(0, Stage.TIME)
    return waits[0]


def constructed(side, peer, *, compiles):
    side.contestant = replace(side.contestant, may_compile=compiles)
    peer.ready()
    side.construct(reference(), 0)
    os.close(peer.read()[2][0])


def test_only_a_first_call_that_compiles_gets_the_time_for_it(pair):
    side, peer = pair
    side._timeouts = JudgeTimeouts(load_s=0.2, first_call_s=100, call_s=50)
    constructed(side, peer, compiles=True)
    side.limit_calls(2)
    assert patience(side) == 100
    peer.answer(1)
    call(side)
    assert peer.read()[0] is FrameKind.CALL
    assert patience(side) == pytest.approx(2, abs=1)
    constructed(side, peer, compiles=False)
    side.limit_calls(2)
    assert patience(side) == FIRST_CALL_S


@pytest.mark.parametrize(("limit", "waited"), [(2, 2), (80, 50)])
def test_a_limit_only_ever_shortens(limit, waited, pair):
    side, peer = pair
    side._timeouts = JudgeTimeouts(load_s=0.2, first_call_s=100, call_s=50)
    constructed(side, peer, compiles=False)
    peer.answer(1)
    call(side)
    side.limit_calls(limit)
    assert patience(side) == pytest.approx(waited, abs=1)


@pytest.mark.parametrize(("compiles", "waited"), [(False, 3), (True, 100)], ids=["built", "may compile"])
def test_only_what_may_compile_gets_the_time_for_it_to_get_ready(compiles, waited, pair):
    side, peer = pair
    side._timeouts = JudgeTimeouts(connect_s=7, load_s=100)
    side.contestant = replace(side.contestant, may_compile=compiles)
    waits = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(side, "_wait_at_most", waits.append)
        for step in (side.open, lambda: side.limit_loading(3), lambda: load(side)):
            peer.ready()
            step()
    assert waits == [7, 7, waited, waited]


def test_a_tracer_is_given_time_to_start(pair):
    side, peer = pair
    peer.answer(1, traced=[])
    side.trace(Stage.VERIFY)
    assert side._waits_s == TRACER_S + TIMEOUTS.call_s


def test_a_new_model_is_not_held_to_the_limit_of_the_one_before(pair):
    side, peer = pair
    constructed(side, peer, compiles=False)
    side.limit_calls(0.01)
    constructed(side, peer, compiles=False)
    assert patience(side) == TIMEOUTS.call_s


def test_awaited_stays_true_if_wait_is_interrupted(pair):
    side, peer = pair

    class BrokenOff(BaseException):
        pass

    def break_off():
        raise BrokenOff

    assert side.awaited is False
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(side._channel, "receive", break_off)
        with pytest.raises(BrokenOff):
            call(side)
    assert side.awaited is True
    peer.answer(2)
    call(side)
    assert side.awaited is False


def test_a_contestant_has_gone_when_its_end_is_closed(pair):
    side, peer = pair
    side.close()
    assert not side.gone(0.01)
    peer.ready()
    peer.socket.close()
    assert side.gone(10)


def test_gone_ignores_frames_after_the_deadline(pair):
    side, peer = pair

    def talk():
        for _ in range(50):
            peer.ready()
            time.sleep(0.01)
        peer.socket.close()

    talking = threading.Thread(target=talk)
    talking.start()
    try:
        assert not side.gone(0.1), "it was there until long after"
    finally:
        talking.join()


def test_who_reads_no_goodbye_is_not_waited_for(pair):
    side, _ = pair
    ours = side._channel._socket
    ours.setblocking(False)
    with suppress(BlockingIOError):
        while True:
            ours.send(bytes(1 << 16))
    side._wait_at_most(100)
    side.close()
    assert ours.gettimeout() < 1


def test_a_compilers_words_are_cut_to_what_is_of_use(pair):
    side, peer = pair
    text = '[1/2] nvcc -O3 x.cu\nx.cu(3): error: identifier "y" is undefined\n1 error detected in the compilation\n'
    peer.channel.send(FrameKind.FAILED, 0, pack_failed(CallFailure.COMPILE, text))
    with pytest.raises(SessionEnded) as raised:
        load(side)
    assert raised.value.evidence.message == 'x.cu(3): error: identifier "y" is undefined'
    assert "nvcc -O3" not in raised.value.evidence.log


def frame(kind, sequence=1, payload=b""):
    return HEADER.pack(MAGIC, kind, 0, len(payload), sequence) + payload


DONE, OUTPUTS = frame(FrameKind.DONE, 1, pack_done(5)), pack_outputs(CLAIM)
DISHONEST = {
    "no frame at all": b"x" * HEADER.size,
    "a frame of the judge's": frame(FrameKind.CALL),
    "an answer to another question": frame(FrameKind.READY),
    "an answer to a call that was not made": frame(FrameKind.DONE, 2, pack_done(5)),
    "no number for a time": frame(FrameKind.DONE, 1, b"soon") + frame(FrameKind.OUTPUTS, 1, OUTPUTS),
    "a time beyond measure": frame(FrameKind.DONE, 1, pack_done(2**63)) + frame(FrameKind.OUTPUTS, 1, OUTPUTS),
    "a failure without a kind": frame(FrameKind.FAILED, 0, b""),
    "the outputs of another call": DONE + frame(FrameKind.OUTPUTS, 2, OUTPUTS),
    "outputs before the time": frame(FrameKind.OUTPUTS, 1, OUTPUTS),
    "malformed outputs": DONE + frame(FrameKind.OUTPUTS, 1, OUTPUTS + b"x"),
    "more than may be sent": HEADER.pack(MAGIC, FrameKind.DONE, 0, MAX_FROM_WORKER + 1, 1),
    "descriptors": HEADER.pack(MAGIC, FrameKind.DONE, 1, 8, 1) + pack_done(5),
}


@pytest.mark.parametrize("pair", [CANDIDATE, EAGER, LIBRARY], indirect=True, ids=lambda c: c.name)
@pytest.mark.parametrize("name", DISHONEST)
def test_what_no_honest_worker_sends_is_a_violation(name, pair):
    ended = ended_by(DISHONEST[name], call, pair)
    # The baseline runs the problem's code, so the problem is blamed for its frames.
    expected = Status.PROBLEM_ERROR if pair[0].role is Role.BASELINE else Status.PROTOCOL_VIOLATION
    assert (ended.status, ended.stage) == (expected, Stage.VERIFY)
    assert ended.evidence.message


def ended_by(frames, ask, pair):
    """Return how the session ends if the worker sends these frames."""
    side, peer = pair
    peer.socket.sendall(frames)
    with pytest.raises(SessionEnded) as raised:
        ask(side)
    return raised.value


BEGUN, ENDED = frame(FrameKind.BEGUN, 1, pack_begun(5)), frame(FrameKind.DONE)
DISHONEST_IN_BATCHES = {
    "an end before the calls begin": ENDED + BEGUN,
    "calls of another batch begin": frame(FrameKind.BEGUN, 2, pack_begun(5)),
    "calls begin twice": BEGUN + BEGUN,
    "no number for the time of switching": frame(FrameKind.BEGUN) + ENDED + frame(FrameKind.OUTPUTS, 1, OUTPUTS),
    "outputs before the end": BEGUN + frame(FrameKind.OUTPUTS, 1, OUTPUTS),
    "malformed outputs": BEGUN + ENDED + frame(FrameKind.OUTPUTS, 1, OUTPUTS + b"x"),
}


@pytest.mark.parametrize("name", DISHONEST_IN_BATCHES)
def test_what_no_honest_worker_sends_in_a_batch_is_a_violation(name, pair):
    ended = ended_by(DISHONEST_IN_BATCHES[name], call_batch, pair)
    assert (ended.status, ended.stage) == (Status.PROTOCOL_VIOLATION, Stage.TIME)


def test_times_of_a_batch_are_those_of_the_judges_clock(pair):
    side, peer = pair
    peer.socket.sendall(BEGUN + ENDED + frame(FrameKind.OUTPUTS, 1, OUTPUTS))
    claim, places, times = call_batch(side)
    assert (claim, places) == (CLAIM, ())
    assert times.device_ns == 0
    assert times.delivered_ns > times.least_ns - 5 > 0
    assert min(times.wall_ns, times.handover_ns) > 0
    kind, sequence, descriptors = peer.read()
    assert (kind, sequence, descriptors) == (FrameKind.CALLS, 1, [])


def call_batch(side):
    return side.call_batch(lambda: None, (0,), 1, lambda: None)


FAILURES = {
    CallFailure.COMPILE: Status.COMPILE_ERROR,
    CallFailure.LOAD: Status.LOAD_ERROR,
    CallFailure.RUNTIME: Status.RUNTIME_ERROR,
    CallFailure.MEMORY: Status.OUT_OF_MEMORY,
}


@pytest.mark.parametrize("failure", CallFailure)
def test_a_failure_that_is_told_has_the_status_of_its_kind(failure, pair):
    side, peer = pair
    text = "Traceback\n" + "x" * MAX_LOG + "\nValueError: no idea\n"
    peer.channel.send(FrameKind.FAILED, 0, pack_failed(failure, text))
    with pytest.raises(SessionEnded) as raised:
        load(side)
    assert (raised.value.status, raised.value.stage) == (FAILURES[failure], Stage.LOAD)
    assert raised.value.evidence.message == "ValueError: no idea"
    assert raised.value.evidence.log == text[-MAX_LOG:]


LACKS = "Traceback\nModuleNotFoundError: No module named 'tilelang'\n"


@pytest.fixture
def importing(monkeypatch):
    """A candidate's client, and its peer, whose source imports TileLang, which is not installed here."""
    monkeypatch.setitem(sys.modules, "tilelang", None)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        side = WorkerClient(
            replace(CANDIDATE, imports=("torch", "tilelang")), Channel(ours, MAX_FROM_WORKER), "cpu", TIMEOUTS
        )
        yield side, Peer(theirs)
        side.close()


def construct(side):
    side.construct(reference(), 0)


def failed_by(peer, failure, text, ask):
    peer.channel.send(FrameKind.FAILED, 0, pack_failed(failure, text))
    with pytest.raises(SessionEnded) as raised:
        ask()
    return raised.value


ASKED = {
    "load": (load, CallFailure.LOAD, Stage.LOAD),
    "construct": (construct, CallFailure.LOAD, Stage.LOAD),
    "first call": (call, CallFailure.RUNTIME, Stage.VERIFY),
}


@pytest.mark.parametrize("asked", ASKED)
def test_failed_missing_kernel_package_is_unsupported(asked, importing):
    side, peer = importing
    ask, failure, stage = ASKED[asked]
    found = failed_by(peer, failure, LACKS, lambda: ask(side))
    assert (found.status, found.stage) == (Status.UNSUPPORTED, stage)
    assert found.evidence.message == (
        "the candidate needs the package 'tilelang', which is not installed here; run it with a toolchain that has it"
    )
    assert found.evidence.log == LACKS


def test_who_has_answered_has_what_it_needs(importing):
    side, peer = importing
    peer.answer(1)
    call(side)
    assert failed_by(peer, CallFailure.RUNTIME, LACKS, lambda: call(side)).status is Status.RUNTIME_ERROR
    assert failed_by(peer, CallFailure.LOAD, LACKS, lambda: construct(side)).status is Status.LOAD_ERROR


@pytest.mark.parametrize("failure", [CallFailure.COMPILE, CallFailure.MEMORY])
def test_what_is_no_import_in_vain_keeps_its_status(failure, importing):
    side, peer = importing
    assert failed_by(peer, failure, LACKS, lambda: load(side)).status is FAILURES[failure]


def test_a_package_that_the_source_does_not_import_is_not_lacked(pair, monkeypatch):
    monkeypatch.setitem(sys.modules, "tilelang", None)
    side, peer = pair
    found = failed_by(peer, CallFailure.LOAD, LACKS, lambda: load(side))
    assert (found.status, found.evidence.message) == (Status.LOAD_ERROR, LACKS.splitlines()[-1])


@pytest.mark.parametrize("pair", [EAGER], indirect=True)
def test_a_failure_of_the_baseline_is_the_problems(pair):
    found = failed_by(pair[1], CallFailure.RUNTIME, "ValueError: no", lambda: load(pair[0]))
    assert found.status is Status.PROBLEM_ERROR
    assert found.evidence.message == "the reference as baseline: runtime_error: ValueError: no"


@pytest.mark.parametrize("pair", [EAGER], indirect=True)
def test_baseline_out_of_memory_does_not_fit(pair):
    found = failed_by(pair[1], CallFailure.MEMORY, "MemoryError", lambda: load(pair[0]))
    assert found.status is Status.DOES_NOT_FIT
    assert found.evidence.message == "the reference as baseline: out_of_memory: MemoryError"


def opened_by(answer, pair):
    side, peer = pair
    answer(peer)
    with pytest.raises(SessionEnded) as raised:
        side.open()
    assert raised.value.stage is Stage.START
    return raised.value


@pytest.mark.parametrize("pair", [CANDIDATE, EAGER, LIBRARY], indirect=True, ids=lambda c: c.name)
def test_failure_before_import_is_infra_error(pair):
    no_memory = pack_failed(CallFailure.MEMORY, "torch.OutOfMemoryError: CUDA out of memory\n")
    found = opened_by(lambda peer: peer.channel.send(FrameKind.FAILED, 0, no_memory), pair)
    assert found.status is Status.INFRA_ERROR
    name = pair[0].name
    assert found.evidence.message == f"the worker of {name}: out_of_memory: torch.OutOfMemoryError: CUDA out of memory"
    assert opened_by(lambda _peer: None, pair).status is Status.INFRA_ERROR, "a machine that is too slow"


@pytest.mark.parametrize("pair", [CANDIDATE, EAGER, LIBRARY], indirect=True, ids=lambda c: c.name)
def test_crash_before_import_is_infra_error(pair):
    found = opened_by(lambda peer: peer.socket.close(), pair)
    assert found.status is Status.INFRA_ERROR
    assert found.evidence.message == f"the worker of {pair[0].name}: crashed: the process ended without answering"


@pytest.mark.parametrize("unread", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("ask", [load, call], ids=["load", "call"])
def test_a_worker_that_ended_has_crashed(ask, unread, pair):
    side, peer = pair
    if unread:
        side._channel.send(FrameKind.CALL)
    peer.socket.close()
    with pytest.raises(SessionEnded, match="ended without answering") as raised:
        ask(side)
    assert raised.value.status is Status.CRASHED


@pytest.mark.parametrize("answered", [b"", DONE[:5], DONE], ids=["nothing", "half a frame", "half an answer"])
def test_a_worker_that_does_not_answer_is_timed_out(answered, pair):
    side, peer = pair
    peer.socket.sendall(answered)
    with pytest.raises(SessionEnded, match=r"no answer within 0\.1 s") as raised:
        call(side)
    assert raised.value.status is Status.TIMEOUT


def test_calls_after_the_first_have_a_limit_of_their_own(pair):
    side, peer = pair
    peer.answer(1)
    call(side)
    with pytest.raises(SessionEnded, match=r"no answer within 0\.1 s"):
        call(side)
    assert side._channel._socket.gettimeout() == TIMEOUTS.call_s


def test_order_to_worker_that_only_answers_times_out(pair):
    side, peer = pair
    with pytest.raises(SessionEnded, match="does not read") as raised:
        call_until_it_raises(side, peer)
    assert raised.value.status is Status.TIMEOUT


def call_until_it_raises(side, peer):
    for sequence in range(1, 1_000_000):
        peer.answer(sequence)
        call(side)


def test_order_to_worker_that_does_not_read_times_out(pair):
    side, _ = pair
    with pytest.raises(SessionEnded, match="does not read") as raised:
        side.load({"x" * (8 << 20): 1})
    assert (raised.value.status, raised.value.stage) == (Status.TIMEOUT, Stage.LOAD)


# --- memory lent -----------------------------------------------------------------------------------------------------


def descriptors():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


def lent(peer):
    """Return the order, and arenas over the descriptors that came with it."""
    kind, order, (inputs, outputs) = peer.read()
    assert kind is FrameKind.BUFFERS
    return order, cpu.open_arena(inputs, order["input_bytes"]), cpu.open_arena(outputs, order["output_bytes"])


def seen(specs, arena):
    return [TensorSpec.from_json(spec).view(arena.tensor) for spec in specs]


def test_inputs_lie_in_the_buffer_and_outputs_are_poisoned(pair):
    side, peer = pair
    peer.ready()
    inputs = [torch.arange(6.0).reshape(2, 3).T, 2.5, torch.tensor([True, False])]
    side.deliver(inputs, LIKE)
    order, input_arena, output_arena = lent(peer)
    with closing(input_arena), closing(output_arena):
        given = seen(order["inputs"], input_arena)
        assert [torch.equal(a, b) for a, b in zip(given, inputs[::2], strict=True)] == [True] * 2
        (output,) = seen(order["outputs"], output_arena)
        assert (output.dtype, output.shape) == (torch.float32, (4,))
        assert bool(output.isnan().all())
        peer_sees_poison_again(side, peer, inputs, output)


def peer_sees_poison_again(side, peer, inputs, output):
    side.deliver(inputs, LIKE)
    assert bool(output.isnan().all())
    peer.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        peer.socket.recv(1)  # the same layout needs no new buffers, and no order


def test_call_result_is_out_of_the_workers_reach(pair):
    side, peer = pair
    peer.ready()
    inputs = [torch.zeros(4), torch.ones(4)]
    side.deliver(inputs, LIKE)
    order, input_arena, output_arena = lent(peer)
    with closing(input_arena), closing(output_arena):
        (output,), given = seen(order["outputs"], output_arena), seen(order["inputs"], input_arena)
        output.copy_(torch.arange(4.0))
        given[0][0] = 9
        peer.answer(1)
        result = call(side)
        output.zero_()
        given[0].zero_()
        given[1].zero_()
        assert result.outputs[0].tolist() == [0, 1, 2, 3]
        assert result.inputs[0].tolist() == [9, 0, 0, 0]
        assert [result.inputs[0] is result.sent[0], result.inputs[1] is result.sent[1]] == [False, True]
        assert [tensor.tolist() for tensor in inputs] == [[0] * 4, [1] * 4], "the judge's own inputs are out of reach"


@pytest.mark.parametrize(
    ("pair", "stage", "compared"),
    [
        (CANDIDATE, Stage.TIME, True),
        (LIBRARY, Stage.TIME, True),
        (EAGER, Stage.TIME, False),
        (EAGER, Stage.VERIFY, True),
    ],
    indirect=["pair"],
)
def test_inputs_of_timed_baseline_calls_are_not_compared(pair, stage, compared):
    side, peer = pair
    peer.ready()
    side.deliver([torch.zeros(4)], LIKE)
    order, input_arena, output_arena = lent(peer)
    with closing(input_arena), closing(output_arena):
        seen(order["inputs"], input_arena)[0][0] = 9
        input_arena.tensor[-1] += 1
        peer.answer(1)
        result = side.call(stage=stage)
        assert (result.inputs[0] is not result.sent[0]) is compared
        assert bool(result.damage) is compared


@pytest.mark.parametrize("device_ns", [10**9, 2**63 - 1])
def test_claim_far_beyond_the_wall_is_a_protocol_violation(device_ns, pair):
    side, peer = pair
    peer.answer(1, device_ns=device_ns)
    with pytest.raises(SessionEnded, match=f"claims {device_ns} ns for a call that took") as ended:
        call(side)
    assert ended.value.status is Status.PROTOCOL_VIOLATION


def test_no_expected_value_is_ever_lent(pair):
    side, peer = pair
    peer.ready()
    side.deliver([torch.zeros(4)], [torch.full((4,), 7.0)])
    order, *arenas = lent(peer)
    for arena in arenas:
        with closing(arena):
            assert 7.0 not in arena.tensor.view(torch.float32).tolist()
            assert 7.0 not in arena.tensor.view(torch.float64).tolist()
    assert "7.0" not in json.dumps(order)


@pytest.mark.parametrize("which", [0, 1], ids=["input", "output"])
def test_what_a_worker_writes_around_its_buffers_is_found(which, pair):
    side, peer = pair
    peer.ready()
    side.deliver([torch.zeros(4)], LIKE)
    _, *arenas = lent(peer)
    for sequence in (1, 2, 3):
        peer.answer(sequence)
    assert call(side).damage == ""
    arenas[which].tensor[-1] += 1
    assert f"around the {['input', 'output'][which]}s" in call(side).damage
    side.deliver([torch.zeros(4)], LIKE)
    assert call(side).damage == "", "each delivery writes them anew"
    for arena in arenas:
        arena.close()


LAYOUTS = {
    "shape": [torch.zeros(5), 1],
    "dtype": [torch.zeros(4, dtype=torch.float16), 1],
    "a number beside": [torch.zeros(4), 2],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_deliver_other_layout_lends_new_buffers(name, pair):
    side, peer = pair
    peer.ready()
    peer.ready()
    side.deliver([torch.zeros(4), 1], LIKE)
    before = descriptors()
    side.deliver(LAYOUTS[name], LIKE)
    assert descriptors() == before
    for _ in range(2):
        kind, _, fds = peer.read()
        assert kind is FrameKind.BUFFERS
        for fd in fds:
            os.close(fd)


def test_other_memory_is_lent_once_when_asked_for(pair):
    side, peer = pair
    peer.ready()
    peer.ready()
    side.deliver([torch.zeros(4)], LIKE)
    count = len(descriptors())
    side.lend_elsewhere()
    side.deliver([torch.ones(4)], LIKE)
    assert len(descriptors()) == count, "the old one went"
    files = set()
    for _ in range(2):
        _, *arenas = lent(peer)
        for arena in arenas:
            files.add(os.fstat(arena.descriptor).st_ino)
            arena.close()
    assert len(files) == 4
    side.deliver([torch.ones(4)], LIKE)
    peer.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        peer.socket.recv(1)


def test_lend_elsewhere_frees_old_buffers_on_failure(pair):
    side, peer = pair
    peer.ready()
    side.deliver([torch.zeros(4)], LIKE)
    before = descriptors()
    side.lend_elsewhere()
    with pytest.raises(SessionEnded, match="no answer"):
        side.deliver([torch.zeros(4)], LIKE)
    side.close()
    assert len(descriptors()) == len(before) - 4, "two files, each open and mapped"


def test_a_side_that_was_closed_keeps_nothing_and_said_goodbye(pair):
    side, peer = pair
    before = descriptors()
    peer.ready()
    side.deliver([torch.zeros(4)], LIKE)
    for fd in peer.read()[2]:
        os.close(fd)
    side.close()
    assert descriptors() == before
    assert peer.read()[0] is FrameKind.BYE


def reference(init=(), state=None):
    return SimpleNamespace(init_arguments=list(init), state=state or {}, dtype=Dtype.FP32)


def test_parameters_cross_and_their_memory_goes_again(pair):
    side, peer = pair
    before = descriptors()
    peer.ready()
    side.construct(reference([3, torch.ones(2)], {"weight": torch.arange(4.0)}), flush_bytes=16)
    assert descriptors() == before
    kind, order, (fd,) = peer.read()
    assert kind is FrameKind.MODEL
    assert (order["dtype"], order["flush_bytes"], order["state"]) == ("fp32", 16, {"weight": 1})
    with closing(cpu.open_arena(fd, order["nbytes"])) as arena:
        assert [t.tolist() for t in seen(order["tensors"], arena)] == [[1, 1], [0, 1, 2, 3]]


def test_the_memory_of_parameters_goes_also_when_the_model_fails(pair):
    side, peer = pair
    before = descriptors()
    peer.channel.send(FrameKind.FAILED, 0, pack_failed(CallFailure.LOAD, "ValueError: no"))
    with pytest.raises(SessionEnded, match="ValueError: no"):
        side.construct(reference(), flush_bytes=0)
    assert descriptors() == before
    os.close(peer.read()[2][0])


def test_what_cannot_be_handed_over_is_the_problems_fault(pair):
    side, _ = pair
    with pytest.raises(SessionEnded) as raised:
        side.deliver([torch.zeros(4), {1, 2}], LIKE)
    assert raised.value.status is Status.PROBLEM_ERROR
    assert raised.value.evidence.message.startswith("get_inputs(): an argument of type set")
    with pytest.raises(SessionEnded, match=r"get_init_inputs\(\): an argument of type builtin"):
        side.construct(reference([print]), flush_bytes=0)


LAST_LINES = {
    "Traceback\n  File x\nValueError: no\n": "ValueError: no",
    "Traceback\ntorch.OutOfMemoryError: tried\nSee the documentation of it.\n": "torch.OutOfMemoryError: tried",
    "KeyboardInterrupt\n": "KeyboardInterrupt",
    "killed\nat once\n\n": "at once",
    "": "failed without a message",
    "ValueError: " + "x" * 1000: "ValueError: " + "x" * 488,
}


@pytest.mark.parametrize("text", LAST_LINES, ids=range(len(LAST_LINES)))
def test_last_line_is_the_one_that_names_the_exception(text):
    assert _last_line(text) == LAST_LINES[text]
