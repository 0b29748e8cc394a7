import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Language
from kernel_matrix.sources import Origin, load_candidates, load_source
from tests.sources.examples import REFERENCE, write

KERNEL = "import triton\n\n@triton.jit\ndef kernel(x):\n    pass\n\nclass ModelNew:\n    pass\n"


@pytest.fixture
def problems(tmp_path):
    for name in ("level1/1_Square_matrix_multiplication_", "level1/19_ReLU", "level2/1_Conv2D_ReLU_BiasAdd"):
        write(tmp_path / f"KernelBench/{name}.py", REFERENCE)
    return {problem.id: problem for problem in load_source("kernelbench", tmp_path).problems}


def kernel(run, level, number, sample, text=KERNEL):
    return write(run / f"level_{level}_problem_{number}_sample_{sample}_kernel.py", text)


def test_a_run_is_matched_by_level_and_number(tmp_path, problems):
    run = tmp_path / "runs/some model@v2"
    for place in ((1, 19, 10), (2, 1, 0), (1, 19, 2), (1, 1, 0)):
        kernel(run, *place)
    (run / "eval_results.json").write_text("{not read")
    found, refused = load_candidates("kernelbench", run, problems)
    assert not refused
    assert [candidate.id for candidate in found] == [
        "level1/1_Square_matrix_multiplication_/some_model_v2-0",
        "level1/19_ReLU/some_model_v2-2",
        "level1/19_ReLU/some_model_v2-10",
        "level2/1_Conv2D_ReLU_BiasAdd/some_model_v2-0",
    ]
    last = found[-1]
    assert last.problem_id == "level2/1_Conv2D_ReLU_BiasAdd"
    assert (last.entry, last.adapter, last.language) == ("ModelNew", "", Language.TRITON)
    assert last.code.module() == KERNEL.encode()
    assert found[2].origin == Origin(method="some model@v2", sample=10)


def test_a_folder_of_runs_is_read_run_by_run(tmp_path, problems):
    kernel(tmp_path / "runs/b", 1, 19, 0)
    kernel(tmp_path / "runs/a", 1, 19, 0)
    found, _ = load_candidates("kernelbench", tmp_path / "runs", problems)
    assert [candidate.id for candidate in found] == ["level1/19_ReLU/a-0", "level1/19_ReLU/b-0"]


def test_the_digest_is_of_the_source(tmp_path, problems):
    for sample, text in enumerate((KERNEL, KERNEL, KERNEL + "#\n")):
        kernel(tmp_path / "run", 1, 19, sample, text)
    found, _ = load_candidates("kernelbench", tmp_path / "run", problems)
    first, same, other = (candidate.digest for candidate in found)
    assert first == same != other


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(tmp_path, problems):
    run = tmp_path / "run"
    kernel(run, 1, 19, 0)
    kernel(run, 3, 7, 0)
    write(run / "notes.py", "")
    found, refused = load_candidates("kernelbench", run, problems)
    assert [candidate.id for candidate in found] == ["level1/19_ReLU/run-0"]
    assert sorted(bad.reason for bad in refused) == [
        "is for problem 7 of level 3, which is not among the problems read",
        "is not named level_<level>_problem_<number>_sample_<sample>_kernel.py",
    ]


@pytest.mark.parametrize("name", ["absent", "empty", "other"])
def test_any_other_folder_is_refused(tmp_path, problems, name):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "other/kernel.py", KERNEL)
    with pytest.raises(UsageError, match="is not a KernelBench run"):
        load_candidates("kernelbench", tmp_path / name, problems)
