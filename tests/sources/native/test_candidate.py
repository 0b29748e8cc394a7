"""A C++ file as a candidate, compiled, bound and called like in a worker."""

import shutil
import sys

import pytest

from kernel_matrix.sources.native.candidate import read_native

SOURCE = b"""
#include <tuple>

std::tuple<torch::Tensor, torch::Tensor> both(torch::Tensor x, double factor) { return {x * factor, x + 1}; }
"""


def test_what_is_compiled_names_the_extension():
    names = {
        read_native(name, source, function).adapter.partition("candidate_")[2][:16]
        for name, source, function in (
            ("x.cu", b"run", "run"),
            ("y.cu", b"run", "run"),
            ("x.cu", b"run ", "run"),
            ("x.cu", b"run", "ran"),
        )
    }
    assert len(names) == 4


@pytest.mark.torch
@pytest.mark.timeout(900)  # the compiler takes a minute, and much longer on a busy machine
@pytest.mark.skipif(not (shutil.which("g++") and shutil.which("ninja")), reason="no g++ or no ninja")
def test_the_function_is_called_with_the_inputs(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    from kernel_matrix.inside.source_module import import_file  # noqa: PLC0415  # without torch there is nothing to import

    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    monkeypatch.setitem(sys.modules, "candidate", None)  # and out again afterwards
    native = read_native("a-b.cpp", SOURCE, "both")
    for name, content in {"candidate.py": native.adapter.encode(), **native.extra_files}.items():
        (tmp_path / name).write_bytes(content)
    model = import_file(tmp_path / "candidate.py", "candidate", {}).ModelNew(3, bias=True)
    first, second = model(torch.ones(2), 2.5)
    assert (first.tolist(), second.tolist()) == ([2.5, 2.5], [2.0, 2.0])
