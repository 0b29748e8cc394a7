"""The benchmark that compares harnesses: its kernels, what it gives to peers, and how it reads their verdicts."""

from __future__ import annotations

import json
import sys

import pytest

from tests.own_python import ROOT, run_python

with pytest.MonkeyPatch.context() as _patch:  # for these imports alone: others there have names of folders of tests
    _patch.syspath_prepend(ROOT / "benchmarks")
    import harnesses
    import mixed_kernels
    import trace_files

CLI = """
import json, pathlib, sys

def cli():
    folder = pathlib.Path(sys.argv[1])
    definition, solution = (json.loads((folder / f"{name}.json").read_text()) for name in ("definition", "solution"))
    reference, kernel = {}, {}
    exec(definition["reference"], reference)
    exec(solution["sources"][0]["content"], kernel)
    import torch
    for line in (folder / "workload.jsonl").read_text().splitlines():
        axes = json.loads(line)["axes"]
        shapes = [[axes[axis] for axis in one["shape"]] for one in definition["inputs"].values()]
        inputs = [torch.randn(shape) for shape in shapes]
        equal = torch.allclose(reference["run"](*inputs), kernel["run"](*inputs), atol=1e-5)
        print(json.dumps({"evaluation": {"status": "PASSED" if equal else "INCORRECT_NUMERICAL"}}))
    sys.exit(0 if equal else 1)
"""
"""As much of SOL-ExecBench as the benchmark calls."""
EVAL = """
class Result:
    metadata = {"trials": 5}

def eval_kernel_against_ref(reference, source, **options):
    Result.correctness = "clamp" in source and "class Model(" in reference and options["num_correct_trials"] == 5
    return Result
"""
CHECKER = "def validate_kernel_static(source, backend, precision): return 'relu_' not in source, [backend], []"


def kernels(*ids):
    return [kernel for kernel in mixed_kernels.mixed_kernels() if kernel.id in ids]


def checkout(folder, package, files):
    for name, text in files.items():
        path = folder / "src" / package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def judged(harness, kernel):
    arguments = harnesses.argparse.Namespace(cpu=True, timeout=120.0)
    return harnesses.evaluate(harness, kernel, arguments)


def test_kernels_are_as_many_and_say_why_they_are_wrong():
    found = mixed_kernels.mixed_kernels()
    assert [sum(kernel.is_right is kind for kernel in found) for kind in (True, False)] == [20, 20]
    assert len({kernel.id for kernel in found}) == 40
    own = [kernel for kernel in found if not kernel.is_of_suite]
    assert {str(path) for path in mixed_kernels.OWN.glob("*/*.py")} == {str(kernel.path) for kernel in own}
    assert all(kernel.docstring.startswith("Right: " if kernel.is_right else "Wrong: ") for kernel in own)
    for kernel in set(found) - set(own):
        declared = kernel.path.with_suffix(".toml").read_text()
        assert ('expect = "passed"' in declared) is kernel.is_right, kernel


@pytest.mark.torch
def test_trace_files_have_the_shapes_of_all_workloads():
    kernel = kernels("max_pool2d/torch_slices")[0]
    problem = mixed_kernels.mixed_problems()["max_pool2d"]
    definition, workloads, solution = trace_files.trace_files(kernel, problem, ("smoke", "default"), {"language": "x"})
    assert definition["outputs"]["output"] == {"shape": [f"output_{at}" for at in range(4)], "dtype": "float32"}
    assert [[one["axes"][f"output_{at}"] for at in range(4)] for one in workloads] == [[2, 5, 9, 11], [64, 128, 56, 56]]
    assert solution["spec"]["language"] == "x"


@pytest.mark.torch
def test_sol_execbench_verdicts_are_those_of_its_traces(tmp_path):
    peer = harnesses.sol_execbench(checkout(tmp_path, "sol_execbench", {"__init__.py": "", "cli.py": CLI}), ("smoke",))
    for kernel in kernels("attention/torch_steps", "attention/torch_fixed_scale"):
        found = judged(peer, kernel)
        assert (found.verdict, found.is_correct) == ("right" if kernel.is_right else "wrong", True), found.detail


@pytest.mark.torch
def test_kernelbench_checks_sources_and_may_crash(tmp_path):
    files = {"__init__.py": "", "eval.py": EVAL, "kernel_static_checker.py": CHECKER}
    peer = harnesses.kernelbench(checkout(tmp_path, "kernelbench", files))
    for kernel in kernels("relu/torch_clamp", "relu/torch_in_place"):
        found = judged(peer, kernel)
        assert found.verdict == ("right" if kernel.is_right else "wrong"), found.detail
    assert "torch" in found.detail  # the backend that the check was told
    (tmp_path / "src" / "kernelbench" / "eval.py").write_text("raise SystemError('no driver')")
    crashed = judged(peer, kernels("relu/torch_clamp")[0])
    assert (crashed.verdict, crashed.is_correct, crashed.detail) == ("crashed", False, "SystemError: no driver")


def test_a_missing_trace_is_no_verdict():
    passed = {"evaluation": {"status": "PASSED"}}
    done = harnesses.Done(1, "", "Traceback\nKilled")
    assert harnesses.of_traces([passed, passed], 2, done) == ("right", "PASSED PASSED")
    assert harnesses.of_traces([passed], 2, done) == ("crashed", "Killed")


def test_commands_past_their_limit_are_killed():
    argv = (sys.executable, "-c", "import time; time.sleep(600)")
    done = harnesses.run(argv, dict(harnesses.os.environ), limit_s=1.0)
    assert (done.code, done.last_line) == (None, "took more than 1 s")


@pytest.mark.torch
def test_kernels_that_are_known_are_not_evaluated_again(tmp_path):
    first = harnesses.Evaluation("kernel-matrix", "relu/triton_flat", True, "right", "", 2.0, None)
    (tmp_path / "harnesses.jsonl").write_text(json.dumps(harnesses.asdict(first)) + "\n")
    argv = (ROOT / "benchmarks" / "harnesses.py", "--cpu", "--only", "1", "--folder", tmp_path)
    shown = run_python(*map(str, argv), packages=str(ROOT / "runner"))
    row = shown.splitlines()[-1]
    assert " ".join(row.split()) == "kernel-matrix 1 of 1 0 of 0 0 2.0 2.0 0"
