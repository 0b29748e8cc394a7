"""Rule ``hidden``: code or names that are made at run time, so that other rules cannot read them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "hidden"

_DECODERS = re.compile(
    r"^(?:base64\.\w+decode\w*|binascii\.(?:unhexlify|a2b_\w+)|codecs\.decode|zlib\.decompress|gzip\.decompress"
    r"|bz2\.decompress|lzma\.decompress|marshal\.loads|pickle\.loads|builtins\.bytes\.fromhex)$"
)
_RUNNERS = frozenset({"builtins.exec", "builtins.eval", "builtins.compile"})
_IMPORTERS = frozenset({"builtins.__import__", "importlib.import_module"})
_ACCESSORS = frozenset({"builtins.getattr", "builtins.setattr", "builtins.hasattr"})

_TOKEN_PASTING = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n]*\\\n){0,100}[^\n]*##", re.MULTILINE)


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield calls that make code at run time, and names that are assembled from parts."""
    for call, name in source.called():
        message = _explain_hidden(call, name)
        if message:
            yield source.finding(RULE, call, message)
    for native in source.native:
        for line, _text in native.find(_TOKEN_PASTING):
            yield source.finding(RULE, line, "a macro pastes names together")


def _explain_hidden(call: ast.Call, name: str) -> str:
    if name in _RUNNERS:
        return f"{name.rpartition('.')[2]} runs code that is made at run time"
    if _DECODERS.match(name):
        return f"{name} decodes data that may be code"
    if name in _IMPORTERS and call.args and not isinstance(call.args[0], ast.Constant):
        return "the name of an imported module is computed"
    if name in _ACCESSORS and len(call.args) > 1 and _is_assembled(call.args[1]):
        return "the name of an attribute is assembled from parts"
    return ""


def _is_assembled(text: ast.expr) -> bool:
    """Return True if a text is computed: joined, added, formatted, decoded or reversed."""
    return isinstance(text, (ast.BinOp, ast.Call, ast.Subscript)) or (
        isinstance(text, ast.JoinedStr) and any(isinstance(part, ast.Constant) for part in text.values)
    )
