"""A problem with three candidates, and tables that say how they did."""

from __future__ import annotations

from pathlib import Path

from kernel_matrix.sources import load_source
from tests.analysis.made import STEADY, failed, timed, write

MATRIX = """\
name = "made"
dtypes = ["fp32"]

[[gpus]]
name = "cpu"
vendor = "cpu"

[[toolchains]]
name = "here"
environment = "auto"

[[problems]]
source = "folder"
path = "problems"

[[candidates]]
select = ["*"]
"""


def write_matrix(folder: Path) -> Path:
    """Write the problem ``twice``, its candidates ``bad``, ``slow`` and ``fast``, and a matrix; return its file."""
    problem = folder / "problems" / "twice"
    (problem / "candidates").mkdir(parents=True)
    (problem / "problem.toml").write_text(
        'category = "Math"\ndescription = "Twice."\ndtypes = ["fp32"]\nlevel = 1\ntags = []\n[workloads.default]\n'
    )
    (problem / "reference.py").write_text("class Model: ...\ndef get_inputs(): ...\ndef get_init_inputs(): ...\n")
    for name in ("bad", "slow", "fast"):
        (problem / "candidates" / f"{name}.py").write_text(f"class ModelNew:\n    word = '{name}'\n")
    (folder / "matrix.toml").write_text(MATRIX)
    return folder / "matrix.toml"


def write_tables(folder: Path, matrix: Path) -> Path:
    """Write tables in which ``bad`` crashed, and ``fast`` is faster than ``slow``."""
    loaded = load_source("folder", matrix.parent / "problems")
    (problem,) = loaded.problems
    digests = {candidate.id: candidate.digest for candidate in loaded.candidates}

    def known(name: str) -> dict[str, object]:
        id_ = f"twice/{name}"
        digest = {"candidate_sha256": digests[id_], "problem_sha256": problem.digest}
        return {"candidate": id_, "problem": "twice", "wall_bound_ns": 110, **digest}

    slow = tuple(1.5 * value for value in STEADY)
    return write(folder, [failed(**known("bad")), *timed(slow, **known("slow")), *timed(STEADY, **known("fast"))])
