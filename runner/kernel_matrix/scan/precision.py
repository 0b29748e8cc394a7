"""Rule ``precision``: arithmetic in a narrower type than the dtype of the cell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernel_matrix.model.enums import Dtype
from kernel_matrix.scan.names import bare
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "precision"

_BITS = {
    **dict.fromkeys(("float64", "double"), 64),
    **dict.fromkeys(("float32", "float"), 32),
    **dict.fromkeys(("float16", "half", "bfloat16"), 16),
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "float8e4nv", "float8e5", "float8e4b15"), 8),
}
"""Bits of a floating type, by its name in torch or Triton."""

_CELL_BITS = {Dtype.FP64: 64, Dtype.FP32: 32, Dtype.TF32: 32, Dtype.FP16: 16, Dtype.BF16: 16}
"""Bits of the arithmetic that a cell promises; other dtypes are the narrowest there are, or exact."""

_METHODS = frozenset({"half", "bfloat16", "float", "double"})
"""Methods of a tensor that have the name of the type they cast to."""

_NATIVE_NARROWING = {
    16: re.compile(
        r"\b__(?:float|double)2?2?(?:half|bfloat16)\w*|\b(?:static_cast|reinterpret_cast)\s*<\s*"
        r"(?:__half|half|(?:__)?(?:nv|hip)_bfloat16|at::Half|at::BFloat16|c10::Half|c10::BFloat16)2?\s*>"
        r"|\b__float22(?:half2|bfloat162)_rn\b|\bto\s*\(\s*(?:at|torch)::k(?:Half|BFloat16)\s*\)"
    ),
    8: re.compile(r"\b__(?:nv|hip)_cvt_\w+_to_fp8\w*|\b__(?:nv|hip)_fp8\w*|\bto\s*\(\s*(?:at|torch)::kFloat8\w*\s*\)"),
    19: re.compile(r"\bprecision::tf32\b|\b__float_to_tf32\b"),
    32: re.compile(r"\b__double2float\w*|\bto\s*\(\s*(?:at|torch)::kFloat\s*\)"),
}
"""Bits of the result → narrowing conversions in C++; TF32 has 19 bits."""


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield casts to a narrower type, and switches that let a library use one."""
    promised = _CELL_BITS.get(source.dtype)
    if promised is None:
        return
    for node in (*source.host_nodes, *source.kernel_nodes):
        kind = _cast_to(source, node)
        if kind and _BITS[kind] < promised:
            yield source.finding(RULE, node, f"a cast to {kind} in a cell of {source.dtype.value}")
    if source.dtype is Dtype.FP32:
        yield from _find_tf32(source)
    for native in source.native:
        for bits, pattern in _NATIVE_NARROWING.items():
            if bits < promised and not (bits == 19 and source.dtype is Dtype.TF32):
                for line, text in native.find(pattern):
                    yield source.finding(RULE, line, f"{text.strip()} in a cell of {source.dtype.value}")


def _cast_to(source: ScannedSource, node: ast.AST) -> str:
    """Return the floating type that ``node`` casts to or makes a tensor of, or an empty text."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ""
    method, full = node.func.attr, source.names.full(node.func)
    if method in _METHODS and not full and not node.args:
        return method
    given: list[ast.expr] = [k.value for k in node.keywords if k.arg == "dtype"]
    if method in ("to", "type", "cast", "type_as", "view", "astype"):
        given += node.args[-1:] if full else node.args
    return next((kind for value in given if (kind := _float_dtype(source, value))), "")


def _float_dtype(source: ScannedSource, value: ast.expr) -> str:
    root, _, name = source.names.full(value).rpartition(".")
    return name if name in _BITS and root in ("torch", "triton.language") else ""


def _find_tf32(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield settings and calls that make FP32 products with TF32 precision, including Triton's default."""
    for node in source.host_nodes:
        if isinstance(node, ast.Assign) and _switches_tf32_on(node):
            yield source.finding(RULE, node, "TF32 is switched on in a cell of fp32")
    for call, name in source.called():
        level = getattr(call.args[0], "value", None) if call.args else None
        if name == "torch.set_float32_matmul_precision" and level != "highest":
            yield source.finding(RULE, call, f"float32 products at precision {level!r} in a cell of fp32")
        elif name in ("torch.autocast", "torch.cuda.amp.autocast", "torch.amp.autocast"):
            yield source.finding(RULE, call, "autocast in a cell of fp32")
    for call, name in source.called(source.kernel_nodes):
        if name == "triton.language.dot" and not _is_full_precision(call):
            yield source.finding(RULE, call, 'tl.dot without input_precision="ieee" rounds fp32 factors to TF32')


def _switches_tf32_on(node: ast.Assign) -> bool:
    is_true = isinstance(node.value, ast.Constant) and node.value.value is True
    return is_true and any(getattr(target, "attr", "") == "allow_tf32" for target in node.targets)


def _is_full_precision(call: ast.Call) -> bool:
    """Return True if a product keeps all bits of its factors, or if its precision is not a constant."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if bare(given.get("out_dtype", call)).startswith("int"):
        return True
    precision, allowed = given.get("input_precision"), given.get("allow_tf32")
    if precision is None:
        return isinstance(allowed, ast.Constant) and allowed.value is False
    return not isinstance(precision, ast.Constant) or precision.value in _FULL


_FULL = frozenset({"ieee", "tf32x3", "bf16x3", "bf16x6"})
"""Values of ``input_precision`` that do not round float32 factors to a 10-bit mantissa."""
