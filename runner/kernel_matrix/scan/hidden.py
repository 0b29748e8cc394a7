"""Code that does not want to be read."""

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

_PASTED = re.compile(r"^[ \t]*#[ \t]*define\b(?:[^\n]*\\\n){0,100}[^\n]*##", re.MULTILINE)


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Code made at run time, and names put together from pieces."""
    for call, name in source.called():
        message = _why_hidden(call, name)
        if message:
            yield source.finding(RULE, call, message)
    for native in source.native:
        for line, _text in native.find(_PASTED):
            yield source.finding(RULE, line, "a macro pastes names together")


def _why_hidden(call: ast.Call, name: str) -> str:
    if name in _RUNNERS:
        return f"{name.rpartition('.')[2]} runs what is not written here"
    if _DECODERS.match(name):
        return f"{name} decodes what is not written here"
    if name in _IMPORTERS and call.args and not isinstance(call.args[0], ast.Constant):
        return "a module is imported under a name that is not written here"
    if name in _ACCESSORS and len(call.args) > 1 and _is_put_together(call.args[1]):
        return "an attribute is named by a text that is put together"
    return ""


def _is_put_together(text: ast.expr) -> bool:
    """Whether a text is made of pieces: joined, added, formatted, decoded or turned round."""
    return isinstance(text, (ast.BinOp, ast.Call, ast.Subscript)) or (
        isinstance(text, ast.JoinedStr) and any(isinstance(part, ast.Constant) for part in text.values)
    )
