"""Which kind of failure an exception of somebody else's code is."""

from __future__ import annotations

import re

from runner.core.wire import Failure

_DEVICE_MEMORY = re.compile(r"CUDA(_ERROR| error|\]).{0,20}out.of.memory", re.IGNORECASE)
"""The driver's own words, as they reach code that calls it by itself or through Triton."""


def classify(error: BaseException) -> Failure:
    """Which kind of failure an exception of candidate code is."""
    name = type(error).__name__
    module = type(error).__module__ or ""
    if isinstance(error, MemoryError) or name == "OutOfMemoryError" or _DEVICE_MEMORY.search(str(error)):
        return Failure.MEMORY
    if isinstance(error, SyntaxError) or "Error building extension" in str(error):
        return Failure.COMPILE
    # The interpreter's error stands for the compiler's, which says the same of the same source on a GPU.
    if name in ("CompilationError", "InterpreterError", "PTXASError") or module.startswith("triton.compiler"):
        return Failure.COMPILE
    return Failure.RUNTIME
