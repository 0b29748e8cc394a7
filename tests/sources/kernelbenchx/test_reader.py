import ast
import json
import textwrap

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Dtype
from kernel_matrix.model.messages import ContractSpec
from kernel_matrix.sources import load_source
from kernel_matrix.sources.kernelbenchx.reader import FIXED_INPUTS, MOST_WORKLOADS, adapter_of, split
from tests.sources.kernelbenchx_set import PRODUCT, SCALED_SUM, SEPARATOR, checkout, task


@pytest.fixture
def root(tmp_path):
    return checkout(tmp_path)


def read(folder, function, test, name="work"):
    """Return the problem of a folder with one task."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(task(function, test))
    (problem,) = load_source("kernelbenchx", folder).problems
    return problem


def cases(problem):
    return {workload.name: workload.values["CASE"] for workload in problem.workloads}


def test_a_checkout_is_read_with_its_metadata(root):
    loaded = load_source("kernelbenchx", root)
    assert not loaded.unreadable
    assert [(p.id, p.source, p.category, p.level) for p in loaded.problems] == [
        ("Fusion/scaled_sum", "kernelbenchx", "Fusion", 3),
        ("Quantization/product_w8a8", "kernelbenchx", "Quantization", 4),
    ]
    summed, product = loaded.problems
    assert summed.description == "Sums several tensors and scales."
    assert (summed.dtypes, summed.tags, summed.outliers, summed.contract) == ((Dtype.FP32,), (), True, None)
    assert product.contract == ContractSpec("w8a8", 0.95, 0.05, 0.1, pytest.approx(20.0), 300.0)
    assert not product.outliers


@pytest.mark.parametrize("inner", ["data", "data/kernelbenchx"])
def test_the_inner_folders_are_as_good(root, inner):
    inside = load_source("kernelbenchx", root / inner)
    assert [p.digest for p in inside.problems] == [p.digest for p in load_source("kernelbenchx", root).problems]


def test_a_flat_folder_is_read_too(tmp_path):
    folder = tmp_path / "TritonBench_T_v1"
    folder.mkdir()
    (folder / "scaled_sum.py").write_text(SCALED_SUM)
    rows = [{"file": "scaled_sum.py", "difficulty": "2", "description": "Sums."}]
    (tmp_path / "TritonBench_T_v1.jsonl").write_text(json.dumps(rows))
    (problem,) = load_source("kernelbenchx", tmp_path).problems
    assert (problem.id, problem.category, problem.level) == ("TritonBench_T_v1/scaled_sum", "Other", 2)
    assert problem.description == "Sums."


def test_without_metadata_the_docstring_describes_a_task(root):
    (root / "data/kernelbenchx_v1.json").unlink()
    summed, product = load_source("kernelbenchx", root).problems
    assert (summed.level, summed.description) == (None, "Adds tensors up, then scales them.")
    assert (product.contract, product.description) == (None, "product w8a8")


def test_the_parts_of_a_file_lie_beside_one_adapter_for_all(root):
    problem = load_source("kernelbenchx", root).problems[0]
    assert set(problem.extra_files) == {"task.py", "test_segment.py"}
    before, test = (problem.extra_files[name].decode() for name in ("task.py", "test_segment.py"))
    assert before == SCALED_SUM.split(SEPARATOR)[0]
    assert test.lstrip() == SCALED_SUM.split(SEPARATOR)[1].lstrip()
    own_line = next(n for n, line in enumerate(SCALED_SUM.splitlines()) if line.startswith("test_results"))
    assert test.splitlines()[own_line].startswith("test_results")
    assert problem.adapter == adapter_of("scaled_sum", "task.py")
    ast.parse(problem.adapter, feature_version=(3, 9))


def test_drawn_calls_become_workloads_and_largest_is_default(root):
    assert cases(load_source("kernelbenchx", root).problems[0]) == {"default": 4, "case2": 2, "case6": 6, "case8": 8}


def test_calls_are_few(tmp_path):
    test = """
    import torch
    def test_work():
        return [work(torch.randn(n)) for n in range(1, 30)]
    test_results = test_work()
    """
    problem = read(tmp_path, "def work(x):\n    return x", test)
    assert len(problem.workloads) == MOST_WORKLOADS
    assert cases(problem)["default"] == 28


def test_fixed_inputs_are_one_workload_with_a_tag(tmp_path):
    test = """
    import torch
    def test_work():
        work(torch.tensor([1.0], device='cuda'))
        work(torch.tensor([1.0, 2.0], device='cuda'))
        work(torch.tensor([2.0], device='cuda'))
    test_work()
    """
    problem = read(tmp_path, "def work(x):\n    return x", test)
    assert cases(problem) == {"default": 1}
    assert problem.tags == (FIXED_INPUTS,)


DRAWN = {
    "float16": ("torch.randn(4, dtype=torch.float16)", Dtype.FP16, True),
    "cast": ("torch.randn(4).to(torch.bfloat16)", Dtype.BF16, True),
    "method": ("torch.randn(4, device='cuda').double()", Dtype.FP64, True),
    "helper": ("rand_tensor((4, 4), dtype=torch.float64)", Dtype.FP64, True),
    "integers": ("rand_int((4,), low=0, high=9, dtype=torch.int32)", Dtype.INT32, True),
    "bytes": ("torch.randint(0, 9, (4,)).to(torch.int8)", Dtype.INT8, True),
    "a mask beside": ("torch.randn(4), rand_bool((4,))", Dtype.FP32, True),
    "complex": ("torch.randn(4, dtype=torch.complex64)", Dtype.FP32, True),
    "kept in range": ("torch.randn(4).tanh()", Dtype.FP32, False),
    "positive": ("torch.randn(4) + 3.0", Dtype.FP32, False),
    "uniform": ("torch.rand(4)", Dtype.FP32, False),
    "helper, uniform": ("rand_tensor((4,), mode='uniform')", Dtype.FP32, False),
    "fixed beside": ("torch.randn(4), torch.ones(4)", Dtype.FP32, False),
}


@pytest.mark.parametrize("name", DRAWN)
def test_dtype_and_outliers_follow_what_is_drawn(tmp_path, name):
    arguments, dtype, outliers = DRAWN[name]
    test = f"import torch\ndef test_work():\n    x = work({arguments})\n    return x\ntest_results = test_work()"
    problem = read(tmp_path, "def work(*x):\n    return x", test)
    assert (problem.dtypes, problem.outliers) == ((dtype,), outliers)


@pytest.mark.parametrize(
    ("stem", "dtype"), [("mul_fp16", Dtype.FP16), ("mul_bf16", Dtype.BF16), ("mul_int8", Dtype.INT8)]
)
def test_a_dtype_in_the_name_holds(tmp_path, stem, dtype):
    test = f"import torch\ntest_results = {stem}(torch.randn(4))"
    assert read(tmp_path, f"def {stem}(x):\n    return x", test, stem).dtypes == (dtype,)


WRITES = {
    "a method": ("def work(x):\n    return x.mul_(2)", "", True),
    "of a view": ("def work(x):\n    return x[0].view(-1).mul_(2)", "", True),
    "an assignment": ("def work(x):\n    x[0] = 1\n    return x", "", True),
    "an operator": ("def work(x):\n    x += 1\n    return x", "", True),
    "of its own": ("def work(x):\n    y = x.clone()\n    return y.mul_(2)", "", False),
    "when asked to": ("def work(x, inplace=False):\n    return x.relu_() if inplace else x.relu()", "", False),
    "asked to": ("def work(x, inplace=False):\n    return x.relu_() if inplace else x.relu()", ", inplace=True", True),
    "statistics": ("def work(x, running_mean, training=True):\n    return x", ", torch.zeros(4)", True),
    "statistics that stay": (
        "def work(x, running_mean, training=True):\n    return x",
        ", torch.zeros(4), False",
        False,
    ),
    "no output": ("def work(x, out=None):\n    return x", "", False),
    "an output": ("def work(x, out=None):\n    return x", ", out=torch.empty(4)", True),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_a_function_writes_into_is_seen(tmp_path, name):
    function, more, writes = WRITES[name]
    problem = read(tmp_path, function, f"import torch\ntest_results = work(torch.randn(4){more})")
    assert problem.mutates_inputs is writes


DROPOUT = "import torch\ndef work(x, p=0.5, training=True):\n    return torch.dropout(x, p, training)"


@pytest.mark.parametrize(
    ("more", "random"), [("", True), (", 0.1", True), (", p=0.0", False), (", 0.0", False), (", training=False", False)]
)
def test_random_answers_are_seen(tmp_path, more, random):
    assert read(tmp_path, DROPOUT, f"import torch\ntest_results = work(torch.randn(4){more})").random is random


def test_repeatable_calls_precede_random_and_output_calls(tmp_path):
    function = DROPOUT.replace("training=True)", "training=True, out=None)", 1)
    test = """
    import torch
    work(torch.randn(64, 64))
    work(torch.randn(4, 4), p=0.0)
    work(torch.randn(64, 64), p=0.0, out=torch.empty(64, 64))
    work(torch.randn(8, 8), training=False)
    """
    problem = read(tmp_path, function, test)
    assert cases(problem) == {"default": 3, "case1": 1}
    assert not problem.random
    assert not problem.mutates_inputs


def test_the_function_may_have_another_name_than_the_file(tmp_path):
    function = "def helper(x):\n    return x\n\ndef lion_step(x):\n    return helper(x)"
    problem = read(tmp_path, function, "import torch\ntest_results = lion_step(torch.randn(4))", "Lion")
    assert problem.adapter == adapter_of("lion_step", "task.py")


def test_digest_covers_function_test_and_thresholds(root):
    def digests():
        return [problem.digest for problem in load_source("kernelbenchx", root).problems]

    first = digests()
    path = root / "data/kernelbenchx/Fusion/scaled_sum.py"
    path.write_text(SCALED_SUM.replace("(16, 32)", "(16, 33)"))
    second = digests()
    metadata = root / "data/kernelbenchx_v1.json"
    metadata.write_text(metadata.read_text().replace("0.95", "0.96"))
    third = digests()
    assert first[0] != second[0] == third[0]
    assert first[1] == second[1] != third[1]


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(root):
    folder = root / "data/kernelbenchx/Math"
    folder.mkdir()
    (folder / "bare.py").write_text("def bare(x):\n    return x\n")
    (folder / "broken.py").write_text(task("def broken(x):\n    return x", "x = 1\ndef test_broken(:\n    pass"))
    (folder / "untested.py").write_text(task("def untested(x):\n    return x", "print('nothing')"))
    loaded = load_source("kernelbenchx", root)
    assert len(loaded.problems) == 2
    bare, broken, untested = map(str, loaded.unreadable)
    assert bare == f"{folder / 'bare.py'}: has no line of 80 or more '#' between the function and its test"
    assert broken.startswith(f"{folder / 'broken.py'}:7: not valid Python: ")
    assert untested.endswith("untested.py: the test calls no function of the part before it, which has: untested")


@pytest.mark.parametrize(
    "thresholds", ['{"cosine_sim": 0.9}', '{"cosine_sim": 0.9, "l1_relative": 0.1, "rmse": 0}', '{"cosine_sim": []}']
)
def test_thresholds_that_make_no_sense_are_no_contract(root, thresholds):
    path = root / "data/kernelbenchx_v1.json"
    rows = json.loads(path.read_text())
    rows[1]["precision_thresholds"] = json.loads(thresholds)
    path.write_text(json.dumps(rows))
    loaded = load_source("kernelbenchx", root)
    assert [problem.id for problem in loaded.problems] == ["Fusion/scaled_sum"]
    assert "precision_thresholds in the metadata must give" in loaded.unreadable[0].reason


def test_invalid_metadata_is_reported_and_tasks_are_read(root):
    path = root / "data/kernelbenchx_v1.json"
    path.write_text("[\n{]")
    loaded = load_source("kernelbenchx", root)
    assert len(loaded.problems) == 2
    assert (loaded.unreadable[0].path, loaded.unreadable[0].line) == (path, 2)


@pytest.mark.parametrize("content", [None, "def work(x):\n    return x\n"])
def test_any_other_folder_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "work.py").write_text(content)
    with pytest.raises(UsageError, match="has no task of KernelBench-X or TritonBench-T"):
        load_source("kernelbenchx", tmp_path)
    with pytest.raises(UsageError, match="has no task"):
        load_source("kernelbenchx", tmp_path / "absent")


HOSTILE = {
    "a long loop": "for i in range(10 ** 12):\n    work(torch.randn(i))",
    "loops in loops": "\n".join(f"{'    ' * n}for i{n} in range(64):" for n in range(9)) + f"\n{'    ' * 9}pass",
    "a long text": "x = 'a' * 10 ** 12\nwork(torch.randn(4))",
    "large numbers": "x = 1 << 62\ny = x * x * x\nfor i in range(64):\n    y = y * y\nwork(torch.randn(y))",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_test_keeps_the_reader_busy(tmp_path, name):
    test = "import torch\nwork(torch.randn(4))\n" + textwrap.dedent(HOSTILE[name])
    problem = read(tmp_path, "def work(x):\n    return x", test)
    assert len(problem.workloads) <= MOST_WORKLOADS


def test_split_takes_windows_line_ends():
    assert split(f"a\r\n{SEPARATOR}\r\nb\r\n".encode()) == (b"a\r\n", b"\n\nb\r\n")
    assert split(PRODUCT.encode())[1] is not None
    assert split(b"a\n# ----\nb") == (b"a\n# ----\nb", None)
