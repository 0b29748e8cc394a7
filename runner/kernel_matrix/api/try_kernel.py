"""Judge one file here and now, without a matrix."""

from __future__ import annotations

import glob
import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernel_matrix.api.audit import Severity, audit
from kernel_matrix.api.plan import make_plan
from kernel_matrix.api.problems import Problem, find_problems, write_problem
from kernel_matrix.api.results import Results
from kernel_matrix.api.run_cells import Listener, Record, RunProgress, run
from kernel_matrix.api.written_matrix import newest_folder, quoted
from kernel_matrix.environments import AUTO, PythonEnvironment
from kernel_matrix.environments.inspection import read_environment
from kernel_matrix.errors import InfrastructureError, UsageError, suggestion
from kernel_matrix.executors.events import RunEvent
from kernel_matrix.inside.batch_times import median_interval
from kernel_matrix.matrix import ProblemSet
from kernel_matrix.measure.timed import CANDIDATE, WorkloadTimes
from kernel_matrix.model.enums import Dtype
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform, host_inventory
from kernel_matrix.sources import RANKS, load_source
from kernel_matrix.sources.document import UnreadableFileError
from kernel_matrix.sources.folder import CANDIDATE_FOLDER, PROBLEM_FILE, REFERENCE_FILE, SUFFIXES
from kernel_matrix.sources.reference_module import read_reference

__all__ = ["TriedKernel", "try_kernel"]

_SMALL_SHAPES, _REAL_SHAPES = "smoke", "default"
"""Workloads preferred on a CPU, which checks whether a kernel is right, and on a GPU, which shows how fast it is."""
_SHORT_PROTOCOL = """
warmup_calls = 3
min_samples = 12
max_samples = 40
target_half_width = 0.02
budget_s = 1
block_calls = 4
"""
"""Protocol on a CPU: a check that a kernel is right, and no measurement."""
_PROBLEM_HELP = "kernel-matrix docs problems says what such files hold"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedKernel:
    """The result of :func:`try_kernel`."""

    record: Record
    device: str
    """Product name."""
    remark: str
    """Why it was not judged on a GPU that is here; empty otherwise."""
    rows: Sequence[Mapping[str, Any]]
    """One row per workload, with the columns of :meth:`kernel_matrix.Results.latest`."""
    intervals_ns: Mapping[str, tuple[float, float]]
    """Workload → 95 % interval of the candidate's median time, nanoseconds, in the first session that has its times."""
    objections: Sequence[tuple[str, str]]
    """Checks of the audit that object to what was measured, each with its evidence."""
    record_path: Path
    """The record's file."""
    matrix: Path
    """The matrix that was written and run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The device to judge on."""

    platform: str
    device: str
    remark: str = ""

    @property
    def is_accelerator(self) -> bool:
        return get_platform(self.platform).IS_ACCELERATOR


def try_kernel(
    file: str | Path,
    *,
    problem: str = "",
    reference: str | Path | None = None,
    dtype: str = "",
    workload: str = "",
    platform: str = "",
    ranks: int | None = None,
    sessions: int = 1,
    listener: Listener | None = None,
) -> TriedKernel:
    """Judge one file on a device of this host, with the PyTorch of this Python, in the sandbox ``process``.

    Args:
        file: A candidate, ``.py`` with a class ``ModelNew``, ``.cu`` or ``.hip``; a ``.toml`` beside it describes it.
        problem: Id of the problem: one of ``./matrix.toml``, of ``./problems``, or one that comes with the package. For
            a file in the folder ``candidates`` of a problem it is that one by default.
        reference: In place of ``problem``: a module with ``Model`` and ``get_inputs``.
        dtype: By default the problem's first.
        workload: Name of the shapes. By default ``default`` on a GPU and ``smoke`` on a CPU, else the problem's first.
        platform: ``cpu``, for example; by default a GPU's if one is here that this PyTorch is built for.
        ranks: Number of processes that make a call together, for a problem of several; by default the problem's.
        sessions: Number of sessions; from two on there is an interval between sessions.
        listener: As for :func:`kernel_matrix.run`.

    Returns:
        The record, and what was measured. Only the last result for each file is kept.

    Raises:
        UsageError: A file or an argument cannot be used.
        InfrastructureError: This Python cannot run kernels, for example since it has no PyTorch.

    Examples:
        >>> import kernel_matrix
        >>> tried = kernel_matrix.try_kernel("my_softmax.py", problem="softmax")  # doctest: +SKIP
        >>> tried.record.outcome.status.value  # doctest: +SKIP
        'passed'
    """
    path = _candidate_file(Path(file))
    place = _choose_place(platform, read_environment(AUTO))
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    with newest_folder(Path("try", f"{path.stem}-{digest}")) as folder:
        chosen, its_set = _own_problem(Path(reference), folder, dtype) if reference else _find_problem(problem, path)
        _copy_candidate(path, folder, chosen.id)
        text = _matrix_text(
            chosen,
            its_set,
            place=place,
            dtype=_choose_dtype(chosen, dtype),
            workload=_choose_workload(chosen, workload, place),
            candidate=f"{chosen.id}/{path.stem}",
            ranks=_choose_ranks(chosen, ranks),
            sessions=sessions,
        )
        matrix = folder / "matrix.toml"
        matrix.write_text(text, encoding="utf-8")
        return _judge(matrix, place, listener)


def _judge(matrix: Path, place: _Place, listener: Listener | None) -> TriedKernel:
    records: list[Record] = []

    def tell(progress: RunProgress) -> None:
        if isinstance(progress, RunEvent) and progress.record is not None:
            records.append(progress.record)
        if listener is not None:
            listener(progress)

    plan = make_plan(matrix, sandbox="process")
    if plan.plan.selection.unreadable:
        raise UsageError("\n".join(map(str, plan.plan.selection.unreadable)), next_step="mend the file, and try again")
    ran = run(plan, matrix.parent / "results", listener=tell)
    if not records:
        raise InfrastructureError(
            "the run ended without a record", next_step="kernel-matrix doctor looks for the cause"
        )
    with ran.results() as results:
        rows = [{**row, "message": records[-1].shown_evidence.message} for row in results.latest().to_dicts()]
        objections = tuple(_objections(results))
    return TriedKernel(
        record=records[-1],
        device=place.device,
        remark=place.remark,
        rows=rows,
        intervals_ns=dict(_intervals(records[-1])),
        objections=objections,
        record_path=ran.records / f"{records[-1].stem}.json",
        matrix=matrix,
    )


def _objections(results: Results) -> Iterator[tuple[str, str]]:
    for found in audit(results):
        if found.check.severity is not Severity.NOTE:
            yield from ((found.check.name, evidence) for evidence in found.findings["evidence"])


def _intervals(record: Record) -> Iterator[tuple[str, tuple[float, float]]]:
    for session in reversed(record.sessions):  # the first session that has a workload's times is the last to be kept
        for workload in session.workloads:
            samples = WorkloadTimes.of_report(workload).samples_ns(CANDIDATE)
            if samples:
                found = median_interval(samples)
                yield workload.name, (found.low, found.high)


def _candidate_file(path: Path) -> Path:
    if _readable(path).suffix not in SUFFIXES:
        what = f"{path} is no {' or '.join(SUFFIXES)} file"
        raise UsageError(what, next_step="a candidate is a Python module with ModelNew, or one file of native code")
    return path


def _readable(path: Path) -> Path:
    try:
        path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", next_step="name the file of a kernel") from None
    return path


# ---- the device


def _choose_place(platform: str, environment: PythonEnvironment) -> _Place:
    here = {name: found.gpus for name, found in host_inventory().items() if found.gpus}
    if platform:
        return _named_place(platform, here)
    accelerators = {name: gpus for name, gpus in here.items() if get_platform(name).IS_ACCELERATOR}
    built_for = [name for name in accelerators if name in environment.torch_builds]
    if built_for:
        return _Place(platform=built_for[0], device=here[built_for[0]][0].name)
    remark = ""
    if accelerators:
        gpu = next(iter(accelerators.values()))[0].name
        torch = environment.distributions["torch"]
        remark = f"{gpu} is here, but PyTorch {torch} in {environment.prefix} is not built for it"
    return replace(_named_place("cpu", here), remark=remark)


def _named_place(platform: str, here: Mapping[str, Sequence[Gpu]]) -> _Place:
    if platform not in here:
        what = f"no device of the platform {platform!r} is here{suggestion(platform, list(here))}"
        raise UsageError(what, next_step=f"here: {', '.join(here)}")
    return _Place(platform=platform, device=here[platform][0].name)


# ---- the problem


def _find_problem(name: str, path: Path) -> tuple[Problem, ProblemSet]:
    """Return the problem of that id, and the set to write into the matrix."""
    if not name:
        return _problem_around(path)
    known: list[str] = []
    for problem, its_set in find_problems():
        if problem.id == name:
            return problem, its_set
        known.append(problem.id)
    what = f"there is no problem {name!r}{suggestion(name, known)}"
    raise UsageError(what, next_step="kernel-matrix problems list names them; --reference FILE takes one of your own")


def _problem_around(path: Path) -> tuple[Problem, ProblemSet]:
    """Return the problem in whose folder ``candidates`` the file is."""
    folder = path.resolve().parent
    if folder.name != CANDIDATE_FOLDER or not (folder.parent / PROBLEM_FILE).is_file():
        raise UsageError(
            "no problem is named, so there is nothing to compare with",
            next_step="--problem ID, of `kernel-matrix problems list`, or --reference FILE",
        )
    return _in_folder(folder.parent)


def _in_folder(folder: Path) -> tuple[Problem, ProblemSet]:
    its_set = ProblemSet(source="folder", path=folder.parent)
    loaded = load_source("folder", folder.parent)
    for problem in loaded.problems:
        if problem.id == folder.name:
            return problem, its_set
    refused = [str(item) for item in loaded.unreadable if folder in item.path.parents]
    what = "\n".join(refused) or f"{folder} is not a problem"
    raise UsageError(what, next_step=_PROBLEM_HELP)


def _own_problem(reference: Path, folder: Path, dtype: str) -> tuple[Problem, ProblemSet]:
    """Return the problem of a reference: of the folder that it is in, or of a new folder made for it."""
    _readable(reference)
    if reference.name == REFERENCE_FILE and (reference.parent / PROBLEM_FILE).is_file():
        return _in_folder(reference.resolve().parent)
    try:
        read_reference(reference)
    except UnreadableFileError as error:
        raise UsageError(str(error), next_step=_PROBLEM_HELP) from None
    made = folder / "problems" / reference.stem
    text = f"The reference {reference.name}."
    write_problem(made, reference.read_bytes(), [dtype or Dtype.FP32.value], description=text)
    return _in_folder(made)


def _choose_dtype(problem: Problem, name: str) -> Dtype:
    if not name:
        return problem.dtypes[0]
    offered = [dtype.value for dtype in problem.dtypes]
    if name not in offered:
        what = f"{problem.id} does not offer the dtype {name!r}{suggestion(name, offered)}"
        raise UsageError(what, next_step=f"--dtype: {', '.join(offered)}")
    return Dtype(name)


def _choose_workload(problem: Problem, name: str, place: _Place) -> str:
    offered = [workload.name for workload in problem.shown_workloads]
    preferred = _REAL_SHAPES if place.is_accelerator else _SMALL_SHAPES
    if not name:
        return preferred if preferred in offered else offered[0]
    if name not in offered:
        what = f"{problem.id} has no workload {name!r}{suggestion(name, offered)}"
        raise UsageError(what, next_step=f"--workload: {', '.join(offered)}")
    return name


def _choose_ranks(problem: Problem, ranks: int | None) -> int:
    if ranks is None or ranks == problem.ranks:
        return problem.ranks
    if problem.ranks == 1 or ranks not in RANKS:
        known = f"problems of several ranks run with {RANKS[0]} to {RANKS[-1]}"
        what = f"{problem.id} has {problem.ranks} {'rank' if problem.ranks == 1 else 'ranks'}, and not {ranks}"
        raise UsageError(what, next_step=f"leave --ranks out; {known}")
    return ranks


# ---- the files


def _copy_candidate(path: Path, folder: Path, problem_id: str) -> None:
    """Copy the file, and the metadata beside it, so that a record's source stays what was judged."""
    place = folder / "candidates" / problem_id
    place.mkdir(parents=True)
    for source in (path, path.with_suffix(".toml")):
        if source.is_file():
            shutil.copyfile(source, place / source.name)


def _matrix_text(
    problem: Problem,
    its_set: ProblemSet,
    *,
    place: _Place,
    dtype: Dtype,
    workload: str,
    candidate: str,
    ranks: int,
    sessions: int,
) -> str:
    path = "" if its_set.path is None else f"path = {quoted(str(its_set.path))}"
    several = f"ranks = {ranks}" if problem.ranks > 1 else ""
    protocol = "" if place.is_accelerator else _SHORT_PROTOCOL.strip()
    return f"""\
# Written by `kernel-matrix try`.
name = "try"
dtypes = [{quoted(dtype.value)}]

[[gpus]]
name = "{"gpu" if place.is_accelerator else "cpu"}"
platform = {quoted(place.platform)}

[[toolchains]]
name = "here"
environment = "auto"
platform = {quoted(place.platform)}

[[problems]]
source = {quoted(its_set.source)}
{path}
select = {quoted(glob.escape(problem.id))}
workloads = {quoted(workload)}
{several}

[[candidates]]
path = "candidates"
select = {quoted(glob.escape(candidate))}

[protocol]
sessions = {sessions}
max_sessions = {sessions}
{protocol}
"""
