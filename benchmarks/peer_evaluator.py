"""KernelBench's own evaluator under a cap of device memory: how many problems it can judge, the reference as candidate.

    python benchmarks/peer_evaluator.py KERNELBENCH --memory-gib 24 [--select 'level1/*' 'level2/*']

To be counted beside ``evaluations.py`` with the same cap and selection, which may not reach a verdict on fewer. Each
problem has a process of its own, whose allocator is limited; its context is not counted. Packages that KernelBench
imports, and its evaluator does not need, may be missing.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import subprocess
import sys
import types
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import MagicMock

from kernel_matrix.model.enums import Language
from kernel_matrix.sources.reference_module import detect_language

UNNEEDED = ("dotenv", "litellm", "openai", "requests", "tqdm")
PATIENCE_S = 300.0
GIB = 1 << 30


def main() -> int:
    """Run all problems, or, in a process of its own, one of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernelbench", type=Path, help="a checkout of KernelBench")
    parser.add_argument("--select", nargs="+", metavar="GLOB", default=["level1/*"], help="problems")
    parser.add_argument("--memory-gib", type=float, help="memory of the device that the evaluator may use")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--candidate", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.candidate is not None:
        return judge_candidate(arguments.kernelbench, arguments.one, arguments.candidate)
    if arguments.one is not None:
        return judge_one(arguments.kernelbench, arguments.one, arguments.memory_gib)
    found: Counter[str] = Counter()
    for path in problems(arguments.kernelbench / "KernelBench", arguments.select):
        verdict = in_a_process(arguments.kernelbench, path, arguments.memory_gib)
        found[verdict.split(":")[0]] += 1
        print(f"{path.parent.name}/{path.stem:<60} {verdict}", flush=True)
    print(dict(found))
    return 0


def problems(root: Path, globs: Sequence[str]) -> Iterator[Path]:
    """Yield the problems whose ``level/name`` is selected, in order."""
    for path in sorted(root.glob("level*/*.py")):
        name = f"{path.parent.name}/{path.stem}"
        if any(fnmatch.fnmatch(name, one) for one in globs):
            yield path


def in_a_process(kernelbench: Path, path: Path, memory_gib: float | None) -> str:
    """Return the last line that a process for this problem prints."""
    cap = () if memory_gib is None else ("--memory-gib", str(memory_gib))
    command = (sys.executable, __file__, str(kernelbench), "--one", str(path), *cap)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        return f"failed: took more than {PATIENCE_S:g} s"
    lines = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    return lines[-1] if done.returncode == 0 and lines else f"failed: {lines[-1] if lines else done.returncode}"[:200]


def judge_one(kernelbench: Path, path: Path, memory_gib: float | None) -> int:
    """Let the evaluator judge one problem with its own reference as candidate; print the verdict."""
    import torch  # noqa: PLC0415  # the parent needs none

    evaluator = import_evaluator(kernelbench)
    if memory_gib is not None:
        share = memory_gib * GIB / torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, share))
    source = path.read_text(encoding="utf-8")
    candidate = source.replace("class Model(", "class ModelNew(").replace("super(Model, self)", "super(ModelNew, self)")
    result = evaluator.eval_kernel_against_ref(
        source, candidate, num_correct_trials=1, measure_performance=True, num_perf_trials=10
    )
    verdict = "passed" if result is not None and result.correctness else "failed"
    print(f"{verdict}: {'' if result is None else result.metadata}"[:300])
    return 0


def judge_candidate(kernelbench: Path, reference: Path, candidate: Path) -> int:
    """Let KernelBench judge one candidate as its script ``run_and_check.py`` does; print the verdict.

    Its check of the source comes first. Where a source has no kernel of its own, no backend is named, so that this
    check does not ask for one. A speed-up that KernelBench calls excessive counts as failed.
    """
    evaluator = import_evaluator(kernelbench)
    source = candidate.read_text(encoding="utf-8")
    is_triton = detect_language(source.encode()) is Language.TRITON
    checker = importlib.import_module("kernelbench.kernel_static_checker")
    is_valid, errors, _ = checker.validate_kernel_static(source, "triton" if is_triton else "torch", "fp32")
    if not is_valid:
        print(f"failed: {errors}"[:300])
        return 0
    result = evaluator.eval_kernel_against_ref(
        reference.read_text(encoding="utf-8"),
        source,
        num_correct_trials=5,
        measure_performance=True,
        num_perf_trials=100,
        backend="triton" if is_triton else "cuda",
    )
    is_right = result is not None and result.correctness and not result.metadata.get("excessive_speedup")
    print(f"{'passed' if is_right else 'failed'}: {'' if result is None else result.metadata}"[:300])
    return 0


def import_evaluator(kernelbench: Path) -> types.ModuleType:
    """Import the evaluator; what it does not need is replaced by mocks where it is not installed."""
    for name in UNNEEDED:
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = MagicMock()
    if importlib.util.find_spec("pydantic") is None:
        sys.modules["pydantic"] = types.ModuleType("pydantic")
        sys.modules["pydantic"].__dict__["BaseModel"] = _Fields
    sys.path.insert(0, str(kernelbench / "src"))
    return importlib.import_module("kernelbench.eval")


class _Fields:
    """As much of pydantic's models as the evaluator's result needs."""

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)


if __name__ == "__main__":
    sys.exit(main())
