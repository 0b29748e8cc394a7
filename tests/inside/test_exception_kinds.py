"""Kinds of failure for exceptions, and names of packages that are not installed."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import sys
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.exception_kinds import (
    claimed_package,
    classify,
    missing_kernel_package,
    missing_package,
    tells_of_host_memory,
)
from kernel_matrix.inside.source_module import import_file
from kernel_matrix.inside.wire import CallFailure

pytestmark = pytest.mark.torch


def raised(name, module="somewhere", text=""):
    return type(name, (Exception,), {"__module__": module})(text)


KINDS = {
    "a memory error": (MemoryError(), CallFailure.MEMORY),
    "the device's memory": (torch.OutOfMemoryError("no 8 bytes left"), CallFailure.MEMORY),
    "memory, in the runtime's words": (RuntimeError("CUDA error: out of memory"), CallFailure.MEMORY),
    "memory, in the driver's words": (RuntimeError("CUDA_ERROR_OUT_OF_MEMORY"), CallFailure.MEMORY),
    "memory, in Triton's words": (RuntimeError("Triton Error [CUDA]: out of memory"), CallFailure.MEMORY),
    "the host's memory, in torch's words": (
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
        CallFailure.MEMORY,
    ),
    "another vendor's memory": (RuntimeError("HIP error: out of memory"), CallFailure.MEMORY),
    "the host's memory, in the system's words": (OSError(12, "Cannot allocate memory"), CallFailure.MEMORY),
    "the host's memory, in words of C++": (RuntimeError("std::bad_alloc"), CallFailure.MEMORY),
    "syntax": (SyntaxError("invalid"), CallFailure.COMPILE),
    "indentation": (IndentationError("unexpected"), CallFailure.COMPILE),
    "a pass of Triton": (RuntimeError("PassManager::run failed"), CallFailure.COMPILE),
    "an extension": (RuntimeError("Error building extension 'x': [1/2] nvcc"), CallFailure.COMPILE),
    "Triton": (raised("CompilationError", "triton.compiler.errors"), CallFailure.COMPILE),
    "Triton, another one": (raised("UnsupportedLanguageConstruct", "triton.compiler.errors"), CallFailure.COMPILE),
    "Triton's interpreter": (raised("InterpreterError", "triton.runtime.errors"), CallFailure.COMPILE),
    "too much shared memory": (raised("OutOfResources", "triton.runtime.errors"), CallFailure.RUNTIME),
    "an illegal access": (RuntimeError("CUDA error: an illegal memory access"), CallFailure.RUNTIME),
    "anything": (ValueError("Error"), CallFailure.RUNTIME),
    "no module": (ImportError("no module"), CallFailure.RUNTIME),
}


@pytest.mark.parametrize("name", KINDS)
def test_an_exception_is_put_into_its_kind(name):
    error, kind = KINDS[name]
    assert classify(error) is kind


def test_the_devices_memory_is_not_told_for_the_hosts():
    assert tells_of_host_memory("MemoryError")
    assert not tells_of_host_memory("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.00 GiB.")


IMPORTS = {
    "import no_such_package": "no_such_package",
    "import no_such_package.part": "no_such_package",
    "from no_such_package import thing": "no_such_package",
    "def f():\n    import no_such_package\nf()": "no_such_package",
    "import torch.no_such_part": "",
    "from torch import no_such_thing": "",
    "import helper": "",
    "import folder": "",
    "raise ModuleNotFoundError('in its own words')": "",
    "raise ImportError('no_such_package')": "",
    "raise ValueError": "",
}


@pytest.mark.parametrize("statement", IMPORTS)
def test_missing_package_ignores_the_candidates_own_files(statement, tmp_path, monkeypatch):
    """``helper`` and ``folder`` lie beside the module, where Python does not look for them."""
    monkeypatch.setitem(sys.modules, "importing", None)  # removed afterwards
    (tmp_path / "helper.py").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "importing.py").write_text(statement)
    with pytest.raises(Exception) as raised:  # whichever it is
        import_file(tmp_path / "importing.py", "importing", {})
    assert missing_package(raised.value) == IMPORTS[statement]


TRACEBACKS = {
    "Traceback …\nModuleNotFoundError: No module named 'tilelang'\n": "tilelang",
    "Traceback …\nModuleNotFoundError: No module named 'tilelnag'\n": "",
    "Traceback …\nModuleNotFoundError: No module named 'tilelang.language'\n": "",
    "ModuleNotFoundError: No module named 'tilelang'\nValueError: then this\n": "",
    "print: ModuleNotFoundError: No module named 'tilelang'": "",
    "": "",
}


LACKS = "ModuleNotFoundError: No module named 'tilelang'"


@pytest.fixture
def no_tilelang(monkeypatch):
    monkeypatch.setitem(sys.modules, "tilelang", None)


@pytest.mark.parametrize("text", TRACEBACKS)
def test_claimed_package_needs_kernel_package_in_last_line(text):
    assert claimed_package(text) == TRACEBACKS[text]


@pytest.mark.usefixtures("no_tilelang")
def test_a_candidate_may_lack_what_it_imports():
    assert missing_kernel_package(LACKS, {"torch", "tilelang"}) == "tilelang"


@pytest.mark.usefixtures("no_tilelang")
@pytest.mark.parametrize("imports", [(), ("torch", "cupy")])
def test_what_its_source_does_not_import_a_candidate_cannot_lack(imports):
    assert missing_kernel_package(LACKS, imports) == ""


def test_what_a_candidate_says_is_missing_is_looked_for(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "tilelang", raising=False)
    (tmp_path / "tilelang.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert missing_kernel_package(LACKS, {"tilelang"}) == ""


def test_a_module_that_was_put_there_by_hand_is_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "tilelang", ModuleType("tilelang"))
    assert missing_kernel_package(LACKS, {"tilelang"}) == ""
