"""Rule ``lazy``: tensors that compute their values only when they are read."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import FunctionDef, ScannedSource

RULE = "lazy"

_HOOKS = frozenset({"__torch_function__", "__torch_dispatch__"})
_MAKERS = frozenset({"_make_subclass", "_make_wrapper_subclass", "as_subclass"})


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield tensor subclasses, and hooks that run when a tensor is used."""
    for node in source.host_nodes:
        if isinstance(node, ast.ClassDef):
            if any(source.names.full(base) in ("torch.Tensor", "torch.nn.Parameter") for base in node.bases):
                yield source.finding(RULE, node, f"{node.name} is a tensor subclass")
        elif isinstance(node, FunctionDef) and node.name in _HOOKS:
            yield source.finding(RULE, node, f"{node.name} runs when a tensor is used")
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _MAKERS:
            yield source.finding(RULE, node, "a tensor is converted to a subclass")
