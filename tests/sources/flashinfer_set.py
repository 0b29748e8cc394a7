"""A small set in the form of flashinfer-bench: one operator with mixed dtypes, one workload and one solution."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REFERENCE = """\
import torch


@torch.no_grad()
def run(x, weight, bias, rows, scale):
    product = (x.to(torch.float32) @ weight.to(torch.float32).T) * scale
    return {"sums": bias.sum(dim=1), "y": (product + bias[rows]).to(torch.bfloat16)}
"""

DEFINITION: Mapping[str, Any] = {
    "name": "mixed_h32",
    "op_type": "gemm",
    "description": "A product of\n 8-bit weights.",
    "tags": ["status:verified"],
    "axes": {
        "M": {"type": "var"},
        "H": {"type": "const", "value": 32},
        "N": {"type": "expr", "expression": "2 * H"},
    },
    "constraints": ["M >= 1", "rows[-1].item() < M"],
    "inputs": {
        "x": {"shape": ["M", "H"], "dtype": "bfloat16"},
        "weight": {"shape": ["N", "H"], "dtype": "float8_e4m3fn"},
        "bias": {"shape": ["M", "N"], "dtype": "float32"},
        "rows": {"shape": ["M"], "dtype": "int32"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {
        "y": {"shape": ["M", "N"], "dtype": "bfloat16"},
        "sums": {"shape": ["M"], "dtype": "float32"},
    },
    "reference": REFERENCE,
}

ROWS = (6, 5, 4, 3, 2, 1, 0)

WORKLOAD: Mapping[str, Any] = {
    "uuid": "6120f144",
    "axes": {"M": len(ROWS)},
    "inputs": {
        "x": {"type": "random"},
        "weight": {"type": "random"},
        "bias": {"type": "random"},
        "rows": {"type": "safetensors", "path": "./blob/rows.safetensors", "tensor_key": "rows"},
        "scale": {"type": "scalar", "value": 0.5},
    },
}

SOLUTION: Mapping[str, Any] = {
    "name": "plain_v1",
    "definition": "mixed_h32",
    "author": "somebody",
    "description": "As plain as can be.",
    "spec": {
        "language": "python",
        "target_hardware": ["LOCAL"],
        "entry_point": "main.py::run",
        "destination_passing_style": False,
    },
    "sources": [
        {"path": "main.py", "content": "from helper import product\n" + REFERENCE},
        {"path": "helper.py", "content": "def product(a, b):\n    return a @ b.T\n"},
    ],
}

INTO_OUTPUTS = """\
def run(x, weight, bias, rows, scale, y, sums):
    y.copy_((x.float() @ weight.float().T) * scale + bias[rows])
    sums.copy_(bias.sum(dim=1))
"""


def changed(value: Any, path: str, new: Any) -> Any:
    """Return a copy of a document with another value at ``a.b.0.c``, or without that key for the value ``...``."""
    document = copy.deepcopy(value)
    *before, last = (int(part) if part.isdigit() else part for part in path.split("."))
    place = document
    for part in before:
        place = place[part]
    if new is ...:
        del place[last]
    else:
        place[last] = new
    return document


def container(entries: Mapping[str, Any] | None = None, data: bytes | None = None, length: int | None = None) -> bytes:
    """Return a safetensors file, by default with the tensor ``rows``."""
    if data is None:
        data = struct.pack(f"<{len(ROWS)}i", *ROWS)
    header = json.dumps(entries if entries is not None else {"rows": entry()}).encode()
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def entry(**other: Any) -> dict[str, Any]:
    return {"dtype": "I32", "shape": [len(ROWS)], "data_offsets": [0, 4 * len(ROWS)], **other}


def write_set(
    root: Path, definition: Any = DEFINITION, *workloads: Any, blob: bytes | None = None, text: str | None = None
) -> Path:
    """Write a set with one definition, with ``text`` in place of its workload lines."""
    lines = [json.dumps({"definition": "mixed_h32", "workload": it}) for it in workloads or (WORKLOAD,)]
    for path, content in {
        "definitions/gemm/mixed.json": json.dumps(definition, indent=2),
        "workloads/gemm/mixed.jsonl": "\n".join(lines) + "\n" if text is None else text,
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content, encoding="utf-8")
    (root / "blob").mkdir(exist_ok=True)
    (root / "blob/rows.safetensors").write_bytes(container() if blob is None else blob)
    return root


def write_solution(root: Path, solution: Any = SOLUTION, name: str = "solutions/x/plain.json") -> Path:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(json.dumps(solution, indent=2), encoding="utf-8")
    return root
