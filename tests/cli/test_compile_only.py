"""``kernel-matrix run --compile-only``: a machine without any GPU tells what builds for which, and runs nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]

MATRIX = """
name = "far"
dtypes = ["fp32"]

[[gpus]]
name = "t4"
compute_capability = "7.5"

[[gpus]]
name = "h200"
compute_capability = "9.0"

[[toolchains]]
name = "local"
torch = "{torch}"
triton = "{triton}"

[[problems]]
source = "folder"
path = "problems"
select = "*"
workloads = "smoke"

[[candidates]]
select = ["vector_add/triton_blocked", "vector_add/triton_unknown_call", "vector_add/torch_partial"]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from importlib.metadata import version  # noqa: PLC0415  # only where both are installed

    root = tmp_path_factory.mktemp("far")
    root.chmod(0o755)
    shutil.copytree(ROOT / "problems" / "vector_add", root / "problems" / "vector_add")
    versions = {name: version(name).split("+")[0] for name in ("torch", "triton")}
    (root / "matrix.toml").write_text(MATRIX.format(**versions))
    return root


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "KERNEL_MATRIX_CACHE_DIR": str(folder / "cache")}
    line = (sys.executable, "-m", "kernel_matrix", *words)
    return subprocess.run(line, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_what_builds_for_which_gpu(folder: Path) -> None:
    ran = call(folder, "run", "--compile-only", "--sandbox", "process")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "interpreter" not in ran.stdout
    records = [json.loads(path.read_text()) for path in sorted(folder.glob("results/far/records/**/*.json"))]
    said = {(r["cell"]["gpu"], r["cell"]["candidate"]): r["outcome"]["status"] for r in records}
    assert said == {
        (gpu, f"vector_add/triton_{name}"): status
        for gpu in ("t4", "h200")
        for name, status in (("blocked", "compiled"), ("unknown_call", "compile_error"))
    }
    built = [r["host"]["build"] for r in records if r["outcome"]["status"] == "compiled"]
    assert {kernel["arch"] for build in built for kernel in build["kernels"]} == {75, 90}
    again = call(folder, "run", "--compile-only", "--sandbox", "process")
    assert "4 have a record already" in again.stdout


def test_what_would_be_built_is_planned_and_shown(folder: Path) -> None:
    planned = json.loads(call(folder, "plan", "--compile-only", "--sandbox", "process", "--json").stdout)
    assert [cell["compile_only"] for cell in planned["cells"]] == [True] * 4
    shown = json.loads(call(folder, "run", "--compile-only", "--sandbox", "process", "--dry-run").stdout)
    assert [set(cell["processes"]) for cell in shown] == [{"builder"}] * 4


def test_without_the_option_nothing_of_it_runs_here(folder: Path) -> None:
    assert call(folder, "run", "--sandbox", "process").returncode == 3
