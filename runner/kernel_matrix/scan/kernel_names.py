"""The kernels that a source defines: what a tracer's names are compared with."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_matrix.scan.source import ScannedSource

_BY_NAME = frozenset({"RawKernel", "get_function", "_compile_kernel"})
"""Functions that are handed the name of a kernel in C++ text."""


def own_kernels(source: ScannedSource) -> tuple[str, ...]:
    """Names of all kernels, Triton's and CUDA's, sorted."""
    triton = {function.name for function in source.kernel_definitions}
    cuda = {name for native in source.native for name in native.kernels}
    return tuple(sorted(triton | cuda | set(_made_of_functions(source)) | set(_named_in_calls(source))))


def _made_of_functions(source: ScannedSource) -> Iterator[str]:
    """``kernel = triton.jit(function)`` names the kernel after the function."""
    for call, name in source.called():
        if name.startswith("triton.") and name.endswith(".jit"):
            yield from (argument.id for argument in call.args[:1] if isinstance(argument, ast.Name))


def _named_in_calls(source: ScannedSource) -> Iterator[str]:
    for node in source.host_nodes:
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in _BY_NAME:
            texts = (a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))
            yield from (text for text in texts if text.isidentifier())
