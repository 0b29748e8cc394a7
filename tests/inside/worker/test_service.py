"""The worker of a candidate: a real one in a thread, called by the judge's own client."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge.reference import DrawnInputs
from kernel_matrix.inside.judge.session_ended import SessionEnded
from kernel_matrix.inside.wire import MAX_DIMENSIONS, OutputAlias, OutputClaim, Structure
from kernel_matrix.inside.worker.meter import Meter
from kernel_matrix.inside.worker.service import Worker, copy_one, copy_state, flatten
from kernel_matrix.model.enums import Dtype, Stage, Status
from kernel_matrix.platforms.cpu import inside as cpu
from tests.inside.sessions import CANDIDATE, EAGER
from tests.inside.workers import side_of

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _forget_the_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "candidate", None)


def parameters(init=(), state=None, dtype=Dtype.FP32):
    """The part of a reference that a model is constructed from."""
    return SimpleNamespace(init_arguments=list(init), state=state or {}, dtype=dtype)


def start(side, init=(), state=None, dtype=Dtype.FP32):
    side.open()
    side.load({})
    side.construct(parameters(init, state, dtype), 0)


def ask(side, inputs, *like):
    """Make one call with outputs like these; return the worker's claim, and the output buffer's content."""
    side.deliver(inputs, like)
    result = side.call(stage=Stage.VERIFY)
    return result.claim, result.outputs


def model(forward, init="pass"):
    return (
        "import torch\nfrom torch import nn\nclass ModelNew(nn.Module):\n"
        f"    def __init__(self, *arguments):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, *inputs):\n        {forward}\n"
    )


# --- failures --------------------------------------------------------------------------------------------------------


LOADS = {
    "does not compile": ("class ModelNew(:", Status.COMPILE_ERROR),
    "raises while imported": ("1 / 0", Status.LOAD_ERROR),
    "needs what is not there": ("import nothing_of_this_name", Status.LOAD_ERROR),
    "has no such class": ("Model = int", Status.LOAD_ERROR),
    "runs out of memory": ("raise MemoryError", Status.OUT_OF_MEMORY),
    "cannot be constructed": (model("pass", "raise ValueError('no')"), Status.LOAD_ERROR),
    "wants other arguments": ("class ModelNew:\n    def __init__(self, a): pass", Status.LOAD_ERROR),
    "runs out of memory when constructed": (model("pass", "raise MemoryError"), Status.OUT_OF_MEMORY),
}


@pytest.mark.parametrize("name", LOADS)
def test_a_source_that_cannot_be_loaded_says_why(name, tmp_path):
    source, status = LOADS[name]
    with side_of(tmp_path, source) as side, pytest.raises(SessionEnded) as found:
        start(side)
    assert (found.value.status, found.value.stage) == (status, Stage.LOAD)
    assert "Traceback" in found.value.evidence.log


def test_artifact_brings_compilers_settings_once(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTORCH_NVCC", "")  # removed again afterwards
    unpacked = []
    monkeypatch.setattr("kernel_matrix.inside.worker.service.unpack", unpacked.append)
    platform = SimpleNamespace(compiler_settings=lambda: {"PYTORCH_NVCC": "the wrapper"})
    monkeypatch.setattr("kernel_matrix.inside.worker.service.load_platform", lambda _name: platform)
    (tmp_path / "candidate.py").write_text("import os\nclass ModelNew: compiler = os.environ['PYTORCH_NVCC']\n")
    worker = Worker(None, tmp_path, "cuda", tmp_path / "artifact.tar")
    settings = {"file": "candidate.py", "entry": "ModelNew", "values": {}, "module": "candidate"}
    for _ in range(2):
        worker._load(settings, ())
    assert unpacked == [tmp_path / "artifact.tar"]
    assert worker._entry.compiler == "the wrapper"


def test_a_worker_goes_on_after_a_call_that_raised(tmp_path):
    forward = "if inputs[0][0] < 0: raise ValueError('negative')\n        return inputs[0]"
    with side_of(tmp_path, model(forward)) as side:
        start(side)
        with pytest.raises(SessionEnded, match="ValueError: negative") as found:
            ask(side, [torch.tensor([-1.0])], torch.zeros(1))
        assert found.value.status is Status.RUNTIME_ERROR
        claim, outputs = ask(side, [torch.tensor([2.0])], torch.zeros(1))
        assert claim.outputs[0].copied
        assert outputs[0].tolist() == [2.0]


# --- the model -------------------------------------------------------------------------------------------------------


def test_a_model_need_not_be_a_module(tmp_path):
    source = "class ModelNew:\n    def __init__(self, by): self.by = by\n    def __call__(self, x): return x * self.by"
    with side_of(tmp_path, source) as side:
        start(side, [3], {"weight": torch.ones(2)})
        _, outputs = ask(side, [torch.arange(3.0)], torch.zeros(3))
        assert outputs[0].tolist() == [0, 3, 6]


STATE = {
    "linear.weight": torch.full((2, 2), 7.0),
    "linear.bias": torch.tensor([1.0, 2.0]),
    "steps": torch.tensor([9, 8]),
}


def test_copy_state_copies_matching_names_and_shapes(tmp_path):
    init = "self.linear = nn.Linear(2, 2)\n        self.register_buffer('steps', torch.zeros(2, dtype=torch.int64))"
    with side_of(tmp_path, model("return self.linear(inputs[0]), self.steps", init)) as side:
        start(side, state=STATE)
        _, outputs = ask(side, [torch.ones(2)], torch.zeros(2), torch.zeros(2, dtype=torch.int64))
        assert [t.tolist() for t in outputs] == [[15.0, 16.0], [9, 8]]


def test_copy_state_keeps_other_names_and_shapes():
    class Other(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(2, 2))
            self.gain = torch.nn.Parameter(torch.zeros(3))
            self.own = torch.nn.Parameter(torch.zeros(1))

    other = Other()
    copy_state(other, {"weight": torch.ones(2, 2), "gain": torch.ones(1), "theirs": torch.ones(1)})
    assert other.weight.tolist() == [[1, 1], [1, 1]]
    assert other.gain.tolist() == [0, 0, 0], "a state of one element is not spread over three"
    assert other.own.tolist() == [0]
    assert not hasattr(other, "theirs")


def test_both_sides_construct_under_the_same_seed(tmp_path):
    seen = []
    for _ in range(2):
        torch.rand(3)
        with side_of(tmp_path, model("return self.w", "self.w = torch.rand(4)")) as side:
            start(side)
            seen.append(ask(side, [], torch.zeros(4))[1][0])
    torch.manual_seed(42)
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], torch.rand(4))


def test_a_module_constant_is_changed_in_the_reference_only(tmp_path):
    source = "size = 1\n" + model("return inputs[0] * size") + "Model = ModelNew\n"
    for entry, factor in (("Model", 5), ("ModelNew", 1)):
        with side_of(tmp_path, source, replace(CANDIDATE, entry=entry)) as side:
            side.load({"size": 5})
            side.construct(parameters(), 0)
            assert ask(side, [torch.ones(1)], torch.zeros(1))[1][0].tolist() == [factor]


# --- inputs and outputs ----------------------------------------------------------------------------------------------


def test_arguments_arrive_as_the_problem_made_them(tmp_path):
    checks = (
        "x, (n, flag), options = inputs\n"
        "        assert x.stride() == (1, 3) and x.dtype == torch.float16\n"
        "        assert (n, flag, options) == (2.5, True, {'dtype': torch.int8})\n"
        "        return x.float()"
    )
    x = torch.arange(6.0).half().reshape(2, 3).T
    with side_of(tmp_path, model(checks)) as side:
        start(side, dtype=Dtype.FP16)
        _, outputs = ask(side, [x, (2.5, True), {"dtype": torch.int8}], torch.zeros(3, 2))
        assert torch.equal(outputs[0], x.float())


def test_what_the_candidate_does_to_its_inputs_is_seen(tmp_path):
    with side_of(tmp_path, model("return inputs[0].add_(1)")) as side:
        start(side)
        side.deliver([torch.zeros(3)], [torch.zeros(3)])
        assert side.call(stage=Stage.VERIFY).inputs[0].tolist() == [1, 1, 1]


def test_buffers_are_taken_and_given_back_without_a_trace(tmp_path):
    def descriptors():
        return len(list(Path("/proc/self/fd").iterdir()))

    def mappings():
        return Path("/proc/self/maps").read_text().count("kernel-matrix-arena")

    with side_of(tmp_path, model("return inputs[0]")) as side:
        start(side)
        ask(side, [torch.zeros(1)], torch.zeros(1))
        before = descriptors(), mappings()
        for size in range(2, 12):
            ask(side, [torch.zeros(size)], torch.zeros(size))
            side.construct(parameters(), 0)
        ask(side, [torch.zeros(1)], torch.zeros(1))
        assert (descriptors(), mappings()) == before


class Lazy(torch.Tensor):
    """A tensor subclass that can run code when it is read."""


ONE = torch.ones(2)
RETURNED = {
    "a tensor": (ONE, Structure.TENSOR, 1),
    "a parameter": (torch.nn.Parameter(ONE), Structure.TENSOR, 1),
    "a tuple": ((ONE, ONE), Structure.TUPLE, 2),
    "a list": ([ONE], Structure.LIST, 1),
    "an empty tuple": ((), Structure.TUPLE, 0),
    "a named tuple": (torch.max(torch.ones(2, 2), 0), Structure.TUPLE, 2),
    "a subclass": (ONE.as_subclass(Lazy), Structure.OTHER, 0),
    "a subclass in a tuple": ((ONE, ONE.as_subclass(Lazy)), Structure.OTHER, 0),
    "a number": (1.0, Structure.OTHER, 0),
    "nothing": (None, Structure.OTHER, 0),
    "a dictionary": ({"a": ONE}, Structure.OTHER, 0),
    "nested": ([[ONE]], Structure.OTHER, 0),
}


@pytest.mark.parametrize("name", RETURNED)
def test_only_plain_tensors_and_flat_lists_of_them_are_outputs(name):
    returned, structure, count = RETURNED[name]
    assert (flatten(returned)[0], len(flatten(returned)[1])) == (structure, count)


def copied(output, view):
    return copy_one(output, view, OutputAlias.NONE)


def test_copy_one_needs_equal_shape_and_dtype():
    view = torch.zeros(2, 3)
    assert copied(torch.ones(3, 2).T, view) == OutputClaim(
        "float32", (2, 3), same_device=True, copied=True, contiguous=False
    )
    assert bool((view == 1).all())
    for other in (torch.full((3,), 5.0), torch.full((2, 3), 5.0).double(), torch.full((1, 3), 5.0)):
        assert not copied(other, view).copied
    assert bool((view == 1).all()), "nothing is broadcast or cast into the judge's buffer"
    assert copied(torch.ones(1), None) == OutputClaim("float32", (1,), same_device=True, copied=False)
    elsewhere = copied(torch.ones(2, 3, device="meta"), view)
    assert (elsewhere.same_device, elsewhere.copied) == (False, False)


def test_more_dimensions_than_the_wire_takes_are_cut():
    assert len(copied(torch.ones([1] * (MAX_DIMENSIONS + 4)), None).shape) == MAX_DIMENSIONS


OUTPUTS = {
    "another number of outputs": ("return inputs[0], inputs[0]", Structure.TUPLE, [False, False]),
    "too many for the wire": ("return [inputs[0]] * 1000", Structure.LIST, [False] * 256),
    "no tensors": ("return 'x'", Structure.OTHER, []),
    "another dtype": ("return inputs[0].double()", Structure.TENSOR, [False]),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_that_does_not_fit_is_claimed_and_not_copied(name, tmp_path):
    forward, structure, copied = OUTPUTS[name]
    with side_of(tmp_path, model(forward)) as side:
        start(side)
        claim, outputs = ask(side, [torch.ones(4)], torch.zeros(4))
    assert (claim.structure, [o.copied for o in claim.outputs]) == (structure, copied)
    assert bool(outputs[0].isnan().all()), "what was never written is still poisoned"


def test_output_that_cannot_be_copied_is_a_failure(tmp_path):
    with side_of(tmp_path, model("return inputs[0].to_sparse()")) as side:
        start(side)
        with pytest.raises(SessionEnded) as found:
            ask(side, [torch.ones(4)], torch.zeros(4))
    assert found.value.status is Status.RUNTIME_ERROR


# --- orders besides calls --------------------------------------------------------------------------------------------


SHARED = {
    "an input": ("return inputs[0]", OutputAlias.INPUT),
    "part of an input": ("return inputs[0][1:3]", OutputAlias.INPUT),
    "a view of its own": ("return (inputs[0] + 1)[1:3]", OutputAlias.NONE),
    "a new one each time": ("return inputs[0] + 1", OutputAlias.NONE),
    "one that is kept": ("self.kept = getattr(self, 'kept', inputs[0] + 1); return self.kept", OutputAlias.EARLIER),
    "nothing at all": ("return torch.empty(0)", OutputAlias.NONE),
}


@pytest.mark.parametrize("name", SHARED)
def test_memory_that_an_output_shares_is_told(name, tmp_path):
    forward, alias = SHARED[name]
    with side_of(tmp_path, model(forward)) as side:
        start(side)
        claims = [ask(side, [torch.ones(4)], torch.zeros(4))[0] for _ in range(3)]
    assert [claim.outputs[0].alias for claim in claims[1:]] == [alias] * 2


OUTPUT_PAIRS = {
    "the same twice": ("y = inputs[0] + 1; return y, y", OutputAlias.OUTPUT),
    "overlapping halves": ("y = inputs[0] + 1; return y[:3], y[1:]", OutputAlias.OUTPUT),
    "halves": ("y = inputs[0] + 1; return y[:2], y[2:]", OutputAlias.NONE),
    "every other one": ("y = inputs[0] + 1; return y[::2], y[1::2]", OutputAlias.NONE),
}


@pytest.mark.parametrize("name", OUTPUT_PAIRS)
def test_overlapping_outputs_are_told_but_not_disjoint_views(name, tmp_path):
    forward, alias = OUTPUT_PAIRS[name]
    with side_of(tmp_path, model(forward)) as side:
        start(side)
        claim, _ = ask(side, [torch.ones(4)], torch.zeros(2), torch.zeros(2))
    assert [output.alias for output in claim.outputs] == [OutputAlias.NONE, alias]


def test_replay_runs_count_times_and_leaves_last_outputs(tmp_path):
    forward = "self.n = getattr(self, 'n', 0) + 1\n        return inputs[0] + self.n"
    with side_of(tmp_path, model(forward)) as side:
        start(side)
        ask(side, [torch.zeros(2)], torch.zeros(2))
        side.deliver([torch.zeros(2)], [torch.zeros(2)])
        result = side.replay(5, Stage.TIME)
        assert result.outputs[0].tolist() == [6, 6]
        assert not result.claim.captured, "a CPU has no graphs"
        assert result.times.device_ns <= result.times.wall_ns


def test_a_traced_call_is_a_call(tmp_path):
    with side_of(tmp_path, model("return inputs[0] * 2")) as side:
        start(side)
        side.deliver([torch.ones(2)], [torch.zeros(2)])
        result, kernels = side.trace(Stage.VERIFY)
        assert result.claim.outputs[0].copied
        assert result.outputs[0].tolist() == [2, 2]
        assert kernels == [], "no kernel runs on a CPU without Triton's interpreter"


def test_frugal_calls_leave_worker_and_judge_without_buffers(tmp_path):
    drawn = []
    with side_of(tmp_path, model("return inputs[0] * 2")) as side:
        start(side)

        def draw():
            assert side._lent is None or side._lent.arenas.outputs[0].descriptor < 0, (
                "its outputs' buffer is closed by then"
            )
            drawn.append(torch.arange(2.0) + 1)
            return drawn[-1:]

        inputs = DrawnInputs(draw)
        for ask_for in (
            lambda: side.call(stage=Stage.TIME),
            lambda: side.replay(3, Stage.TIME),
            lambda: side.trace(Stage.VERIFY)[0],
        ):
            before = len(drawn)
            side.deliver_drawn(inputs, [torch.zeros(2)], frugal=True)
            result = ask_for()
            assert result.outputs[0].tolist() == [2, 4]
            assert result.sent[0] is result.inputs[0] is drawn[-1]
            assert len(drawn) == before + 1
            assert not side.is_lent


OUTPUT_BYTES = 8


def test_frugal_calls_memory_is_taken_before_the_next_time(tmp_path, monkeypatch):
    order, empty, timed = [], torch.empty, Meter.time

    def watched_empty(*shape, **how):
        order.extend(shape if shape == (4096 + OUTPUT_BYTES,) else ())
        return empty(*shape, **how)

    def watched_time(meter, function):
        order.append("time")
        return timed(meter, function)

    monkeypatch.setattr(cpu, "take_peak", lambda: 4096)
    monkeypatch.setattr(torch, "empty", watched_empty)
    monkeypatch.setattr(Meter, "time", watched_time)
    with side_of(tmp_path, model("return inputs[0] * 2")) as side:
        start(side)
        for frugal in (False, True, True, True, False):
            side.park()  # after which nothing is remembered that was not before
            side.deliver_drawn(DrawnInputs(lambda: [torch.ones(2)]), [torch.zeros(2)], frugal=frugal)
            side.call(stage=Stage.TIME)
    needed = 4096 + OUTPUT_BYTES
    assert order == ["time", "time", needed, "time", needed, "time", needed, "time"]


def test_a_compiled_model_is_called_through_its_compiler(tmp_path):
    source = model("return inputs[0] * 2") + "torch.compile = lambda model, mode: lambda x: model(x) + len(mode)\n"
    compiled = torch.compile
    try:
        with side_of(tmp_path, source, replace(EAGER, entry="ModelNew", compile_mode="default")) as side:
            start(side)
            _, outputs = ask(side, [torch.ones(2)], torch.zeros(2))
    finally:
        torch.compile = compiled
    assert outputs[0].tolist() == [9, 9]


@pytest.mark.parametrize(("dtype", "allowed"), [(Dtype.FP32, False), (Dtype.TF32, True), (Dtype.BF16, False)])
def test_construct_sets_precision_of_cell_not_of_source(dtype, allowed, tmp_path):
    source = f"import torch\ntorch.backends.cuda.matmul.allow_tf32 = {not allowed}\n" + model("return inputs[0]")
    flags = (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)
    try:
        with side_of(tmp_path, source) as side:
            start(side, dtype=dtype)
            assert torch.backends.cuda.matmul.allow_tf32 is allowed
            assert torch.backends.cudnn.allow_tf32 is allowed
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = flags
