"""Candidates that are one CUDA or HIP file with a function on tensors, which an adapter wraps as ``ModelNew``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from kernel_matrix.model.enums import Language
from kernel_matrix.sources.reference_module import detect_native_language

LANGUAGES = {".cu": (Language.CUDA, Language.HIP), ".hip": (Language.HIP,)}
"""Suffix of a file → languages that it can be in, the usual one first. Sources of HIP often keep CUDA's suffix."""
FUNCTION = "run"
"""Default name of the function."""

TEMPLATE = Path(__file__).with_name("adapter.py")

_BINDING = """\
#include <torch/extension.h>
#include "{file}"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{
    m.def("{function}", torch::wrap_pybind_function({function}));
}}
"""
"""Binding of the function; it includes the file, so that the compiler knows the type of the function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeCandidate:
    """A candidate made of a C++, CUDA or HIP file."""

    language: Language
    adapter: str
    extra_files: dict[str, bytes]


def read_native(name: str, source: bytes, function: str) -> NativeCandidate:
    """Make a candidate whose ``ModelNew`` calls a function of a file.

    A file that binds its functions itself (``PYBIND11_MODULE``) is compiled unchanged.

    Args:
        name: name of the file; it is compiled as C++ alone unless its suffix is one of :data:`LANGUAGES`.
        source: content of the file.
        function: name of the function.
    """
    text = source.decode("utf-8", errors="replace")
    stem, suffix = Path(name).stem, Path(name).suffix
    binding = f"{stem}_binding{suffix}"
    binds_itself = "PYBIND11_MODULE" in text
    written = {} if binds_itself else {binding: _BINDING.format(file=name, function=function)}
    content = json.dumps([name, hashlib.sha256(source).hexdigest(), written], sort_keys=True)
    facts = {
        "file": name,
        "function": function,
        "extension": f"candidate_{hashlib.sha256(content.encode()).hexdigest()[:16]}",
        "sources": [name] if binds_itself else [binding],
        "written": written,
        "with_cuda": suffix in LANGUAGES,
    }
    return NativeCandidate(
        language=detect_native_language(text) or LANGUAGES.get(suffix, (Language.CUDA,))[0],
        adapter=TEMPLATE.read_text(encoding="utf-8").replace('"@FACTS@"', json.dumps(json.dumps(facts)), 1),
        extra_files={name: source},
    )
