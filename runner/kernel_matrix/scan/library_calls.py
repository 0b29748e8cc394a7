"""Rule ``library_calls``: a library does the work that a kernel should do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernel_matrix.model.enums import Language
from kernel_matrix.scan.names import bare
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "library_calls"

# One word per line would fill a hundred lines.
# fmt: off
_OPERATIONS = frozenset({
    "matmul", "mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "inner", "outer", "einsum",
    "tensordot", "chain_matmul", "multi_dot", "linear", "bilinear", "conv1d", "conv2d", "conv3d",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution", "softmax", "log_softmax",
    "logsumexp", "layer_norm", "group_norm", "batch_norm", "instance_norm", "rms_norm", "native_layer_norm", "relu",
    "gelu", "silu", "sigmoid", "tanh", "elu", "selu", "celu", "leaky_relu", "prelu", "softplus", "hardtanh",
    "hardsigmoid", "hardswish", "mish", "sum", "mean", "var", "std", "prod", "norm", "amax", "amin", "argmax",
    "argmin", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "sort", "argsort", "topk", "scatter_add",
    "index_add", "max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "cross_entropy", "embedding", "scaled_dot_product_attention", "interpolate",
})
"""Functions of torch or methods of a tensor that do the work of a kernel."""

_NAMESPACES = ("torch.nn.functional.", "torch.ops.aten.", "torch.linalg.", "torch.fft.", "torch.special.")
_DATA_MOVEMENT = frozenset({"pad", "one_hot", "dropout"})
"""Functions of those namespaces that only move or mark data."""

_CONTAINER_CLASSES = frozenset({
    "Module", "Parameter", "ParameterList", "ParameterDict", "Buffer", "ModuleList", "ModuleDict", "Sequential",
    "Identity", "Dropout", "Flatten",
})
"""Classes of ``torch.nn`` that compute nothing themselves."""
# fmt: on

_NATIVE = re.compile(
    r"\b(?:(?:cu|hip)(?:blas(?:Lt)?[A-Z]|fft[A-Z]|sparse[A-Z]|solver)\w*|cudnn[A-Z]\w*|miopen[A-Z]\w*"
    r"|roc(?:blas|fft|sparse|solver)_\w+)\s*\(|\brocprim::\w+"
    r"|\b(?:at|torch)::(?:native::)?(?:_?(?:matmul|mm|bmm|addmm|baddbmm|linear|einsum|conv\w*|\w*softmax\w*|\w+_norm"
    r"|relu|gelu|silu|sigmoid|tanh|sum|mean|cumsum|sort|topk|max_pool\w*|avg_pool\w*|scaled_dot\w*))\w*\s*\("
    r"|\btorch::nn::functional::\w+|\bthrust::(?!device_ptr|raw_pointer|host_vector|device_vector)\w+\s*\("
    r"|\b(?:hip)?cub::Device\w+"
)


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield library calls reachable from the entry; none for candidates in plain PyTorch, which consist of them."""
    if source.language is Language.TORCH:
        return
    host = set(source.host_nodes)
    layers = _find_layers(source)
    for node in source.reach.nodes:
        name = _library_call(source, node, layers) if node in host else ""
        if name:
            yield source.finding(RULE, node, f"{name} is a library call, not a kernel of this source")
    for native in source.native:
        for line, text in native.find(_NATIVE):
            yield source.finding(RULE, line, f"{text.rstrip('( ')} is a library call, not a kernel of this source")


def _library_call(source: ScannedSource, node: ast.AST, layers: frozenset[str]) -> str:
    """Return the library operation that ``node`` calls, or an empty text."""
    if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.MatMult):
        return "the operator @"
    if not isinstance(node, ast.Call):
        return ""
    if name := source.names.full(node.func):
        return name if _is_operation(name) else ""
    if not isinstance(node.func, ast.Attribute):
        return ""
    receiver = node.func.value
    if isinstance(receiver, ast.Name) and receiver.id == "self":
        return f"self.{node.func.attr}" if node.func.attr in layers else ""
    # The receiver is not a module, so a method with the name of an operation is probably a tensor's.
    return f".{node.func.attr}" if node.func.attr in _OPERATIONS and _may_be_tensor(source, receiver) else ""


def _is_operation(name: str) -> bool:
    base = name.rpartition(".")[2]
    if name.startswith(_NAMESPACES):
        return base not in _DATA_MOVEMENT
    return name.rpartition(".")[0] in ("torch", "torch.Tensor") and base.rstrip("_") in _OPERATIONS


def _may_be_tensor(source: ScannedSource, receiver: ast.expr) -> bool:
    """Return False for module variables: those are extensions, whose functions may have the same names."""
    if isinstance(receiver, ast.Name):
        return receiver.id not in source.module_variables
    return isinstance(receiver, (ast.Call, ast.BinOp, ast.Subscript))


def _find_layers(source: ScannedSource) -> frozenset[str]:
    """Return the attributes that hold a layer of ``torch.nn``; calling one is a library call, holding it is not."""
    found = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assign) and _makes_layer(source, node.value):
            found |= {bare(target) for target in node.targets if isinstance(target, ast.Attribute)}
    return frozenset(found)


def _makes_layer(source: ScannedSource, value: ast.expr) -> bool:
    names = (name for _call, name in source.called(ast.walk(value)))
    layers = (name.rpartition(".")[2] for name in names if name.startswith("torch.nn.") and name.count(".") == 2)
    return any(layer[:1].isupper() and layer not in _CONTAINER_CLASSES for layer in layers)
