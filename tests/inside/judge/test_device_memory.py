"""Memory of a simulated device: whose fault it is if there is too little, and each contestant's peak."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import sys
import threading
import weakref
from contextlib import contextmanager
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge import bits, controls, verification
from kernel_matrix.inside.judge.device_memory import CAP_SLACK_BYTES, SessionMemory
from kernel_matrix.inside.judge.memory_blame import MARGIN_BYTES, Shortage
from kernel_matrix.inside.judge.pause import CandidatePause
from kernel_matrix.inside.judge.reference import ReferenceModel
from kernel_matrix.inside.judge.session_ended import SessionEnded
from kernel_matrix.inside.judge.verification import Verifier
from kernel_matrix.inside.judge.worker_client import WorkerClient
from kernel_matrix.inside.judge.workload_runner import WorkloadRunner
from kernel_matrix.inside.platform import load_platform
from kernel_matrix.model.enums import Fault, Regime, Role, Status, fault_of
from tests.inside.device import DEVICE, GIB, NAME, SimulatedDevice, install
from tests.inside.runners import WorkingPause, opened_runner
from tests.inside.sessions import QUICK, make_job

pytestmark = pytest.mark.torch

USES = """
import torch
from tests.inside.device import DEVICE
class {entry}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        DEVICE.take({keeps})
    def forward(self, x):
        {first}
        with DEVICE.use({uses}):
            return torch.softmax(x, -1)
"""
INPUTS = """
def get_inputs():
    return [torch.randn(8, 64)]
def get_init_inputs():
    return []
"""


def source(uses, keeps=0.0, first="pass", entry="ModelNew"):
    return USES.format(entry=entry, keeps=keeps, uses=uses, first=first)


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """Return the runner, the report and the end of a workload whose contestants use memory of the device."""
    for name in ("candidate", "eager", "kernel_matrix_problem"):
        monkeypatch.setitem(sys.modules, name, None)  # removed afterwards
    install(monkeypatch)

    def run(candidate, *, reference=1.0, problem="", total=16, judge=0.0, pause=None, cap=None, **changes):
        DEVICE.reset(int(total * GIB))
        (tmp_path / "problem.py").write_text(problem or source(reference, entry="Model") + INPUTS)
        (tmp_path / "candidate.py").write_text(candidate)
        cap_bytes = None if cap is None else int(cap * GIB)
        changes = {"protocol": replace(QUICK, trials=1), **changes}
        job = make_job(device=NAME, device_memory_bytes=cap_bytes, **changes)
        with opened_runner(job, tmp_path, pause or WorkingPause(None)) as runner:
            DEVICE.take(judge)
            report, ended = runner.run(job.workloads[0])
        return runner, report, ended

    yield run
    load_platform.cache_clear()


def test_report_has_peaks_of_both_sides_and_their_claims(judged):
    _, report, ended = judged(source(0.5, keeps=2.0))
    assert ended is None
    assert report.status is Status.PASSED
    peaks = {name: peak / GIB for name, peak in report.memory_bytes.items()}
    assert peaks == {"candidate": pytest.approx(2.5, rel=0.01), "eager": pytest.approx(1.0, rel=0.01)}
    assert report.needed_memory_bytes == pytest.approx(3 * GIB, rel=0.01)
    assert report.claimed_memory_bytes == {"candidate": 0.5 * GIB, "eager": GIB}


def test_peak_includes_memory_taken_between_turns(judged):
    _, report, _ = judged("from tests.inside.device import DEVICE\nDEVICE.take(2.0)\n" + source(0.5))
    assert report.memory_bytes["candidate"] == pytest.approx(2 * GIB, rel=0.01)  # UNEXPLAINED_BYTES less


def test_claim_that_no_device_has_is_a_violation(judged):
    lies = """
import threading
from kernel_matrix.inside.platform import load_platform
from tests.inside.device import NAME
here = threading.get_ident()
load_platform(NAME).take_peak = lambda: 1 << 60 if threading.get_ident() == here else 0
"""
    _, _, ended = judged(lies + source(0.5))
    assert ended.status is Status.PROTOCOL_VIOLATION


def test_candidate_larger_than_device_is_its_own_fault(judged):
    _, _, ended = judged(source(15.5))
    assert ended.status is Status.OUT_OF_MEMORY
    assert "Tried to allocate 15.50 GiB" in ended.evidence.message
    assert "the device has 16.00 GiB" in ended.evidence.message


def test_candidate_without_the_references_room_fits_not(judged):
    """The judge has so much that a second process with the reference's use does not fit."""
    _, _, ended = judged(source(2.0, first="DEVICE.take(2.5)"), reference=2.0, judge=11.0)
    assert ended.status is Status.DOES_NOT_FIT, ended.evidence
    assert fault_of(ended.status) is Fault.UNSUPPORTED
    assert "held by the judge 11.00 GiB" in ended.evidence.message


def test_candidate_that_only_claims_a_shortage_is_blamed(judged):
    _, _, ended = judged(source(1.0, first="raise torch.OutOfMemoryError('CUDA out of memory')"))
    assert ended.status is Status.OUT_OF_MEMORY


def test_claimed_shortage_that_was_none_is_blamed(judged):
    """There is less than on an empty device, so it is asked again, and then it answers without taking much."""
    lies = "globals().setdefault('asked', []).append(1)\n        if len(asked) == 1: raise MemoryError"
    _, _, ended = judged(source(1.0, first=lies), judge=6.0)
    assert ended.status is Status.OUT_OF_MEMORY, ended.evidence


def test_candidate_that_an_empty_device_fits_is_excused(judged, monkeypatch):
    """It needs more than the judge has left it, and less than an empty device has."""
    monkeypatch.setattr(Verifier, "forget_reference", lambda _self: DEVICE.give(3.0))
    runner, _, ended = judged(source(11.5), judge=3.0)
    assert ended.status is Status.DOES_NOT_FIT, ended.evidence
    assert "needs 11.50 GiB" in ended.evidence.message
    assert runner.memory.peak("candidate") == pytest.approx(11.5 * GIB, rel=0.01)


def test_shortage_without_a_pause_stays_the_candidates(judged):
    """Without a pause it could have taken memory in the baseline's turn, which then counts as the baseline's."""
    _, _, ended = judged(source(2.0, first="DEVICE.take(2.5)"), reference=2.0, judge=11.0, pause=CandidatePause(None))
    assert ended.status is Status.OUT_OF_MEMORY


def test_candidate_that_keeps_memory_is_blamed_for_others(judged):
    _, _, ended = judged(source(1.0, keeps=12.0), reference=4.0)
    assert ended.status is Status.OUT_OF_MEMORY, ended.evidence
    assert "keeps memory between its calls" in ended.evidence.message


def test_memory_that_others_lack_fits_not(judged):
    _, _, ended = judged(source(1.0), reference=9.0)
    assert ended.status is Status.DOES_NOT_FIT, ended.evidence
    assert "too little memory for this cell" in ended.evidence.message


@pytest.mark.parametrize("phase", ["before", "after"])
def test_judge_that_lacks_memory_itself_fits_not(phase, judged, monkeypatch):
    verify = Verifier.verify

    def lacking(verifier, reference, now, trials):
        if now == phase:
            raise torch.OutOfMemoryError("CUDA out of memory")
        verify(verifier, reference, now, trials)

    monkeypatch.setattr(Verifier, "verify", lacking)
    _, report, ended = judged(source(1.0))
    assert ended.status is Status.DOES_NOT_FIT
    assert "the judge lacked memory: OutOfMemoryError: CUDA out of memory" in ended.evidence.message
    assert bool(report.blocks) is (phase == "after")
    assert report.status is Status.DOES_NOT_FIT


def test_other_errors_of_the_judge_are_not_memory(judged, monkeypatch):
    def wrong(*_):
        raise ValueError("a defect")

    monkeypatch.setattr(Verifier, "verify", wrong)
    with pytest.raises(ValueError, match="a defect"):
        judged(source(1.0))


def test_large_calls_leave_candidate_nothing_between_them(judged, monkeypatch):
    kept = []
    park = WorkerClient.park

    def watched(client):
        park(client)
        kept.append((client.name, client.is_lent))

    monkeypatch.setattr(verification, "LARGE", 0)
    monkeypatch.setattr(WorkerClient, "park", watched)
    _, report, ended = judged(source(1.0))
    assert ended is None
    verified = sum(trial.phase != "timed" for trial in report.trials) + 1  # the first call is made twice
    assert kept.count(("candidate", False)) >= verified


def test_short_memory_holds_no_expected_output_in_calls(judged, monkeypatch):
    made, kept = [], []
    call, expect = WorkerClient.call, ReferenceModel.expect

    def watched(client, *, stage):
        kept.extend(output for output in made if output() is not None)
        return call(client, stage=stage)

    def watched_expect(reference, inputs):
        expected = expect(reference, inputs)
        made.append(weakref.ref(expected))
        return expected

    monkeypatch.setattr(verification, "EXPECTED_BESIDE", 1 << 40)
    monkeypatch.setattr(WorkerClient, "call", watched)
    monkeypatch.setattr(ReferenceModel, "expect", watched_expect)
    _, report, ended = judged(source(1.0))
    assert ended is None
    assert any(trial.phase == "after" for trial in report.trials)
    assert made
    assert not kept


# ---- memory in which the judge keeps next to nothing during a call


@pytest.fixture
def frugal(monkeypatch):
    """All calls are of the kind for which memory is short."""
    for beside in ("EXPECTED_BESIDE", "OWN_BESIDE"):
        monkeypatch.setattr(verification, beside, 1 << 40)


@pytest.mark.usefixtures("frugal")
def test_frugal_calls_leave_no_tensor_with_the_judge(judged, monkeypatch):
    made, kept, rooms = [], [], []
    draw, room, asked = ReferenceModel.draw, WorkerClient._room_for_outputs, WorkerClient._asked

    def watched_draw(*arguments, **options):
        inputs = draw(*arguments, **options)
        made.extend(map(weakref.ref, inputs))
        return inputs

    def watched_room(client):
        rooms.append(room(client))
        return rooms[-1]

    def watched(*arguments):
        kept.extend(one for one in made if one() is not None)
        return asked(*arguments)

    monkeypatch.setattr(ReferenceModel, "draw", watched_draw)
    monkeypatch.setattr(WorkerClient, "_room_for_outputs", watched_room)
    monkeypatch.setattr(WorkerClient, "_asked", watched)
    _, report, ended = judged(source(1.0))
    assert ended is None
    assert {block.role for block in report.blocks} == {Role.CANDIDATE, Role.BASELINE}
    assert any(trial.phase == "after" for trial in report.trials)
    assert made
    assert not kept
    assert rooms
    assert not any(rooms)


@pytest.mark.usefixtures("frugal")
def test_frugal_calls_have_either_inputs_or_outputs_lent(judged, monkeypatch):
    order = []

    def watch(where, name, word):
        function = getattr(where, name)

        def watched(*arguments, **options):
            order.append(word(*arguments))
            return function(*arguments, **options)

        monkeypatch.setattr(where, name, watched)

    watch(bits, "fingerprint", lambda *_: "hashed")
    watch(WorkerClient, "_lend", lambda _client, calls, outputs: f"{len(calls[0].tensors)} {len(outputs)} lent")
    watch(WorkerClient, "_asked", lambda *_: "called")
    watch(WorkerClient, "_release", lambda *_: "given back")
    watch(WorkerClient, "_copied", lambda *_: "taken")
    assert judged(source(1.0))[2] is None
    call = ["hashed", "1 0 lent", "called", "hashed", "given back", "0 1 lent", "given back", "taken"]
    taken = [place for place, what in enumerate(order, 1) if what == "taken"]
    assert taken
    assert all(order[place - len(call) : place] == call for place in taken)


FOUND = {
    "writes to its input": ("x[0, 0] += 1", Status.INPUT_MODIFIED),
    "writes around its input": (
        "torch.as_strided(x, (1,), (1,), x.storage_offset() - 1).fill_(3)",
        Status.OUT_OF_BOUNDS,
    ),
    "computes something else": ("x = x + 1e-2 * torch.arange(64)", Status.INCORRECT_VALUES),
}


@pytest.mark.usefixtures("frugal")
@pytest.mark.parametrize("phase", ["verification", "timed"])
@pytest.mark.parametrize("name", FOUND)
def test_frugal_calls_find_a_candidate_that(name, phase, judged):
    cheat, status = FOUND[name]
    # The timed calls come after six: a first trial that is made twice, one each of two modes, and warm-up.
    late = "global calls\n        calls += 1\n        if calls > 8: "
    first = late + cheat if phase == "timed" else cheat
    protocol = replace(QUICK, trials=1, check_share=1.0)
    _, report, ended = judged("calls = 0\n" + source(1.0, first=first), protocol=protocol)
    assert ended is not None, "it passed"
    assert ended.status is status
    assert bool(report.warmup_calls) is (phase == "timed")


CHANGING = """
drawn = 0
def get_inputs():
    global drawn
    drawn += 1
    return [torch.randn(8, 64) + 1e-3 * drawn]
def get_init_inputs():
    return []
"""


@pytest.mark.usefixtures("frugal")
def test_frugal_calls_need_inputs_that_can_be_drawn_again(judged, monkeypatch):
    seen = []
    deliver = WorkerClient.deliver_drawn

    def watched(client, inputs, like, *, frugal):
        seen.append(frugal)
        deliver(client, inputs, like, frugal=frugal)

    monkeypatch.setattr(WorkerClient, "deliver_drawn", watched)
    assert judged(source(1.0))[2] is None
    assert all(seen)
    seen.clear()
    assert judged(source(1.0), problem=source(1.0, entry="Model") + CHANGING)[2] is None
    assert seen
    assert not any(seen)


@pytest.mark.usefixtures("frugal")
@pytest.mark.parametrize("lacks", [False, True])
def test_frugal_controls_refuse_a_reference_that_differs(lacks, judged, monkeypatch):
    if lacks:
        monkeypatch.setattr(controls, "repeats_itself", lambda *_: None)
    problem = source(1.0, first="x = x * torch.rand(8, 1)", entry="Model") + INPUTS
    _, _, ended = judged(source(1.0), problem=problem)
    assert ended.status is Status.INVALID_PROBLEM
    assert ("differs between two runs" in ended.evidence.message) is not lacks
    assert ("the reference fails against itself" in ended.evidence.message) is lacks


@pytest.mark.usefixtures("frugal")
def test_frugal_controls_draw_other_inputs_beside_none(judged, monkeypatch):
    drawn, beside = [], []
    draw = ReferenceModel.draw

    def watched(reference, mode, *purpose, **options):
        if purpose[0] == "another":
            beside.append([place for place, one in drawn if one() is not None])
        inputs = draw(reference, mode, *purpose, **options)
        drawn.extend((purpose, weakref.ref(tensor)) for tensor in inputs)
        return inputs

    monkeypatch.setattr(ReferenceModel, "draw", watched)
    sums = source(1.0, entry="Model").replace("torch.softmax(x, -1)", "(x * x).sum()")
    assert judged(sums.replace("Model", "ModelNew"), problem=sums + INPUTS)[2] is None
    assert beside[0] == []


@pytest.mark.usefixtures("frugal")
def test_frugal_calls_are_cold_ones_only(judged):
    protocol = replace(QUICK, trials=1, regimes=(Regime.COLD, Regime.WARM))
    _, report, ended = judged(source(1.0), protocol=protocol)
    assert ended is None
    assert {block.regime for block in report.blocks} == {Regime.COLD}
    assert "not_replayable" in report.labels


def test_contestants_take_turns_if_both_do_not_fit(judged, monkeypatch):
    """With both caches and the judge's own temporaries there would be 13 GiB in use."""
    _, report, ended = judged(source(4.0), reference=4.0, total=10.5)
    assert ended is None
    assert {block.role for block in report.blocks} == {Role.CANDIDATE, Role.BASELINE}
    monkeypatch.setattr(WorkloadRunner, "_takes_turns", lambda *_: False)
    _, _, ended = judged(source(4.0), reference=4.0, total=10.5)
    assert ended.status is Status.DOES_NOT_FIT


# ---- a cap

UNLIMITED = "from tests.inside.device import DEVICE\nDEVICE.limit_memory(1 << 60)\n"


def test_cap_is_where_an_honest_allocator_ends(judged):
    _, _, ended = judged(source(9.0), total=80, cap=8)
    assert ended.status is Status.OUT_OF_MEMORY
    assert "Tried to allocate 9.00 GiB" in ended.evidence.message
    assert "the device has 8.00 GiB" in ended.evidence.message


def test_cap_that_is_undone_is_measured(judged):
    _, _, ended = judged(UNLIMITED + source(8.0), total=80, cap=8)
    assert ended.status is Status.OUT_OF_MEMORY
    assert "GiB of the device were in use in the candidate's turn" in ended.evidence.message


def test_cap_that_suffices_changes_nothing(judged):
    assert judged(source(1.0), total=80, cap=8)[2] is None


def test_reference_beyond_cap_fits_not(judged):
    _, _, ended = judged(source(1.0), reference=7.5, total=80, cap=8)
    assert ended.status is Status.DOES_NOT_FIT


# ---- the count by itself


@pytest.fixture
def memory(monkeypatch):
    """A count of the simulated device, begun with nothing but contexts in use."""
    install(monkeypatch)
    counted = SessionMemory(load_platform(NAME), 1)
    counted.open()
    yield counted
    load_platform.cache_clear()


def in_thread(function, *arguments):
    thread = threading.Thread(target=function, args=arguments)
    thread.start()
    thread.join()


def use_and_give_back(gib):
    with DEVICE.use(gib):
        pass
    DEVICE.release_memory()


def test_turn_counts_changes_for_the_one_whose_it_is(memory):
    with memory.turn("eager", Role.BASELINE):
        in_thread(DEVICE.take, 2.0)
    in_thread(DEVICE.take, 3.0)
    assert (memory.trusted, memory.candidate) == (2 * GIB, 3 * GIB)
    assert memory.room == DEVICE.total - DEVICE.contexts - 2 * GIB


def test_turn_sees_a_peak_that_is_given_back(memory):
    with memory.turn("candidate", Role.CANDIDATE):
        in_thread(use_and_give_back, 4.0)
    assert memory.peak("candidate") == 4 * GIB
    assert memory.candidate == 0


@pytest.mark.parametrize(("kept", "left"), [(9.0, 0), (2.0, 2 * GIB)])
def test_turn_makes_the_judge_give_back_unused_memory(kept, left, memory):
    with DEVICE.use(kept):
        pass
    with memory.turn("eager", Role.BASELINE):
        assert memory.judge == left


def test_known_peak_makes_the_judge_give_back_memory(memory):
    with memory.turn("eager", Role.BASELINE):
        in_thread(use_and_give_back, 10.0)
    for kept, left in ((5.0, 5 * GIB), (6.0, 0)):
        with DEVICE.use(kept):
            pass
        with memory.making_room("eager"):
            assert memory.judge == left


class TwoDevices:
    """A platform with a device for each of two ranks."""

    def __init__(self):
        self.devices = SimulatedDevice(), SimulatedDevice()
        self._current = threading.local()

    @contextmanager
    def on_device(self, rank):
        self._current.rank = rank
        yield
        self._current.rank = 0

    def __getattr__(self, name):
        return getattr(self.devices[getattr(self._current, "rank", 0)], name)


@pytest.fixture
def two():
    """Two devices, and a count of what both have."""
    platform = TwoDevices()
    counted = SessionMemory(platform, 2)
    counted.open()
    return platform.devices, counted


def test_memory_of_two_ranks_is_the_sum_of_their_devices(two):
    (first, second), memory = two
    with memory.turn("eager", Role.BASELINE):
        in_thread(second.take, 1.0)
    with memory.turn("candidate", Role.CANDIDATE):
        in_thread(first.take, 2.0)
        in_thread(second.take, 4.0)
    assert (memory.capacity, memory.contexts, memory.judge) == (32 * GIB, 2 * GIB, 0)
    assert (memory.trusted, memory.candidate, memory.peak("candidate")) == (GIB, 6 * GIB, 6 * GIB)


def test_room_of_two_ranks_is_that_of_the_fuller_device(two):
    (first, _), memory = two
    first.take(4.0)
    assert memory.judge == 4 * GIB
    assert memory.room == 2 * (16 - 1 - 4) * GIB
    assert memory.judge_and_contexts == 2 * 5 * GIB


def test_cap_holds_on_the_device_of_each_rank():
    platform = TwoDevices()
    memory = SessionMemory(platform, 2, cap=8 * GIB)
    memory.open()
    with pytest.raises(SessionEnded) as ended, memory.turn("candidate", Role.CANDIDATE):
        in_thread(platform.devices[1].take, 7.0 + CAP_SLACK_BYTES / GIB + 0.1)
    assert ended.value.status is Status.OUT_OF_MEMORY


def test_shortage_needs_margin_beyond_reference():
    shortage = Shortage(
        capacity=16 * GIB,
        judge=0,
        others=0,
        contexts=0,
        candidate=0,
        room=8 * GIB,
        reference=4 * GIB,
        given=0,
        empty=12 * GIB,
    )
    assert shortage.needed == 5 * GIB
    assert replace(shortage, reference=GIB).needed == GIB + MARGIN_BYTES
    assert shortage.undecided
    assert shortage.is_own_fault(7 * GIB)
    assert not shortage.is_own_fault(9 * GIB)
    assert shortage.is_own_fault(13 * GIB)
