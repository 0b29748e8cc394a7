"""The reference: in higher precision if possible, without changing its inputs."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import itertools
import os
import subprocess
import sys
import textwrap
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import kernel_matrix
from kernel_matrix.inside.input_generation import LOWER_BITS
from kernel_matrix.inside.judge import controls, precise_model
from kernel_matrix.inside.judge.precise_model import PreciseModel
from kernel_matrix.inside.judge.reference import DrawnInputs, ReferenceModel, guarded, round_mantissa
from kernel_matrix.inside.judge.session_ended import SessionEnded
from kernel_matrix.inside.judge.tolerance import Tolerance
from kernel_matrix.inside.wire import Structure
from kernel_matrix.model.enums import Dtype, Fault, InputMode, Stage, Status, fault_of
from kernel_matrix.model.messages import Evidence
from kernel_matrix.platforms.cpu import inside as cpu

pytestmark = pytest.mark.torch

SECRET = "0123456789abcdef" * 2

PROBLEM = """
import torch
from torch import nn

size = 8

class Model(nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        {init}

    def forward(self, x, index):
        {forward}

def get_inputs():
    return [torch.randn(size, 4), torch.arange(size)]
"""


@pytest.fixture
def reference(tmp_path, monkeypatch):
    """Make the reference of a problem with this ``forward`` and ``__init__``."""
    monkeypatch.setitem(sys.modules, "kernel_matrix_problem", None)  # removed afterwards

    def make(forward, init="pass", extra="", *, dtype=Dtype.FP32, values=None, secret=SECRET):
        path = tmp_path / "problem.py"
        indented = (textwrap.indent(code, " " * 8).strip() for code in (init, forward))
        path.write_text(
            PROBLEM.format(**dict(zip(("init", "forward"), indented, strict=True))) + textwrap.dedent(extra)
        )
        return ReferenceModel(path, values or {}, "cpu", dtype, secret)

    return make


def judged(reference, *purpose):
    inputs = reference.draw(InputMode.STANDARD, *(purpose or ("before", 0)))
    return inputs, reference.expect(inputs)


def test_drawn_inputs_are_equal_after_they_were_forgotten(reference):
    model = reference("return x")
    inputs = DrawnInputs(lambda: model.draw(InputMode.STANDARD, "before", 3))
    first = weakref.ref(inputs.values[0])
    before = inputs.values[0].clone()
    assert inputs.values[0] is first()
    inputs.forget()
    assert first() is None
    assert torch.equal(inputs.values[0], before)
    assert inputs.can_be_drawn_again()


@pytest.mark.parametrize("changed", [lambda x, n: x + n, lambda x, n: x[: len(x) - n]])
def test_drawn_inputs_that_change_cannot_be_drawn_again(changed):
    numbers = itertools.count()
    assert not DrawnInputs(lambda: [changed(torch.ones(9), next(numbers))]).can_be_drawn_again()


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.FP16, Dtype.BF16])
def test_expect_uses_higher_precision_than_trusted(dtype, reference):
    model = reference("return (x / 3).sum(0)", dtype=dtype)
    inputs, expected = judged(model)
    assert model.precision == "float64"
    assert expected.structure is Structure.TENSOR
    assert torch.equal(expected.outputs[0], (inputs[0].double() / 3).sum(0))
    assert torch.equal(expected.trusted[0], (inputs[0] / 3).sum(0))
    assert not torch.equal(expected.outputs[0], expected.trusted[0].double())


FIXED = {
    "an operator without a double form": "raise NotImplementedError('\"kernel\" not implemented for \\'Double\\'')",
    "a tensor of a fixed dtype": "return x @ torch.eye(4, dtype=torch.float32)",
    "an assertion about the dtype": "assert x.dtype == torch.float32\nreturn x * 2",
    "a test of the dtype": "if x.dtype != torch.float32:\n    raise ValueError(x.dtype)\nreturn x * 2",
}
ONLY_SINGLE = "if x.dtype == torch.float64:\n    {}\nreturn x * 2"


@pytest.mark.parametrize("name", FIXED)
def test_reference_without_higher_precision_uses_own(name, reference):
    code = FIXED[name]
    model = reference(ONLY_SINGLE.format(code) if code.startswith("raise") else code)
    assert model.precision == "float32"
    inputs, expected = judged(model)
    assert expected.outputs[0].dtype == torch.float32
    assert torch.equal(expected.outputs[0], expected.trusted[0])
    assert inputs[0].dtype == torch.float32


def test_a_problem_that_never_runs_says_so_at_once(reference):
    with pytest.raises(ValueError, match="never"):
        reference("raise ValueError('never')")


def test_expect_inputs_stay_unchanged_by_a_writing_problem(reference):
    model = reference("x.mul_(2)\nindex.zero_()\nreturn x, index")
    inputs = model.draw(InputMode.STANDARD, "before", 0)
    before = [t.clone() for t in inputs]
    expected = model.expect(inputs)
    assert all(map(torch.equal, inputs, before))
    assert torch.equal(expected.trusted[0], before[0] * 2)
    assert torch.equal(expected.outputs[0], before[0].double() * 2)
    assert expected.trusted[1].tolist() == [0] * 8


def test_the_same_inputs_are_expected_the_same_twice(reference):
    model = reference("return torch.softmax(x, 1)")
    inputs = model.draw(InputMode.STANDARD, "before", 0)
    one, two = model.expect(inputs), model.expect(inputs)
    assert torch.equal(one.outputs[0], two.outputs[0])
    assert torch.equal(one.trusted[0], two.trusted[0])


def test_inputs_follow_from_secret_and_purpose(reference):
    def drawn(secret, *purpose):
        return reference("return x", secret=secret).draw(InputMode.STANDARD, *purpose)[0]

    assert torch.equal(drawn(SECRET, "before", 0), drawn(SECRET, "before", 0))
    assert not torch.equal(drawn(SECRET, "before", 0), drawn(SECRET, "before", 1))
    assert not torch.equal(drawn(SECRET, "before", 0), drawn(SECRET, "after", 0))
    assert not torch.equal(drawn(SECRET, "before", 0), drawn(SECRET[::-1], "before", 0))


STATE = """
self.linear = nn.Linear(4, 4)
self.register_buffer('table', torch.arange(8))
self.register_buffer('turn', torch.polar(torch.ones(4), torch.arange(4.0)))
"""
USE_STATE = "return self.linear(x) + self.table[index].unsqueeze(1), torch.view_as_real(x * self.turn)"


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.BF16])
def test_reference_state_casts_only_real_floats(dtype, reference):
    model = reference("return self.linear(x)", STATE, dtype=dtype)
    wanted = {Dtype.FP32: torch.float32, Dtype.BF16: torch.bfloat16}[dtype]
    assert {name: value.dtype for name, value in model.state.items()} == {
        "linear.weight": wanted,
        "linear.bias": wanted,
        "table": torch.int64,
        "turn": torch.complex64,
    }
    assert torch.equal(model.state["turn"], torch.polar(torch.ones(4), torch.arange(4.0)))


def test_both_precisions_compute_with_the_same_parameters(reference):
    model = reference(USE_STATE, STATE)
    inputs, expected = judged(model)
    assert model.precision == "float64"
    weight, bias = model.state["linear.weight"], model.state["linear.bias"]
    by_hand = inputs[0].double() @ weight.double().T + bias.double() + model.state["table"][inputs[1]].unsqueeze(1)
    assert torch.allclose(expected.outputs[0], by_hand, rtol=1e-12)
    assert torch.allclose(expected.trusted[0], by_hand.float(), rtol=1e-5)
    assert expected.outputs[1].dtype == torch.float64


def test_reference_arguments_do_not_change_parameters(reference):
    init = "self.w = nn.Parameter(torch.rand(4))"
    state = reference("return x * self.w", init, "def get_init_inputs():\n    return [torch.rand(3)]").state
    torch.manual_seed(42)
    assert torch.equal(state["w"], torch.rand(4))


def test_equal_problems_have_equal_parameters(reference):
    one, two = (reference("return self.linear(x)", STATE).state for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)


STRUCTURES = {
    "a tensor": ("return x", Structure.TENSOR, 1),
    "a tuple": ("return x, index", Structure.TUPLE, 2),
    "a tuple of one": ("return (x,)", Structure.TUPLE, 1),
    "a list": ("return [x, x, index]", Structure.LIST, 3),
    "a named tuple": ("return torch.max(x, dim=0)", Structure.TUPLE, 2),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_what_the_problem_returns_is_kept_apart(name, reference):
    code, structure, count = STRUCTURES[name]
    _, expected = judged(reference(code))
    assert (expected.structure, len(expected.outputs), len(expected.trusted)) == (structure, count, count)


@pytest.mark.parametrize(
    "code", ["return 1", "return None", "return [x, [x]]", "return {'a': x}", "return ()", "return x, 1"]
)
def test_a_problem_that_returns_anything_else_is_a_problem_error(code, reference):
    with pytest.raises(SessionEnded, match="not tensors") as raised:
        judged(reference(code))
    assert raised.value.status is Status.PROBLEM_ERROR
    assert fault_of(raised.value.status) is Fault.PROBLEM


def test_integers_and_booleans_are_expected_as_they_are(reference):
    _, expected = judged(reference("return index * 2, x > 0", dtype=Dtype.FP16))
    assert [t.dtype for t in expected.outputs] == [torch.int64, torch.bool]
    assert [t.dtype for t in expected.trusted] == [torch.int64, torch.bool]


def test_a_workloads_values_take_the_place_of_constants(reference):
    inputs, expected = judged(reference("return x", values={"size": 3}))
    assert inputs[0].shape == expected.trusted[0].shape == (3, 4)
    with pytest.raises(AttributeError, match=r"problem.py has no module constant 'sise'"):
        reference("return x", values={"sise": 3})


def test_reference_arguments_are_cast_and_copied(reference):
    extra = "def get_init_inputs():\n    return [torch.ones(4), torch.arange(4), 2.5]"
    init = "self.scale = arguments[0].mul_(arguments[2])\nassert arguments[1].dtype == torch.int64"
    model = reference("return x * self.scale.to(x.dtype)", init, extra, dtype=Dtype.FP16)
    assert model.init_arguments[0].dtype == torch.float16
    assert model.init_arguments[0].tolist() == [1.0] * 4
    inputs, expected = judged(model)
    assert torch.equal(expected.outputs[0], inputs[0].double() * 2.5)


def test_nothing_that_is_returned_wants_a_gradient(reference):
    _, expected = judged(reference("return self.linear(x)", STATE))
    assert not any(t.requires_grad for t in (*expected.outputs, *expected.trusted))


def test_guarded_exception_is_problem_error_with_traceback():
    def broken():
        raise KeyError("k" * 1000)

    with pytest.raises(SessionEnded) as raised:
        guarded("get_inputs()", Stage.VERIFY, broken)
    assert (raised.value.status, raised.value.stage) == (Status.PROBLEM_ERROR, Stage.VERIFY)
    assert raised.value.evidence.message.startswith("get_inputs() raised KeyError: 'kkk")
    assert len(raised.value.evidence.message) <= 500
    assert "in broken" in raised.value.evidence.log


def test_guarded_system_exit_is_a_problem_error():
    with pytest.raises(SessionEnded) as raised:
        guarded("the reference", Stage.LOAD, lambda: sys.exit("enough"))
    assert raised.value.status is Status.PROBLEM_ERROR
    assert raised.value.evidence.message == "the reference raised SystemExit: enough"


def test_guarded_missing_package_is_unsupported(reference):
    with pytest.raises(SessionEnded) as raised:
        guarded("the reference", Stage.LOAD, lambda: reference("return x", extra="import no_such_package.part"))
    assert (raised.value.status, raised.value.stage) == (Status.UNSUPPORTED, Stage.LOAD)
    message = "the reference needs the package 'no_such_package', which is not installed here"
    assert raised.value.evidence.message == message
    assert "import no_such_package.part" in raised.value.evidence.log


def test_a_finding_inside_a_problem_stays_what_it_is():
    inner = SessionEnded(Status.INVALID_PROBLEM, Stage.LOAD, Evidence(message="as it was"))

    def found():
        raise inner

    with pytest.raises(SessionEnded) as raised:
        guarded("anything", Stage.VERIFY, found)
    assert raised.value is inner
    assert guarded("a value", Stage.VERIFY, lambda: 7) == 7


# --- what is learnt from one call ------------------------------------------------------------------------------------


def test_what_is_returned_is_known_before_anything_is_expected(reference):
    like = reference("return x.T, index, x.sum()", dtype=Dtype.FP16).like
    assert [(tuple(t.shape), t.dtype, t.device.type) for t in like] == [
        ((4, 8), torch.float16, "meta"),
        ((8,), torch.int64, "meta"),
        ((), torch.float16, "meta"),
    ]
    assert not like[0].is_contiguous()


VIEWS = {
    "return x * 2": (False,),
    "return x.T, index + 1": (True, False),
    "y = x + 1\nreturn y, y[0]": (True, True),
    "return x + self.linear.weight[0], self.linear.weight": (False, True),
}


@pytest.mark.parametrize("code", VIEWS)
def test_outputs_that_are_memory_of_something_else_are_known(code, reference):
    _, expected = judged(reference(code, "self.linear = nn.Linear(4, 4)"))
    assert expected.views == VIEWS[code]


def test_reference_copies_inputs_only_if_it_writes_to_them(reference):
    _, expected = judged(reference("return x"))
    inputs, other = judged(reference("x.mul_(2)\nreturn x"))
    assert expected.trusted[0].dtype == other.trusted[0].dtype
    assert torch.equal(other.trusted[0], inputs[0] * 2)
    model = reference("return x")
    given = model.draw(InputMode.STANDARD, 1)
    assert model.expect(given).trusted[0].data_ptr() == given[0].data_ptr()


def test_whole_numbers_are_expected_in_their_own_dtype(reference):
    model = reference("return x + 1", dtype=Dtype.INT8)
    assert model.precision == "int8"
    inputs, expected = judged(model)
    assert expected.outputs[0].dtype == torch.int8
    assert torch.equal(expected.trusted[0], inputs[0] + 1)


def test_narrow_inputs_are_expected_as_bfloat16(reference):
    model = reference("return self.linear(x)", "self.linear = nn.Linear(4, 4)", dtype=Dtype.FP8_E4M3)
    inputs, expected = judged(model)
    assert (inputs[0].dtype, expected.trusted[0].dtype) == (torch.float8_e4m3fn, torch.bfloat16)
    assert model.precision == "float64"
    wanted = torch.nn.functional.linear(inputs[0].double(), *(t.double() for t in model.state.values()))
    assert torch.equal(expected.outputs[0], wanted)


def test_single_precision_serves_where_double_cannot_be_had(reference):
    code = "assert x.dtype != torch.float64\nreturn x / 3"
    model = reference(code, dtype=Dtype.FP16)
    assert model.precision == "float32"
    inputs, expected = judged(model)
    assert torch.equal(expected.outputs[0], inputs[0].float() / 3)


def test_precision_that_memory_lacks_for_is_given_up(reference, monkeypatch):
    model = reference("return x * 2", dtype=Dtype.BF16)
    runs = []

    def call(oracle, module, inputs):
        runs.append(oracle.precision)
        if oracle.precision == "float64":
            raise MemoryError
        return original(oracle, module, inputs)

    original = PreciseModel.call
    monkeypatch.setattr(PreciseModel, "call", call)
    inputs = model.draw(InputMode.STANDARD, "test")
    for _ in range(2):
        assert model.expect(inputs).outputs[0].dtype == torch.float32
    assert model.precision == "float32"
    assert runs == ["float64", "float32", "float32", "float32"]  # double is tried once; single is tried out first


# --- pieces ----------------------------------------------------------------------------------------------------------

SMALL = """
if x.dtype == torch.float64 and x.shape[0] > {rows}:
    raise MemoryError
return {answer}
"""
LARGE = {"size": 100}


@pytest.mark.parametrize(
    "answer",
    [
        "x.softmax(1)",
        "(x.sum(1), index * 2)",
        "x.softmax(1) @ x.new_ones(4, 3)",
    ],
)
@pytest.mark.parametrize(("rows", "pieces"), [(12, 16), (20, 8), (4, 0)])
def test_rows_are_computed_in_pieces_where_memory_lacks(answer, rows, pieces, reference):
    whole = reference(SMALL.format(rows=1000, answer=answer), values=LARGE)
    inputs = whole.draw(InputMode.STANDARD, "test")
    model = reference(SMALL.format(rows=rows, answer=answer), values=LARGE)
    assert (model.precision, model.pieces) == (("float64", pieces) if pieces else ("float32", 1))
    if pieces:
        wanted, found = whole.expect(inputs), model.expect(inputs)
        assert found.structure == wanted.structure
        assert [output.dtype for output in found.outputs] == [output.dtype for output in wanted.outputs]
        for output, want in zip(found.outputs, wanted.outputs, strict=True):
            assert torch.allclose(output, want, rtol=1e-12)
        lower = zip(*(made.answer_one_precision_lower(inputs) for made in (model, whole)), strict=True)
        assert all(torch.allclose(one, other) for one, other in lower)


def test_memory_that_lacks_later_cuts_a_call_into_pieces(reference):
    code = SMALL.format(rows="(20 if short else 1000)", answer="x * 2")
    model = reference(code, extra="short = []", values=LARGE)
    inputs = model.draw(InputMode.STANDARD, "test")
    assert model.pieces == 1
    model._module.short.append(True)
    assert torch.equal(model.expect(inputs).outputs[0], inputs[0].double() * 2)
    assert (model.precision, model.pieces) == ("float64", 8)


def test_pieces_that_cannot_be_compared_are_made_smaller(reference, monkeypatch):
    """Comparing a piece with its halves takes memory, too."""
    compare = precise_model._is_same

    def lacking(one, other):
        if one.shape[0] > 8:
            raise MemoryError
        return compare(one, other)

    monkeypatch.setattr(precise_model, "_is_same", lacking)
    model = reference(SMALL.format(rows=20, answer="x * 2"), values=LARGE)
    assert (model.precision, model.pieces) == ("float64", 16)


OWN_LACKS = """
if x.shape[0] > {rows} and short:
    raise MemoryError
return {answer}
"""


def short_of_memory(reference, rows, answer):
    """Return a model for which memory lacks from now on for more than so many rows, in any precision."""
    model = reference(OWN_LACKS.format(rows=rows, answer=answer), extra="short = []", values=LARGE)
    model._module.short.append(True)
    return model


def test_calls_in_the_cells_own_dtype_are_cut_too(reference):
    model = short_of_memory(reference, 20, "x.softmax(1)")
    inputs = model.draw(InputMode.STANDARD, "test")
    expected = model.expect(inputs)
    assert expected.trusted[0].dtype == torch.float32
    assert torch.allclose(expected.trusted[0], inputs[0].softmax(1))
    assert torch.allclose(expected.outputs[0], inputs[0].double().softmax(1), rtol=1e-12)
    assert torch.equal(model.answer(inputs)[0], expected.trusted[0])
    assert model.pieces == 8


def test_error_of_some_rows_is_allowed_where_memory_is_short(reference, monkeypatch):
    answer = "(x * 1e4 + 1e8) - 1e8"  # in single precision, hundreds of roundings of the result
    model, whole = short_of_memory(reference, 20, answer), reference(f"return {answer}", values=LARGE)
    inputs = model.draw(InputMode.STANDARD, "test")
    call = PreciseModel.call

    def lacking(made, *arguments):
        if made.precision == "float64":
            raise MemoryError
        return call(made, *arguments)

    model.expect(inputs)
    monkeypatch.setattr(PreciseModel, "call", lacking)
    expected, wanted = model.expect(inputs), whole._model(*inputs)
    assert (model.precision, model.pieces) == ("float32", 8)
    assert expected.outputs[0] is expected.trusted[0]
    (allowed,), (alone,) = (
        one.allowances(Tolerance(1e-6)) for one in (expected, replace(expected, some=None, _allowances={}))
    )
    assert allowed.everywhere > 4 * alone.everywhere
    assert allowed.strays
    assert controls.accepts([wanted], expected, Tolerance(1e-6))
    assert not controls.accepts([wanted * (1 + 1e-3)], expected, Tolerance(1e-6))


@pytest.mark.parametrize(("rows", "answer"), [(20, "x - x.mean(0)"), (4, "x * 2"), (20, "x.mul_(2) + 1")])
def test_rows_that_cannot_be_cut_end_where_memory_lacks(rows, answer, reference):
    model = short_of_memory(reference, rows, answer)
    inputs = model.draw(InputMode.STANDARD, "test")
    for _ in range(2):
        with pytest.raises(MemoryError):
            model.answer(inputs)


def test_temporaries_of_a_call_are_counted(reference, monkeypatch):
    assert reference("return x * 2").temporary_bytes == 0
    peaks = iter([1000, 300])  # the first is of what was before the call
    monkeypatch.setattr(cpu, "take_peak", lambda: next(peaks))
    assert reference("return x * 2").temporary_bytes == 300


DEPENDENT = {
    "on the mean of all rows": "x - x.mean(0)",
    "a little on all rows": "x + 1e-6 * x.mean(0)",
    "on the rows before": "x.cumsum(0)",
    "on the next row": "x.roll(1, 0)",
    "on the number of the row": "x * torch.arange(x.shape[0])[:, None]",
    "on how many there are": "x / x.shape[0]",
    "on dice": "x + torch.rand_like(x)",
    "on all, in one number": "x.sum()",
    "on other rows of a larger output": "torch.cat([x, x])",
    "on an input that must stay whole": "x[index]",
}


@pytest.mark.parametrize("name", DEPENDENT)
def test_rows_that_depend_on_others_are_not_cut(name, reference):
    model = reference(SMALL.format(rows=20, answer=DEPENDENT[name]), values=LARGE)
    assert (model.precision, model.pieces) == ("float32", 1)


def test_only_the_first_factor_of_a_square_product_is_cut(reference):
    extra = "def get_inputs():\n    return [torch.randn(64, 64), torch.randn(64, 64)]"
    model = reference(SMALL.format(rows=10, answer="x @ index"), extra=extra)
    assert (model.precision, model.pieces) == ("float64", 8)
    inputs, expected = judged(model)
    assert torch.allclose(expected.outputs[0], inputs[0].double() @ inputs[1].double(), rtol=1e-12)


def test_a_problem_that_writes_to_its_inputs_is_called_whole(reference):
    model = reference(SMALL.format(rows=20, answer="x.mul_(2) + 1"), values=LARGE)
    assert (model.precision, model.pieces) == ("float32", 1)


# --- one precision lower ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("bits", "lower"), [(23, torch.float32), (10, torch.float16), (7, torch.bfloat16)])
def test_a_rounded_mantissa_is_that_of_the_lower_format(bits, lower):
    values = torch.randn(10_000, dtype=torch.float64)
    values = values[values.abs() > 0.01]
    rounded = round_mantissa(values, bits)
    half_a_step = 2.0 ** (values.frexp().exponent - 2 - bits)
    assert torch.equal(rounded.to(lower).double(), rounded)
    assert bool(((rounded - values).abs() <= half_a_step).all())
    large = torch.tensor([1e30, -1e-30, 0.0, float("inf")], dtype=torch.float64)
    assert torch.allclose(round_mantissa(large, 3), large, rtol=0.07, atol=0), "the range stays"
    assert round_mantissa(torch.tensor([float("nan")]), 3).isnan().all()
    assert round_mantissa(torch.tensor([1.9999999]), 10).tolist() == [2.0]


def test_one_precision_lower_rounds_inputs_and_parameters(reference):
    model = reference("return self.linear(x), x", "self.linear = nn.Linear(4, 4)")
    inputs = model.draw(InputMode.STANDARD, 1)
    product, same = model.answer_one_precision_lower(inputs)
    bits = LOWER_BITS[Dtype.FP32]
    assert torch.equal(same, round_mantissa(inputs[0], bits))
    weight, bias = (round_mantissa(t, bits).double() for t in model.state.values())
    assert torch.equal(product, (same.double() @ weight.T + bias).float())
    again = model.answer(inputs)[0]
    assert not torch.equal(product, again), "the reference's own parameters are not touched"


@pytest.mark.parametrize("dtype", [Dtype.INT8, Dtype.FP8_E5M2])
def test_there_is_nothing_below_the_narrowest(dtype, reference):
    model = reference("return x", dtype=dtype)
    assert model.answer_one_precision_lower(model.draw(InputMode.STANDARD, 1)) is None


LOADS = """
import sys
from pathlib import Path
from kernel_matrix.inside.judge.precise_model import PreciseModel
from kernel_matrix.inside.judge.reference import ReferenceModel
from kernel_matrix.model.enums import Dtype, InputMode
reference = ReferenceModel(Path(sys.argv[1]), {}, "cpu", Dtype.FP32, "0123456789abcdef")
reference.expect(reference.draw(InputMode.STANDARD, "before", 0))
print("sympy" in sys.modules)
"""


def test_reference_loads_no_sympy(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(
        PROBLEM.format(init="self.linear = nn.Linear(4, 4)", forward="return self.linear(x).softmax(-1), index + 1")
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(kernel_matrix.__file__).parents[1])}
    done = subprocess.run(
        (sys.executable, "-c", LOADS, str(path)),
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == "False\n", "torch imports it at the first call of some functions, which takes two seconds"
