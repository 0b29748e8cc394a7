"""Files as others write them, and what becomes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from kernel_matrix.results.importing import ImportReport, import_results

DATA = Path(__file__).parents[4] / "shared" / "data"


def put(path: Path, document: Any) -> Path:
    """``document`` as the JSON file ``path``; text and bytes as they are; one object per line for ``.jsonl``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(document, bytes):
        path.write_bytes(document)
    elif isinstance(document, str):
        path.write_text(document, encoding="utf-8")
    elif path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in document), encoding="utf-8")
    else:
        path.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return path


def timing(mean: Any = 1.5, **others: Any) -> dict[str, Any]:
    """One entry of a KernelBench timing file."""
    usual = {"std": 0.15, "min": 1.0, "max": 2.0, "num_trials": 100, "hardware": "NVIDIA L4", "device": "cuda:0"}
    return {"mean": mean, **usual, **others}


def load(root: Path, *paths: Path, **options: Any) -> tuple[ImportReport, list[dict[str, Any]]]:
    """The report of an import of ``paths`` (by default of all below ``root``), and the rows of ``cells``."""
    report = import_results(paths or [root], root / "tables", **options)
    return report, pl.read_parquet(report.tables["cells"]).to_dicts()


def only(root: Path, *paths: Path, **options: Any) -> dict[str, Any]:
    """The one row of ``cells``."""
    _report, rows = load(root, *paths, **options)
    assert len(rows) == 1
    return rows[0]
