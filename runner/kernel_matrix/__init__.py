"""kernel-matrix: run every candidate GPU kernel on every GPU, toolchain and dtype you own, and believe the result.

The functions here are the Python API; ``docs/reference/api.md`` introduces them. Each is imported when it is first
used, so that ``import kernel_matrix`` stays fast.

Examples:
    >>> import kernel_matrix
    >>> results = kernel_matrix.Results("results/example-h200.kmz")
    >>> results.filter("problem=softmax", "gpu=h200").latest().is_empty()
    False
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernel_matrix.version import __version__

if TYPE_CHECKING:
    from kernel_matrix.api.analyze import QUESTIONS, analyze, freeze_best_known
    from kernel_matrix.api.audit import AuditResult, audit
    from kernel_matrix.api.check_problems import check_problems
    from kernel_matrix.api.compare_results import Comparison, ComparisonRules, compare, confirm
    from kernel_matrix.api.fleet import cancel_jobs, collect_records, list_chunks, read_log
    from kernel_matrix.api.fleet_plan import FleetCheck, FleetPlan, check_fleet, load_fleet
    from kernel_matrix.api.generate import GenerationOptions, GenerationResult, GenerationSettings, generate
    from kernel_matrix.api.gpus import calibrate_gpus, find_gpus, inventory, watch_gpus
    from kernel_matrix.api.host import diagnose_host, sweep
    from kernel_matrix.api.images import build_image, list_images, lock_images, pull_images, unpack_image, verify_images
    from kernel_matrix.api.make_pairs import WrittenPairs, make_pairs
    from kernel_matrix.api.make_tables import import_results, merge
    from kernel_matrix.api.night_baselines import accept_change, list_baselines, set_baseline, show_baseline
    from kernel_matrix.api.nightly import NightOptions, plan_night, run_night
    from kernel_matrix.api.pack_results import PackedResults, pack_results, unpack_results
    from kernel_matrix.api.plan import RunPlan, load_matrix, make_plan
    from kernel_matrix.api.problems import load_problems
    from kernel_matrix.api.prove_platform import ConformanceReport, ProvenPlatform, prove_platform
    from kernel_matrix.api.repeat_record import reproduce
    from kernel_matrix.api.report import make_report, write_report, write_report_site
    from kernel_matrix.api.results import Chart, Results
    from kernel_matrix.api.run_cells import (
        EventKind,
        RunEvent,
        RunMessage,
        RunProgress,
        RunResult,
        RunStarted,
        RunStatus,
        run,
        run_cell_file,
    )
    from kernel_matrix.api.service_client import AsyncClient, Client, Evaluation
    from kernel_matrix.api.start_project import start_project
    from kernel_matrix.api.try_kernel import TriedKernel, try_kernel

__all__ = [
    "QUESTIONS",
    "AsyncClient",
    "AuditResult",
    "Chart",
    "Client",
    "Comparison",
    "ComparisonRules",
    "ConformanceReport",
    "Evaluation",
    "EventKind",
    "FleetCheck",
    "FleetPlan",
    "GenerationOptions",
    "GenerationResult",
    "GenerationSettings",
    "NightOptions",
    "PackedResults",
    "ProvenPlatform",
    "Results",
    "RunEvent",
    "RunMessage",
    "RunPlan",
    "RunProgress",
    "RunResult",
    "RunStarted",
    "RunStatus",
    "TriedKernel",
    "WrittenPairs",
    "__version__",
    "accept_change",
    "analyze",
    "audit",
    "build_image",
    "calibrate_gpus",
    "cancel_jobs",
    "check_fleet",
    "check_problems",
    "collect_records",
    "compare",
    "confirm",
    "diagnose_host",
    "find_gpus",
    "freeze_best_known",
    "generate",
    "import_results",
    "inventory",
    "list_baselines",
    "list_chunks",
    "list_images",
    "load_fleet",
    "load_matrix",
    "load_problems",
    "lock_images",
    "make_pairs",
    "make_plan",
    "make_report",
    "merge",
    "pack_results",
    "plan_night",
    "prove_platform",
    "pull_images",
    "read_log",
    "reproduce",
    "run",
    "run_cell_file",
    "run_night",
    "set_baseline",
    "show_baseline",
    "start_project",
    "sweep",
    "try_kernel",
    "unpack_image",
    "unpack_results",
    "verify_images",
    "watch_gpus",
    "write_report",
    "write_report_site",
]

_MODULE_OF = {
    "AsyncClient": "service_client",
    "AuditResult": "audit",
    "Chart": "results",
    "Client": "service_client",
    "Comparison": "compare_results",
    "ComparisonRules": "compare_results",
    "ConformanceReport": "prove_platform",
    "Evaluation": "service_client",
    "EventKind": "run_cells",
    "FleetCheck": "fleet_plan",
    "FleetPlan": "fleet_plan",
    "GenerationOptions": "generate",
    "GenerationResult": "generate",
    "GenerationSettings": "generate",
    "NightOptions": "nightly",
    "PackedResults": "pack_results",
    "ProvenPlatform": "prove_platform",
    "QUESTIONS": "analyze",
    "Results": "results",
    "RunEvent": "run_cells",
    "RunMessage": "run_cells",
    "RunPlan": "plan",
    "RunProgress": "run_cells",
    "RunResult": "run_cells",
    "RunStarted": "run_cells",
    "RunStatus": "run_cells",
    "TriedKernel": "try_kernel",
    "WrittenPairs": "make_pairs",
    "accept_change": "night_baselines",
    "analyze": "analyze",
    "audit": "audit",
    "build_image": "images",
    "calibrate_gpus": "gpus",
    "cancel_jobs": "fleet",
    "check_fleet": "fleet_plan",
    "check_problems": "check_problems",
    "collect_records": "fleet",
    "compare": "compare_results",
    "confirm": "compare_results",
    "diagnose_host": "host",
    "find_gpus": "gpus",
    "freeze_best_known": "analyze",
    "generate": "generate",
    "import_results": "make_tables",
    "inventory": "gpus",
    "list_baselines": "night_baselines",
    "list_chunks": "fleet",
    "list_images": "images",
    "load_fleet": "fleet_plan",
    "load_matrix": "plan",
    "load_problems": "problems",
    "lock_images": "images",
    "make_pairs": "make_pairs",
    "make_plan": "plan",
    "make_report": "report",
    "merge": "make_tables",
    "pack_results": "pack_results",
    "plan_night": "nightly",
    "prove_platform": "prove_platform",
    "pull_images": "images",
    "read_log": "fleet",
    "reproduce": "repeat_record",
    "run": "run_cells",
    "run_cell_file": "run_cells",
    "run_night": "nightly",
    "set_baseline": "night_baselines",
    "show_baseline": "night_baselines",
    "start_project": "start_project",
    "sweep": "host",
    "try_kernel": "try_kernel",
    "unpack_image": "images",
    "unpack_results": "pack_results",
    "verify_images": "images",
    "watch_gpus": "gpus",
    "write_report": "report",
    "write_report_site": "report",
}
"""Name → module of :mod:`kernel_matrix.api`. No name may be that of a room: importing the room would replace it."""


def __getattr__(name: str) -> Any:
    """Import a name when it is first used (PEP 562)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"kernel_matrix.api.{_MODULE_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
