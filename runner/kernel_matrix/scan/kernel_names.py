"""Names of the kernels that a source defines, to compare with the names in a trace."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_matrix.scan.source import ScannedSource

_TAKE_KERNEL_NAME = frozenset({"RawKernel", "get_function", "_compile_kernel"})
"""Functions that take the name of a kernel in C++ text."""


def own_kernels(source: ScannedSource) -> tuple[str, ...]:
    """Return the sorted names of all Triton and CUDA kernels of a source."""
    triton = {function.name for function in source.kernel_definitions}
    cuda = {name for native in source.native for name in native.kernels}
    return tuple(sorted(triton | cuda | set(_jitted_functions(source)) | set(_kernels_named_in_calls(source))))


def _jitted_functions(source: ScannedSource) -> Iterator[str]:
    """Yield the names of functions in ``triton.jit(function)``, which are also the names of the kernels."""
    for call, name in source.called():
        if name.startswith("triton.") and name.endswith(".jit"):
            yield from (argument.id for argument in call.args[:1] if isinstance(argument, ast.Name))


def _kernels_named_in_calls(source: ScannedSource) -> Iterator[str]:
    for node in source.host_nodes:
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _TAKE_KERNEL_NAME:
            texts = (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
            yield from (text for text in texts if text.isidentifier())
