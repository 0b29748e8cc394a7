"""The adapter of KernelBench-X, run like in judge, baseline and candidate."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import copy
import sys

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.arguments import decode_arguments, encode_arguments
from kernel_matrix.inside.judge.controls import accepts, check_repeatable, check_worthless
from kernel_matrix.inside.judge.reference import ReferenceModel
from kernel_matrix.inside.judge.tolerance import Tolerance
from kernel_matrix.inside.source_module import import_file
from kernel_matrix.inside.wire import Structure
from kernel_matrix.model.enums import InputMode
from kernel_matrix.sources import load_candidates, load_source
from tests.sources.kernelbenchx_set import checkout, stage, task

pytestmark = pytest.mark.torch

SECRET = "0" * 32


@pytest.fixture
def problems(tmp_path):
    return {problem.id: problem for problem in load_source("kernelbenchx", checkout(tmp_path / "set")).problems}


def reference(problem, folder, case=None, device="cpu"):
    values = dict(problem.workloads[0].values) if case is None else {"CASE": case}
    return ReferenceModel(stage(problem.code, folder / "judge"), values, device, problem.dtypes[0], SECRET)


def crossed(arguments):
    """Return the arguments as another process receives them."""
    tensors = []
    return decode_arguments(encode_arguments(arguments, tensors), tensors)


def work(folder, function, test):
    """Return the problem of one task."""
    folder.mkdir(exist_ok=True)
    (folder / "work.py").write_text(task("import torch\n" + function, "import torch\n" + test))
    (problem,) = load_source("kernelbenchx", folder).problems
    return problem


def test_every_workload_of_every_problem_passes_its_controls(problems, tmp_path):
    for problem in problems.values():
        for workload in problem.workloads:
            judged = reference(problem, tmp_path / workload.name, workload.values["CASE"])
            inputs = judged.draw(InputMode.STANDARD, "before", 0)
            expected, tolerance = judged.expect(inputs), Tolerance.of(judged.dtype, {})
            check_repeatable(judged, inputs, expected, tolerance)
            check_worthless(expected, tolerance)


def test_tensors_are_arguments_and_all_else_is_the_constructors(problems, tmp_path):
    judged = reference(problems["Fusion/scaled_sum"], tmp_path)
    x, y = judged.draw(InputMode.STANDARD, "before", 0)
    assert x.shape == y.shape == (16, 32)
    (recipe,) = judged.init_arguments
    assert recipe == {
        "arguments": [{"tensor": 0}, {"list": [{"tensor": 1}, {"tensor": 0}]}, {"value": 2.0}],
        "keywords": {"kind": {"value": "both"}, "dtype": {"torch": "float32"}},
        "device": "cpu",
    }
    expected = judged.expect([x, y])
    assert expected.structure is Structure.TUPLE
    count, total = expected.trusted
    assert torch.equal(count, torch.tensor(3))
    assert torch.equal(total, (x + y + x) * 2.0)


def test_inputs_follow_the_seed_alone_whatever_the_test_seeds(problems, tmp_path):
    judged = reference(problems["Fusion/scaled_sum"], tmp_path)
    first, again, other = (judged.draw(InputMode.STANDARD, *purpose) for purpose in (["a"], ["a"], ["b"]))
    assert all(map(torch.equal, first, again))
    assert not any(map(torch.equal, first, other))


def test_a_test_leaves_nothing_behind(problems, tmp_path, capsys):
    path, modules = list(sys.path), set(sys.modules)
    reference(problems["Fusion/scaled_sum"], tmp_path)
    assert sys.path == path
    assert not {"data_utils", "scaled_sum"} & (set(sys.modules) - modules)
    assert capsys.readouterr().out == ""


def test_tests_are_made_for_the_device_the_judge_is_on(problems, tmp_path):
    module = import_file(stage(problems["Fusion/scaled_sum"].code, tmp_path), "on_meta", {"CASE": 0})
    with torch.device("meta"):
        (tensor,) = module.get_inputs()
    assert tensor.device.type == "meta"


def test_a_case_that_is_not_there_is_told(problems, tmp_path):
    with pytest.raises(ValueError, match="scaled_sum: the test makes 10 calls, so there is no case 10"):
        reference(problems["Fusion/scaled_sum"], tmp_path, case=10)


KINDS = {
    "a tuple": ("(2, [3, None])", "(2, [3, None])"),
    "a size": ("torch.empty(2, 3).shape", "torch.Size([2, 3])"),
    "a complex number": ("1 + 2j", "(1+2j)"),
    "a dictionary": ("{'a': 1.5, 'b': True}", "{'a': 1.5, 'b': True}"),
    "a dtype": ("torch.float16", "torch.float16"),
    "a layout": ("torch.strided", "torch.strided"),
    "a device": ("torch.device('cuda:0')", "device(type='cpu')"),
    "a device's name": ("'cuda'", "'cpu'"),
    "a word": ("'mean'", "'mean'"),
    "an infinity": ("float('inf')", "inf"),
}


@pytest.mark.parametrize("name", KINDS)
def test_arguments_of_every_kind_cross(tmp_path, name):
    written, shown = KINDS[name]
    function = f"def work(x, other):\n    assert repr(other) == {shown!r}, repr(other)\n    return x + 1"
    judged = reference(work(tmp_path / "set", function, f"work(torch.randn(3), {written})"), tmp_path)
    model = import_file(tmp_path / "judge/module.py", "elsewhere", {}).Model(*crossed(judged.init_arguments))
    assert torch.equal(model(torch.zeros(3)), torch.ones(3))


def test_a_generator_is_made_anew_where_the_function_runs(tmp_path):
    function = "def work(n, generator=None):\n    return torch.rand(n, generator=generator)"
    problem = work(tmp_path / "set", function, "work(64, generator=torch.Generator(device='cuda').manual_seed(1))")
    judged = reference(problem, tmp_path)
    assert problem.random
    assert judged.draw(InputMode.STANDARD, "a") == []
    assert not torch.equal(*(judged.answer([])[0] for _ in range(2)))


@pytest.mark.parametrize("argument", ["lambda y: y", "{1: 2}", "torch.nn.Linear(2, 2)"])
def test_what_cannot_cross_is_told(tmp_path, argument):
    problem = work(tmp_path / "set", "def work(x, other):\n    return x", f"work(torch.randn(3), {argument})")
    with pytest.raises(ValueError, match=r"work, case 0: an argument of type .* is unsupported"):
        reference(problem, tmp_path)


def test_numbers_that_are_drawn_are_told(tmp_path):
    test = "work(torch.randn(3), float(torch.rand(1)))"
    problem = work(tmp_path / "set", "def work(x, y):\n    return x * y", test)
    with pytest.raises(ValueError, match="case 0: arguments other than tensors are random"):
        reference(problem, tmp_path)


def test_earlier_calls_return_what_the_test_goes_on_with(tmp_path):
    test = "a, b = work(torch.randn(3))\nwork(a - b)"
    problem = work(tmp_path / "set", "def work(x):\n    return x + 1, x", test)
    (given,) = reference(problem, tmp_path, case=1).draw(InputMode.STANDARD, "a")
    torch.testing.assert_close(given, torch.ones(3))


def test_a_test_that_catches_everything_is_stopped_all_the_same(tmp_path):
    test = "try:\n    work(torch.zeros(3))\nexcept:\n    pass\nwork(torch.ones(4))"
    problem = work(tmp_path / "set", "def work(x):\n    return x", test)
    (given,) = reference(problem, tmp_path, case=0).draw(InputMode.STANDARD, "a")
    assert torch.equal(given, torch.zeros(3))


def test_a_test_may_import_the_function_by_its_file(tmp_path):
    problem = work(tmp_path / "set", "def work(x):\n    return x", "from work import work\nwork(torch.ones(3))")
    assert torch.equal(reference(problem, tmp_path).draw(InputMode.STANDARD, "a")[0], torch.ones(3))


def test_outliers_of_the_helper_are_few_and_far(problems, tmp_path):
    module = import_file(stage(problems["Fusion/scaled_sum"].code, tmp_path), "helpers", {})
    torch.manual_seed(0)
    plain, far, even = (
        module.rand_tensor((200, 200), mode=mode, outlier_prob=0.1, outlier_scale=10.0)
        for mode in ("standard", "outlier", "uniform")
    )
    assert plain.abs().max() < 6
    assert 0.03 < (far.abs() > 6).double().mean() < 0.08  # a tenth, of which more than half lie beyond 0.6 deviations
    assert -1 <= even.min() < -0.99 < 0.99 < even.max() < 1
    whole, flags = module.rand_int((100,), low=2, high=4), module.rand_bool((100,))
    assert (set(whole.tolist()), set(flags.tolist())) == ({2, 3}, {False, True})
    with pytest.raises(ValueError, match="mode must be standard, outlier or uniform; got 'normal'"):
        module.rand_tensor((2,), mode="normal")


# ---- candidates

HEAD = "def scaled_sum(x, others, scale=1.0, *, kind=None, dtype=None):\n    return "
ANSWERS = {
    "right": (f"{HEAD}[3, (x + sum(others)) * scale]", True),
    "under the other name": (
        f"{HEAD.replace('scaled_sum', 'kernel_function')}{{'b': (x + sum(others)) * scale, 'a': len(others) + 1}}",
        True,
    ),
    "wrong": (f"{HEAD}3, x + sum(others)", False),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_a_candidate(problems, tmp_path, name):
    code, right = ANSWERS[name]
    (tmp_path / "scaled_sum.py").write_text(code)
    ((candidate,), _) = load_candidates("kernelbenchx", tmp_path / "scaled_sum.py", problems)
    judged = reference(problems["Fusion/scaled_sum"], tmp_path)
    module = import_file(stage(candidate.code, tmp_path / "candidate"), f"candidate_{right}", {})
    model = getattr(module, candidate.entry)(*crossed(judged.init_arguments))
    inputs = judged.draw(InputMode.STANDARD, "before", 0)
    outputs = model(*copy.deepcopy(inputs))
    expected = judged.expect(inputs)
    assert isinstance(outputs, tuple)
    assert accepts(outputs, expected, Tolerance.of(judged.dtype, {})) is right
    assert not (tmp_path / "candidate/test_segment.py").exists()


def test_answer_without_function_fails_at_load(problems, tmp_path):
    (tmp_path / "scaled_sum.py").write_text("def other(x):\n    return x\n")
    ((candidate,), _) = load_candidates("kernelbenchx", tmp_path / "scaled_sum.py", problems)
    module = import_file(stage(candidate.code, tmp_path / "candidate"), "candidate_without", {})
    with pytest.raises(AttributeError, match=r"kernel.py defines neither scaled_sum nor kernel_function"):
        module.ModelNew({"arguments": [], "keywords": {}, "device": "cpu"})
