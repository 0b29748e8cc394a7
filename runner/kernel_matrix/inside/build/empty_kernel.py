"""A kernel that does nothing, to learn whether Triton compiles for an architecture at all."""

from __future__ import annotations

from typing import Any


def _empty_kernel() -> None:
    pass


def why_not_compiled_for(target: Any) -> str:
    """Return why Triton compiles nothing for ``target``, a ``GPUTarget``; empty if it compiles an empty kernel."""
    import triton  # noqa: PLC0415  # only where a candidate in Triton does not compile
    from triton.compiler import ASTSource  # noqa: PLC0415  # as above

    try:
        triton.compile(ASTSource(triton.jit(_empty_kernel), signature={}, constexprs={}), target=target)
    except Exception:  # noqa: BLE001  # the error depends on the version and the stage that fails
        return f"Triton {triton.__version__} does not compile for {target.backend} {target.arch}"
    return ""
