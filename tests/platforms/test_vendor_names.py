"""Only a platform's own package names its vendor."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import kernel_matrix

PACKAGE = Path(kernel_matrix.__file__).parent
VENDOR = re.compile(r"cuda|nvml|nvidia|cupti|\bsm_\d|rocm|amd_?smi|amdgcn|\bamd\b|\bhip|\bgfx\d", re.IGNORECASE)

EXCEPTIONS = {
    "reads or adapts sources that are written in CUDA, or results of programs that measure them": (
        *("scan/capture.py", "scan/frames.py", "scan/kernel_names.py", "scan/library_calls.py", "scan/memo.py"),
        *("scan/precision.py",),
        *("scan/streams.py", "scan/threads.py", "scan/replaced_timers.py"),
        *("sources/flashinfer/adapter.py", "sources/flashinfer/solutions.py", "sources/flashinfer/trace_results.py"),
        *("sources/kernelbench/eval_results.py", "sources/kernelbenchx/adapter.py", "sources/kernelbenchx/cases.py"),
        *("sources/native/adapter.py", "sources/native/candidate.py", "sources/reference_module.py"),
        *("sources/table.py", "inside/native_extension.py", "analysis/audit/harness.py"),
    ),
    "a Python package": ("inside/exception_kinds.py", "environments/__init__.py"),
    "CUDA C++ as a candidate's language": (
        *("attempt/contestants.py", "attempt/role_specs.py", "model/enums.py", "plan/cost.py"),
        *("analysis/source_code.py",),
    ),
    "the name of a field of records, which stay as they are": (
        *("analysis/audit/consistency.py", "analysis/compared_sides.py"),
        *("analysis/outcomes.py", "analysis/reproduce.py"),
        *("report/cell_choice.py", "report/overview.py", "results/record.py", "model/messages.py"),
        *("platforms/__init__.py", "inside/environment.py", "inside/peak_measurement.py"),
    ),
    "an interface that torch has under this name on every kind of GPU": (
        *("inside/input_generation.py", "inside/build/triton_ahead.py"),
        *("inside/gpu_activity.py", "inside/gpu_arenas.py", "inside/gpu_calls.py", "inside/torch_gpu.py"),
    ),
    "the version of a toolchain that matrix files give under this name": ("matrix/__init__.py", "plan/cell_id.py"),
    "the suffix of HIP files": ("cli/try_kernel.py", "service/http_app.py"),
    "the variable in which Ray names a job's GPUs": ("executors/engines/ray_jobs.py",),
    "the registry": ("platforms/registry.py",),
}
"""Why a file below the package may name the vendor → such files."""


def test_only_its_platform_and_the_exceptions_name_a_vendor():
    excepted = [path for paths in EXCEPTIONS.values() for path in paths]
    assert {path: words for path, words in naming_a_vendor().items() if path not in excepted} == {}
    assert sorted(excepted) == sorted(naming_a_vendor()), "every exception is needed, and is there once"


@cache
def naming_a_vendor() -> dict[str, list[str]]:
    """Module outside the vendor's platform → the words with which it names the vendor, where it does."""
    found = (path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*.py")))
    outside = [path for path in found if not path.startswith(("platforms/cuda/", "platforms/rocm/"))]
    return {path: words for path in outside if (words := sorted(set(vendor_words(path))))}


def vendor_words(path: str) -> Iterator[str]:
    """Names and texts of a module that name the vendor; comments and docstrings do not count."""
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) not in told:
            yield from filter(VENDOR.search, texts_of(node))


def texts_of(node: ast.AST) -> Iterator[str]:
    for field in ("id", "attr", "name", "arg", "module", "value"):
        text = getattr(node, field, None)
        if isinstance(text, str):
            yield text
