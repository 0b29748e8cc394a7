"""The module made of a definition, run like in judge and worker."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import importlib.util
import shutil
import sys

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.input_generation import IntegerRange, tensors_in
from kernel_matrix.inside.judge.reference import ReferenceModel
from kernel_matrix.inside.wire import Structure
from kernel_matrix.model.enums import Dtype, InputMode, Status
from kernel_matrix.model.messages import WorkloadSpec
from kernel_matrix.sources import load_candidates, load_source
from tests.inside.conftest import SessionProcesses
from tests.inside.sessions import QUICK, make_job
from tests.sources.flashinfer_set import (
    DEFINITION,
    INTO_OUTPUTS,
    ROWS,
    SOLUTION,
    WORKLOAD,
    changed,
    write_set,
    write_solution,
)

pytestmark = pytest.mark.torch

SECRET = "0123456789abcdef" * 2


def stage(code, folder, file):
    folder.mkdir(exist_ok=True)
    for name, content in {file: code.module(), **code.contents()}.items():
        (folder / name).write_bytes(content)
    return folder / file


@pytest.fixture
def reference(tmp_path, monkeypatch):
    """Return the judge's reference of a definition on one of its workloads."""
    for name in ("kernel_matrix_problem", "reference_run"):
        monkeypatch.setitem(sys.modules, name, None)  # and out again afterwards

    def make(definition=DEFINITION, workload=WORKLOAD, place=0):
        root = write_set(tmp_path / "set", definition, workload)
        loaded = load_source("flashinfer", root)
        assert not loaded.unreadable, loaded.unreadable
        (problem,) = loaded.problems
        path = stage(problem.code, tmp_path / "staged", "problem.py")
        shutil.rmtree(root)  # what was staged is all there is
        return ReferenceModel(path, problem.workloads[place].values, "cpu", problem.dtypes[0], SECRET)

    return make


def simple(dtypes, outputs, body, shape=("M", "H")):
    """Return a definition with an input ``a``, ``b``, … per dtype."""
    names = "abcdefgh"[: len(dtypes)]
    definition = {
        "name": "mixed_h32",
        "axes": {"M": {"type": "var"}, "H": {"type": "const", "value": 32}},
        "inputs": {name: {"shape": list(shape), "dtype": dtype} for name, dtype in zip(names, dtypes, strict=True)},
        "outputs": {f"y{i}": {"shape": list(shape), "dtype": dtype} for i, dtype in enumerate(outputs)},
        "reference": f"import torch\n\ndef run({', '.join(names)}):\n    {body}\n",
    }
    return definition, {"axes": {"M": 5}, "inputs": {name: {"type": "random"} for name in names}}


@pytest.mark.parametrize("mode", list(InputMode))
def test_inputs_keep_their_dtypes_through_the_judge(reference, mode):
    made = reference()
    x, weight, bias, rows, scale = made.draw(mode, "a", whole=IntegerRange.SIGNED)
    assert (x.dtype, tuple(x.shape)) == (torch.bfloat16, (7, 32))
    assert (weight.dtype, tuple(weight.shape)) == (torch.int8, (64, 32))
    assert (bias.dtype, tuple(bias.shape)) == (torch.int32, (7, 64))
    assert rows.tolist() == list(ROWS)
    assert scale == 0.5


def test_the_reference_gets_what_the_definition_says(reference):
    made = reference()
    inputs = made.draw(InputMode.STANDARD, "a")
    expected = made.expect(inputs)
    x, weight, bias, rows, _ = inputs
    weight, bias = weight.view(torch.float8_e4m3fn), bias.view(torch.float32)
    assert 0.9 < weight.float().std() < 1.1
    assert 0.9 < bias.std() < 1.1
    product = (x.float() @ weight.float().T) * 0.5 + bias[rows]
    assert expected.structure is Structure.TUPLE
    y, sums = expected.trusted
    assert torch.equal(y, product.bfloat16())
    assert torch.equal(sums, bias.sum(dim=1))


def test_two_draws_differ_but_for_what_a_file_holds(reference):
    made = reference()
    first, second = (tensors_in(made.draw(InputMode.STANDARD, "a", i)) for i in range(2))
    assert [torch.equal(a, b) for a, b in zip(first, second, strict=True)] == [False, False, False, True]


def test_what_a_file_holds_cannot_be_changed_by_a_call(reference):
    made = reference()
    made.draw(InputMode.STANDARD, "a")[3].zero_()
    assert made.draw(InputMode.STANDARD, "a")[3].tolist() == list(ROWS)


def test_every_kind_of_number_can_be_drawn(reference):
    dtypes = ["float16", "float64", "int64", "int16", "uint8", "bool", "float8_e5m2", "bfloat16"]
    made = reference(*simple(dtypes, ["float16"], "return a * f"))
    drawn = made.draw(InputMode.STANDARD, "a")
    assert [tensor.dtype for tensor in drawn] == [
        torch.float16,
        torch.int64,
        torch.int64,
        torch.int16,
        torch.uint8,
        torch.bool,
        torch.int8,
        torch.int16,
    ]
    assert all(tensor.unique().numel() > 1 for tensor in drawn)
    assert drawn[1].view(torch.float64).abs().max() < 10


def test_reference_runs_in_higher_precision_if_possible(reference):
    made = reference(*simple(["bfloat16", "bfloat16"], ["bfloat16"], "return torch.tanh(a) * b"))
    inputs = made.draw(InputMode.STANDARD, "a")
    expected = made.expect(inputs)
    assert made.precision == "float64"
    assert expected.outputs[0].dtype is torch.float64
    assert torch.equal(expected.outputs[0], torch.tanh(inputs[0].double()) * inputs[1].double())
    assert expected.trusted[0].dtype is torch.bfloat16


def test_outputs_get_the_dtypes_of_the_definition(reference):
    made = reference(*simple(["float16"], ["float32", "float16"], "return [a, a.float()]"))
    expected = made.expect(made.draw(InputMode.STANDARD, "a"))
    assert [tensor.dtype for tensor in expected.trusted] == [torch.float32, torch.float16]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return {'y0': a}", "does not return y1"),
        ("return a", "returns 1 outputs; expected 2: y0, y1"),
        ("return a, a, a", "returns 3 outputs"),
    ],
)
def test_a_reference_that_returns_something_else_is_told(reference, body, message):
    with pytest.raises(ValueError, match=message):
        reference(*simple(["float32"], ["float32", "float32"], body))


def test_a_plain_number_becomes_a_tensor(reference):
    definition, workload = simple(["float32"], ["float32"], "return float(a.sum())")
    made = reference(changed(definition, "outputs.y0.shape", None), workload)
    (answer,) = made.expect(made.draw(InputMode.STANDARD, "a")).trusted
    assert (answer.dim(), answer.dtype) == (0, torch.float32)


def made_by_the_definition(returns):
    definition, workload = simple(["bfloat16", "float32"], ["bfloat16"], "return (a.float() * b).bfloat16()")
    maker = f"\n\ndef make(sizes, device):\n    m, h = sizes['M'], sizes['H']\n    return {returns}\n"
    definition = changed(definition, "reference", definition["reference"] + maker)
    definition["custom_inputs_entrypoint"] = "make"
    return definition, changed(workload, "inputs", {name: {"type": "custom"} for name in "ab"})


def test_inputs_made_by_the_definition_are_checked_and_carried(reference):
    good = "{'b': torch.rand(m, h, device=device), 'a': torch.rand(m, h, device=device).bfloat16()}"
    a, b = reference(*made_by_the_definition(good)).draw(InputMode.STANDARD, "a")
    assert (a.dtype, b.dtype) == (torch.bfloat16, torch.int32)
    assert 0 <= b.view(torch.float32).min() <= b.view(torch.float32).max() <= 1


@pytest.mark.parametrize("other", ["torch.rand(m, h)", "torch.rand(h, m).bfloat16()"])
def test_inputs_of_wrong_kind_are_refused(reference, other):
    with pytest.raises(ValueError, match="make makes a torch"):
        reference(*made_by_the_definition(f"{{'b': torch.rand(m, h), 'a': {other}}}"))


def test_a_file_that_became_shorter_is_told(reference, tmp_path):
    made = reference()
    (blob,) = (tmp_path / "staged").glob("*.safetensors")
    blob.write_bytes(blob.read_bytes()[:-1])
    made._module._read.clear()
    with pytest.raises(ValueError, match="ends before"):
        made.draw(InputMode.STANDARD, "a")


# ---- solutions


@pytest.fixture
def candidate(tmp_path, monkeypatch):
    """Import the module of a solution like in a worker."""
    for name in ("main", "helper"):
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def make(solution=SOLUTION, definition=DEFINITION, workload=WORKLOAD):
        root = write_solution(write_set(tmp_path / "set", definition, workload), solution)
        problems = {problem.id: problem for problem in load_source("flashinfer", root).problems}
        (found,), unreadable = load_candidates("flashinfer", root, problems)
        assert not unreadable
        path = stage(found.code, tmp_path / "candidate", "candidate.py")
        spec = importlib.util.spec_from_file_location("candidate", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.ModelNew()

    return make


def into_outputs(content=INTO_OUTPUTS):
    solution = changed(SOLUTION, "sources", [{"path": "main.py", "content": content}])
    return changed(solution, "spec.destination_passing_style", True)


@pytest.mark.parametrize("solution", [SOLUTION, into_outputs()], ids=["returns", "writes"])
def test_a_solution_computes_what_the_reference_does(reference, candidate, solution):
    made, model = reference(), candidate(solution)
    inputs = made.draw(InputMode.STANDARD, "a")
    returned = model(*inputs)
    for got, want in zip(returned, made.expect(inputs).trusted, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        torch.testing.assert_close(got, want)


def test_destination_outputs_are_new_and_axes_computed(candidate):
    definition, workload = simple(["float32"], ["int32"], "return a")
    definition["axes"]["P"] = {"type": "expr", "expression": "M * H // 2"}
    definition["outputs"]["y0"]["shape"] = ["P"]
    model = candidate(into_outputs("def run(a, y0):\n    y0.fill_(y0.numel())\n"), definition, workload)
    first, second = model(torch.zeros(5, 32)), model(torch.zeros(5, 32))
    assert first.tolist() == [80] * 80
    assert first.dtype is torch.int32
    assert first.data_ptr() != second.data_ptr()


@pytest.mark.parametrize(
    ("main", "status"),
    [
        (INTO_OUTPUTS, Status.PASSED),
        (INTO_OUTPUTS.replace("* scale", ""), Status.INCORRECT_VALUES),
        ("import nothing_of_this_name\n", Status.LOAD_ERROR),
    ],
)
def test_a_whole_session(tmp_path, main, status):
    root = write_solution(write_set(tmp_path / "set"), into_outputs(main))
    loaded = load_source("flashinfer", root)
    (problem,) = loaded.problems
    (found,), _ = load_candidates("flashinfer", root, {problem.id: problem})
    (tmp_path / "session").mkdir()
    processes = SessionProcesses(tmp_path / "session")
    workload = WorkloadSpec(problem.workloads[0].name, problem.workloads[0].values)
    job = make_job(dtype=Dtype.BF16, workloads=(workload,), protocol=QUICK)
    try:
        for contestant, code in zip(job.contestants, (found.code, problem.code), strict=True):
            place = processes.root / "code" / contestant.name
            place.parent.mkdir(exist_ok=True)
            stage(code, place, contestant.file)
            processes.start_worker(contestant, code.module().decode())
        stage(problem.code, processes.root / "judge", "problem.py")
        processes.begin(job, problem.code.module().decode())
        assert processes.start_judge().wait(90) == 0
        report = processes.report()
    finally:
        processes.end()
    assert report.status is status, report
