"""Solutions of flashinfer-bench and SOL-ExecBench, read without running anything of them."""

import importlib.util
import json
import shutil
import sys

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.sources import load_candidates, load_source
from tests.sources.flashinfer_set import (
    DEFINITION,
    INTO_OUTPUTS,
    SOLUTION,
    WORKLOAD,
    changed,
    write_set,
    write_solution,
)

KERNEL = "import triton\n\n\n@triton.jit\ndef kernel(p):\n    pass\n\n\n" + INTO_OUTPUTS
MODULE = """\
#include <pybind11/pybind11.h>
#include "twice.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &twice); }
"""


def native(**spec):
    solution = changed(SOLUTION, "sources", [{"path": "main.cpp", "content": MODULE}])
    solution["sources"].append({"path": "twice.h", "content": "inline int twice(int x) { return 2 * x; }\n"})
    values = {"languages": ["cuda_cpp"], "entry_point": "main.cpp::run", "binding": "torch", **spec}
    return changed(solution, "spec", {**changed(SOLUTION["spec"], "language", ...), **values})


@pytest.fixture
def problems(tmp_path):
    return {problem.id: problem for problem in load_source("flashinfer", write_set(tmp_path / "set")).problems}


@pytest.fixture
def read(tmp_path, problems):
    def make(*solutions):
        for place, solution in enumerate(solutions):
            write_solution(tmp_path / "set", solution, f"solutions/somebody/{place}.json")
        return load_candidates("flashinfer", tmp_path / "set", problems)

    return make


def facts_of(candidate):
    namespace = {}
    line = next(line for line in candidate.adapter.splitlines() if line.startswith("FACTS"))
    exec(line.replace("FACTS: dict[str, Any]", "facts"), {"json": json}, namespace)
    return namespace["facts"]


def test_a_solution_is_a_candidate(read):
    (found,), unreadable = read(SOLUTION)
    assert unreadable == ()
    assert (found.id, found.problem_id, found.language) == ("mixed_h32/plain_v1", "mixed_h32", Language.TORCH)
    assert (found.origin.method, found.origin.model) == ("somebody", "somebody")
    assert (found.entry, found.defines, found.dtypes) == ("ModelNew", "run", (Dtype.BF16,))
    assert found.description == "As plain as can be."
    assert list(found.extra_files) == list(found.code.written()) == ["main.py", "helper.py"]
    compile(found.adapter, "candidate.py", "exec")


def test_candidate_facts_lack_reference_and_workloads(read):
    (found,), _ = read(SOLUTION)
    assert DEFINITION["reference"] not in found.adapter
    assert set(facts_of(found)) == {"inputs", "outputs", "constants", "expressions", "destination", "entry"}


@pytest.mark.parametrize(
    ("spec", "content", "language"),
    [
        ({"language": "triton"}, INTO_OUTPUTS, Language.TRITON),
        ({"language": "Python"}, KERNEL, Language.TRITON),
        ({"languages": ["pytorch"]}, INTO_OUTPUTS, Language.TORCH),
        ({"languages": ["pytorch", "triton"]}, INTO_OUTPUTS, Language.TRITON),
        ({"language": "python"}, "from torch.utils import cpp_extension\n" + INTO_OUTPUTS, Language.CUDA),
        ({"language": "python"}, "def run(:", Language.TORCH),
    ],
)
def test_the_language_is_what_it_says_or_what_its_text_tells(read, spec, content, language):
    values = {"entry_point": "main.py::run", "target_hardware": ["B200"], **spec}
    (found,), _ = read(changed(changed(SOLUTION, "spec", values), "sources", [{"path": "main.py", "content": content}]))
    assert found.language is language


@pytest.mark.parametrize(
    ("said", "parameters", "writes"),
    [
        (True, "x", True),
        (False, "x, weight, bias, rows, scale, y, sums", False),
        (..., "x, weight, bias, rows, scale, y, sums", True),
        (..., "x, weight, bias, rows, scale", False),
        (..., "x, weight, bias, rows, scale, y=None, sums=None", True),
        (..., "*everything", True),
    ],
)
def test_solution_without_destination_flag_is_read_by_parameters(read, said, parameters, writes):
    solution = changed(SOLUTION, "spec.destination_passing_style", said)
    source = [{"path": "main.py", "content": f"def run({parameters}):\n    pass\n"}]
    (found,), _ = read(changed(solution, "sources", source))
    assert facts_of(found)["destination"] is writes


def test_a_lone_file_may_lie_in_a_folder(read):
    solution = changed(SOLUTION, "sources", [{"path": "src/main.py", "content": INTO_OUTPUTS}])
    (found,), _ = read(changed(solution, "spec.entry_point", "src/main.py::run"))
    assert list(found.extra_files) == ["main.py"]
    assert facts_of(found)["entry"] == {"module": "main", "function": "run"}


def test_compiled_sources_become_an_extension(read):
    flags = {"cuda_cflags": ["-O3"], "ld_flags": ["-lcuda"]}
    first, second = read(native(), changed(native(compile_options=flags), "name", "other"))[0]
    assert first.language is Language.CUDA
    entry, other = facts_of(first)["entry"], facts_of(second)["entry"]
    assert (entry["sources"], entry["files"]) == (["main.cpp"], ["main.cpp", "twice.h"])
    assert other["cuda_cflags"] == ["-O3"]
    assert entry["extension"] != other["extension"]


@pytest.mark.parametrize(
    ("solution", "reason"),
    [
        (native(binding="tvm-ffi"), 'spec.binding: binding "tvm-ffi" and a PYBIND11_MODULE: unsupported'),
        (changed(native(binding=None), "sources.0.content", "TVM_FFI_EXPORT"), "no binding and no PYBIND11_MODULE"),
        (changed(native(), "sources.0.path", "main.txt"), "sources: there is nothing to compile"),
        (native(compile_options={"cflags": "-O3"}), "spec.compile_options.cflags: must be a list"),
        (native(compile_options=["-O3"]), "spec.compile_options.cflags: must be a list"),
        (native(languages=["cuda_cpp", "triton"]), "spec.languages: cuda_cpp, triton is unsupported"),
        (native(languages=["cute_dsl"]), "spec.languages: cute_dsl is unsupported; supported: one of cpp, cuda,"),
        (changed(SOLUTION, "spec.language", ...), "spec.language: none is unsupported"),
        (changed(SOLUTION, "spec.language", "tilelang"), "spec.language: tilelang is unsupported"),
        (changed(SOLUTION, "spec.pip_packages", ["fbtriton"]), "spec.pip_packages: unsupported"),
        (changed(SOLUTION, "spec", []), "spec: must be an object"),
        (changed(SOLUTION, "spec.entry_point", "main.py"), "spec.entry_point: must be '<file>::<function>'"),
        (changed(SOLUTION, "spec.entry_point", "main.py::run()"), "spec.entry_point: must be '<file>::<function>'"),
        (changed(SOLUTION, "spec.entry_point", "other.py::run"), "spec.entry_point: names 'other.py'"),
        (changed(SOLUTION, "spec.destination_passing_style", "yes"), "must be true or false"),
        (changed(SOLUTION, "name", "../x"), "name: '../x' cannot be used in an id"),
        (changed(SOLUTION, "name", 3), "name: must be a text"),
        (changed(SOLUTION, "definition", "mixed_h3"), "is not a known problem of source flashinfer; did you mean"),
        (changed(SOLUTION, "sources", []), "sources: must be a list of 1 to 64 files"),
        (changed(SOLUTION, "sources", SOLUTION["sources"] * 40), "sources: must be a list of 1 to 64 files"),
        (changed(SOLUTION, "sources.0", "main.py"), "sources: each needs a path and a content"),
        (changed(SOLUTION, "sources.0.content", ...), "sources: each needs a path and a content"),
        (changed(SOLUTION, "sources.0.path", "/main.py"), "sources: '/main.py' is not a path within the solution"),
        (changed(SOLUTION, "sources.0.path", "../main.py"), "sources: '../main.py' is not a path within the solution"),
        (changed(SOLUTION, "sources.0.path", "a b.py"), "sources: 'a b.py' is not a path within the solution"),
        (changed(SOLUTION, "sources.0.path", "kernels/main.py"), "is in a folder, which is unsupported for"),
        (changed(SOLUTION, "sources.0.path", "candidate.py"), "sources: 'candidate.py' would hide the module"),
        (changed(SOLUTION, "sources.1.path", "torch.py"), "sources: 'torch.py' would hide the module 'torch'"),
        (changed(SOLUTION, "sources.1.path", "main.py"), "sources: there are two files 'main.py'"),
    ],
)
def test_what_cannot_be_used_is_told_and_the_others_stay(read, solution, reason):
    good = changed(SOLUTION, "name", "good")
    found, (unreadable,) = read(solution, good)
    assert [candidate.id for candidate in found] == ["mixed_h32/good"]
    assert unreadable.path.name == "0.json"
    assert reason in unreadable.reason
    assert unreadable.line is not None


def test_outputs_whose_size_no_input_has_cannot_be_allocated(tmp_path):
    definition = changed(changed(DEFINITION, "axes.Q", {"type": "var"}), "outputs.y.shape", ["Q"])
    root = write_set(tmp_path, definition, changed(WORKLOAD, "axes.Q", 3))
    write_solution(root, changed(SOLUTION, "spec.destination_passing_style", True))
    problems = {problem.id: problem for problem in load_source("flashinfer", root).problems}
    found, (unreadable,) = load_candidates("flashinfer", root, problems)
    assert not found
    assert "output 'y' cannot be allocated: no input has the size of axis 'Q'" in unreadable.reason


def test_a_second_solution_of_a_name_is_told(read):
    found, unreadable = read(SOLUTION, SOLUTION)
    assert len(found) == 1
    assert [it.reason.partition(" of ")[0] for it in unreadable] == ["has the name 'mixed_h32/plain_v1'"]


def test_a_solution_for_a_problem_of_another_source_is_told(tmp_path, problems, root):
    others = {"mixed_h32": load_source("folder", root).problems[0]}
    write_solution(tmp_path / "set")
    found, (unreadable,) = load_candidates("flashinfer", tmp_path / "set", others)
    assert not found
    assert "is not a known problem of source flashinfer" in unreadable.reason


def test_solutions_beside_a_problem_and_single_files_are_found(tmp_path, problems):
    folder = write_solution(tmp_path / "sol", SOLUTION, "mixed/solution_python.json")
    (folder / "mixed/definition.json").write_text("{}")
    (folder / "mixed/config.json").write_text("{}")
    for path in (folder, folder / "mixed/solution_python.json"):
        assert len(load_candidates("flashinfer", path, problems)[0]) == 1


def test_a_folder_without_solutions_is_refused(tmp_path, problems):
    with pytest.raises(UsageError, match="has no solution"):
        load_candidates("flashinfer", tmp_path / "none", problems)


def test_the_digest_is_of_all_that_decides(read):
    base = native()
    variants = [
        base,
        changed(base, "sources.1.content", "inline int twice(int x) { return x; }\n"),
        changed(base, "spec.compile_options", {"cflags": ["-O1"]}),
        changed(base, "spec.destination_passing_style", True),
    ]
    found, _ = read(*(changed(it, "name", f"n{i}") for i, it in enumerate(variants)))
    assert len({candidate.digest for candidate in found}) == len(variants)
    assert read(changed(base, "name", "n0"))[0][0].digest == found[0].digest


@pytest.mark.torch
@pytest.mark.skipif(not (shutil.which("g++") and shutil.which("ninja")), reason="no g++ or no ninja")
def test_an_extension_is_built_once(read, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    (found,), _ = read(native(languages=["cpp"]))
    times = []
    for folder in ("first", "second"):  # staged anew, as for the builder and for each session
        (tmp_path / folder).mkdir()
        for name, content in {"candidate.py": found.code.module(), **found.code.contents()}.items():
            (tmp_path / folder / name).write_bytes(content)
        spec = importlib.util.spec_from_file_location("candidate", tmp_path / folder / "candidate.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert module.FUNCTION(21) == 42
        (library,) = (tmp_path / "extensions").rglob("*.so")
        times.append(library.stat().st_mtime_ns)
        for name in [name for name in sys.modules if name.startswith("solution_")]:
            del sys.modules[name]
    assert times[0] == times[1]
