"""Each exception is put into the kind of failure that it is."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import pytest

torch = pytest.importorskip("torch")

from runner.core.failures import classify
from runner.core.wire import Failure

pytestmark = pytest.mark.torch


def raised(name, module="somewhere", text=""):
    return type(name, (Exception,), {"__module__": module})(text)


KINDS = {
    "a memory error": (MemoryError(), Failure.MEMORY),
    "the device's memory": (torch.OutOfMemoryError("no 8 bytes left"), Failure.MEMORY),
    "memory, in the runtime's words": (RuntimeError("CUDA error: out of memory"), Failure.MEMORY),
    "memory, in the driver's words": (RuntimeError("CUDA_ERROR_OUT_OF_MEMORY"), Failure.MEMORY),
    "memory, in Triton's words": (RuntimeError("Triton Error [CUDA]: out of memory"), Failure.MEMORY),
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
