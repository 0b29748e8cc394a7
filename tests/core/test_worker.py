"""The worker beside a candidate: a real one in a thread, asked by the judge's own side."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import io
import sys
import tarfile
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from runner.core.finding import Finding
from runner.core.inputs import TORCH_DTYPES
from runner.core.reference import Expected
from runner.core.vocab import Dtype, Stage, Status
from runner.core.wire import MAX_DIMENSIONS, Failure, OutputClaim, Structure
from runner.core.worker import Worker, _copy_one, _copy_state, _flatten, _unpack_artifact, classify, place_model
from tests.core.workers import side_of

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def _forget_the_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "candidate", None)


def expected(*tensors):
    structure = Structure.TENSOR if len(tensors) == 1 else Structure.TUPLE
    return Expected(structure, tensors, tensors)


def start(side, init=(), state=None, dtype=Dtype.FP32):
    side.load(file="candidate.py", entry="ModelNew", values={})
    side.construct(SimpleNamespace(init_arguments=list(init), state=state or {}, dtype=dtype), 0)


def ask(side, inputs, wanted):
    """One call; what the worker claims, and what lies in the output buffer."""
    side.deliver(inputs, wanted)
    claim = side.call(stage=Stage.VERIFY).claim
    return claim, side.outputs()


def model(forward, init="pass"):
    return (
        "import torch\nfrom torch import nn\nclass ModelNew(nn.Module):\n"
        f"    def __init__(self, *arguments):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, *inputs):\n        {forward}\n"
    )


# --- what went wrong -------------------------------------------------------------------------------------------------


def raised(name, module="somewhere", text=""):
    return type(name, (Exception,), {"__module__": module})(text)


KINDS = {
    "a memory error": (MemoryError(), Failure.MEMORY),
    "the device's memory": (torch.OutOfMemoryError("no 8 bytes left"), Failure.MEMORY),
    "syntax": (SyntaxError("invalid"), Failure.COMPILE),
    "indentation": (IndentationError("unexpected"), Failure.COMPILE),
    "an extension": (RuntimeError("Error building extension 'x': [1/2] nvcc"), Failure.COMPILE),
    "Triton": (raised("CompilationError", "triton.compiler.errors"), Failure.COMPILE),
    "Triton, another one": (raised("UnsupportedLanguageConstruct", "triton.compiler.errors"), Failure.COMPILE),
    "Triton's interpreter": (raised("InterpreterError", "triton.runtime.errors"), Failure.COMPILE),
    "too much shared memory": (raised("OutOfResources", "triton.runtime.errors"), Failure.RUNTIME),
    "an illegal access": (RuntimeError("CUDA error: an illegal memory access"), Failure.RUNTIME),
    "anything": (ValueError("Error"), Failure.RUNTIME),
    "no module": (ImportError("no module"), Failure.RUNTIME),
}


@pytest.mark.parametrize("name", KINDS)
def test_an_exception_is_put_into_its_kind(name):
    error, kind = KINDS[name]
    assert classify(error) is kind


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
    with side_of(tmp_path, source) as side, pytest.raises(Finding) as found:
        start(side)
    assert (found.value.status, found.value.stage) == (status, Stage.LOAD)
    assert "Traceback" in found.value.evidence.log


def test_a_worker_goes_on_after_a_call_that_raised(tmp_path):
    forward = "if inputs[0][0] < 0: raise ValueError('negative')\n        return inputs[0]"
    with side_of(tmp_path, model(forward)) as side:
        start(side)
        with pytest.raises(Finding, match="ValueError: negative") as found:
            ask(side, [torch.tensor([-1.0])], expected(torch.zeros(1)))
        assert found.value.status is Status.RUNTIME_ERROR
        claim, outputs = ask(side, [torch.tensor([2.0])], expected(torch.zeros(1)))
        assert claim.outputs[0].copied
        assert outputs[0].tolist() == [2.0]


# --- the model -------------------------------------------------------------------------------------------------------


def test_a_model_need_not_be_a_module(tmp_path):
    source = "class ModelNew:\n    def __init__(self, by): self.by = by\n    def __call__(self, x): return x * self.by"
    with side_of(tmp_path, source) as side:
        start(side, [3], {"weight": torch.ones(2)})
        _, outputs = ask(side, [torch.arange(3.0)], expected(torch.zeros(3)))
        assert outputs[0].tolist() == [0, 3, 6]


STATE = {
    "linear.weight": torch.full((2, 2), 7.0),
    "linear.bias": torch.tensor([1.0, 2.0]),
    "steps": torch.tensor([9, 8]),
}


def test_the_references_state_is_copied_where_names_and_shapes_match(tmp_path):
    init = "self.linear = nn.Linear(2, 2)\n        self.register_buffer('steps', torch.zeros(2, dtype=torch.int64))"
    with side_of(tmp_path, model("return self.linear(inputs[0]), self.steps", init)) as side:
        start(side, state=STATE)
        _, outputs = ask(side, [torch.ones(2)], expected(torch.zeros(2), torch.zeros(2, dtype=torch.int64)))
        assert [t.tolist() for t in outputs] == [[15.0, 16.0], [9, 8]]


def test_what_has_another_name_or_shape_stays_as_the_model_made_it():
    class Other(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(2, 2))
            self.gain = torch.nn.Parameter(torch.zeros(3))
            self.own = torch.nn.Parameter(torch.zeros(1))

    other = Other()
    _copy_state(other, {"weight": torch.ones(2, 2), "gain": torch.ones(1), "theirs": torch.ones(1)})
    assert other.weight.tolist() == [[1, 1], [1, 1]]
    assert other.gain.tolist() == [0, 0, 0], "a state of one element is not spread over three"
    assert other.own.tolist() == [0]
    assert not hasattr(other, "theirs")


@pytest.mark.parametrize("dtype", Dtype)
def test_only_floating_parameters_and_buffers_get_the_cells_dtype(dtype):
    module = torch.nn.Linear(2, 2)
    for name, buffer in (("steps", torch.arange(3)), ("mask", torch.ones(2) > 0), ("turn", torch.ones(2) + 1j)):
        module.register_buffer(name, buffer)
    name = str(TORCH_DTYPES[dtype]).removeprefix("torch.")
    assert {k: v.dtype for k, v in place_model(module, "cpu", name).state_dict().items()} == {
        "weight": TORCH_DTYPES[dtype],
        "bias": TORCH_DTYPES[dtype],
        "steps": torch.int64,
        "mask": torch.bool,
        "turn": torch.complex64,
    }
    assert module.turn.tolist() == [1 + 1j, 1 + 1j]


def test_both_sides_construct_under_the_same_seed(tmp_path):
    seen = []
    for _ in range(2):
        torch.rand(3)
        with side_of(tmp_path, model("return self.w", "self.w = torch.rand(4)")) as side:
            start(side)
            seen.append(ask(side, [], expected(torch.zeros(4)))[1][0])
    torch.manual_seed(42)
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], torch.rand(4))


def test_a_module_constant_is_changed_in_the_reference_only(tmp_path):
    source = "size = 1\n" + model("return inputs[0] * size") + "Model = ModelNew\n"
    for entry, factor in (("Model", 5), ("ModelNew", 1)):
        with side_of(tmp_path, source) as side:
            side.load(file="candidate.py", entry=entry, values={"size": 5})
            side.construct(SimpleNamespace(init_arguments=[], state={}, dtype=Dtype.FP32), 0)
            assert ask(side, [torch.ones(1)], expected(torch.zeros(1)))[1][0].tolist() == [factor]


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
        _, outputs = ask(side, [x, (2.5, True), {"dtype": torch.int8}], expected(torch.zeros(3, 2)))
        assert torch.equal(outputs[0], x.float())


def test_what_the_candidate_does_to_its_inputs_is_seen(tmp_path):
    with side_of(tmp_path, model("return inputs[0].add_(1)")) as side:
        start(side)
        ask(side, [torch.zeros(3)], expected(torch.zeros(3)))
        assert side.inputs_now()[0].tolist() == [1, 1, 1]


def test_a_probe_does_all_but_the_models_part(tmp_path):
    with side_of(tmp_path, model("raise RuntimeError('was called')")) as side:
        start(side)
        side.deliver([torch.zeros(3)], expected(torch.zeros(3)))
        result = side.call(probe=True, stage=Stage.TIME)
        assert (result.claim.structure, result.claim.outputs) == (Structure.OTHER, ())


def test_buffers_are_taken_and_given_back_without_a_trace(tmp_path):
    def descriptors():
        return len(list(Path("/proc/self/fd").iterdir()))

    def mappings():
        return Path("/proc/self/maps").read_text().count("kernel-matrix-arena")

    with side_of(tmp_path, model("return inputs[0]")) as side:
        start(side)
        ask(side, [torch.zeros(1)], expected(torch.zeros(1)))
        before = descriptors(), mappings()
        for size in range(2, 12):
            ask(side, [torch.zeros(size)], expected(torch.zeros(size)))
            side.construct(SimpleNamespace(init_arguments=[], state={}, dtype=Dtype.FP32), 0)
        ask(side, [torch.zeros(1)], expected(torch.zeros(1)))
        assert (descriptors(), mappings()) == before


class Lazy(torch.Tensor):
    """A tensor that could compute when it is looked at."""


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
    assert (_flatten(returned)[0], len(_flatten(returned)[1])) == (structure, count)


def test_an_output_is_copied_only_into_a_place_of_its_shape_and_dtype():
    view = torch.zeros(2, 3)
    assert _copy_one(torch.ones(3, 2).T, view) == OutputClaim("float32", (2, 3), same_device=True, copied=True)
    assert bool((view == 1).all())
    for other in (torch.full((3,), 5.0), torch.full((2, 3), 5.0).double(), torch.full((1, 3), 5.0)):
        assert not _copy_one(other, view).copied
    assert bool((view == 1).all()), "nothing is broadcast or cast into the judge's buffer"
    assert _copy_one(torch.ones(1), None) == OutputClaim("float32", (1,), same_device=True, copied=False)
    elsewhere = _copy_one(torch.ones(2, 3, device="meta"), view)
    assert (elsewhere.same_device, elsewhere.copied) == (False, False)


def test_more_dimensions_than_the_wire_takes_are_cut():
    assert len(_copy_one(torch.ones([1] * (MAX_DIMENSIONS + 4)), None).shape) == MAX_DIMENSIONS


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
        claim, outputs = ask(side, [torch.ones(4)], expected(torch.zeros(4)))
    assert (claim.structure, [o.copied for o in claim.outputs]) == (structure, copied)
    assert bool(outputs[0].isnan().all()), "what was never written is still poisoned"


def test_an_output_that_cannot_be_copied_is_the_candidates_failure(tmp_path):
    with side_of(tmp_path, model("return inputs[0].to_sparse()")) as side:
        start(side)
        with pytest.raises(Finding) as found:
            ask(side, [torch.ones(4)], expected(torch.zeros(4)))
    assert found.value.status is Status.RUNTIME_ERROR


def test_a_parameter_can_be_returned_and_the_buffer_remembers_no_graph():
    worker = Worker(None, None)
    worker._settings = {"device": "cpu"}
    worker._output_views = [torch.zeros(3)]
    claim = worker._copy_out(torch.nn.Parameter(torch.arange(3.0)))
    assert claim.outputs[0].copied
    assert worker._output_views[0].tolist() == [0, 1, 2]
    assert not worker._output_views[0].requires_grad


# --- what the builder compiled ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Python 3.14 will:DeprecationWarning")
def test_an_artefact_that_carries_no_exact_times_is_unpacked_too(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions" / "deep"))
    with tarfile.open(tmp_path / "artifact.tar", "w") as archive:
        entry = tarfile.TarInfo("x/object.o")
        entry.size, entry.mtime = 3, 1000
        archive.addfile(entry, io.BytesIO(b"abc"))
    _unpack_artifact(tmp_path / "artifact.tar")
    unpacked = tmp_path / "extensions" / "deep" / "x" / "object.o"
    assert unpacked.read_bytes() == b"abc"
    assert unpacked.stat().st_mtime == 1000
