"""The plan: the axes of a matrix with the properties of each value; it creates cells on request.

Cells are created lazily and their common parts are computed once: globs per axis value (:mod:`.rule_masks`), skip
reasons per combination of target, dtype and language (:mod:`.skip_rules`), and ids from one digest per question
(:mod:`.cell_id`). A million cells therefore cost one hash and one object each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kernel_matrix.matrix import Matrix, Policy, Protocol
from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.plan.cell import Cell, Skip, SkipReason
from kernel_matrix.plan.cell_id import (
    candidate_digest,
    cell_id,
    compiling_digest,
    joined,
    linked_digest,
    place_digest,
    problem_digest,
    settings_digest,
    workloads_digest,
)
from kernel_matrix.plan.cell_settings import CellSettings, resolve_settings
from kernel_matrix.plan.cost import expected_compile_seconds, expected_seconds
from kernel_matrix.plan.footprint import Footprints, memory_skip_reason, usable_bytes
from kernel_matrix.plan.host_inventory import HostInventory, devices_matching
from kernel_matrix.plan.rule_masks import RuleMasks
from kernel_matrix.plan.selection import SelectedProblem, Selection
from kernel_matrix.plan.skip_rules import ABSENT, SkipRules, Target, compiles, pairs
from kernel_matrix.platforms.registry import get_platform, platforms
from kernel_matrix.sources import Candidate, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spot:
    """One value of GPU × toolchain × dtype."""

    target: Target
    dtype: Dtype
    mask: int
    digest: bytes
    on_axes: bool
    """``False``: the dtype is not on the axis; only cells that an include names exist."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Properties of a candidate that its skip reason and settings depend on."""

    mask: int
    language: Language
    dtypes: tuple[Dtype, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """One problem with the properties of its candidates."""

    selected: SelectedProblem
    mask: int
    digest: bytes
    kinds: tuple[_Kind, ...]
    candidates: tuple[tuple[Candidate, bytes, int], ...]
    """Each with its digest and the index of its kind."""


@dataclass(frozen=True, slots=True)
class _Task:
    """Workloads and settings of the candidates of one row that the same overrides match."""

    settings: CellSettings
    workloads: tuple[Workload, ...]
    digest: bytes


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """Result shared by all cells of one spot, row and kind of candidate."""

    question: bytes
    """Digest of everything but the candidate."""
    workloads: tuple[Workload, ...]
    protocol: Protocol
    policy: Policy
    reason: Skip | None
    expected_s: float
    link: str | None = None
    compile_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The cells of a matrix on one host.

    The order of cells follows the file: GPU, toolchain, dtype, problem, candidate. Each iteration creates them anew.
    """

    matrix: Matrix
    selection: Selection
    host: HostInventory
    warnings: tuple[str, ...]
    compile_only: bool
    """``True``: every cell is only compiled, also for GPUs that this host has."""
    _spots: tuple[_Spot, ...]
    _rows: tuple[_Row, ...]
    _skip_rules: SkipRules
    _rules: RuleMasks
    _footprints: Footprints = field(default_factory=dict)
    _tasks: dict[tuple[str, int, int], _Task] = field(default_factory=dict)

    def cells(self) -> Iterator[Cell]:
        """Yield every cell, runnable here or not."""
        for spot in self._spots:
            for row in self._rows:
                yield from self._cells_of(spot, row)

    def runnable(self) -> Iterator[Cell]:
        """Return an iterator over the cells that can run here."""
        return (cell for cell in self.cells() if cell.reason is None)

    def _cells_of(self, spot: _Spot, row: _Row) -> Iterator[Cell]:
        # The only loop that runs once per cell, so shared values are looked up before it.
        gpu, toolchain, dtype, problem = spot.target.gpu, spot.target.toolchain, spot.dtype, row.selected.problem
        verdicts = [self._evaluate(spot, row, kind) for kind in row.kinds]
        for candidate, digest, kind in row.candidates:
            verdict = verdicts[kind]
            if verdict is None:
                continue
            yield Cell(
                id=cell_id(verdict.question, digest),
                gpu=gpu,
                toolchain=toolchain,
                dtype=dtype,
                problem=problem,
                candidate=candidate,
                workloads=verdict.workloads,
                protocol=verdict.protocol,
                policy=verdict.policy,
                reason=verdict.reason,
                expected_s=verdict.expected_s,
                link=verdict.link,
                compile_only=verdict.compile_only,
            )

    def _evaluate(self, spot: _Spot, row: _Row, kind: _Kind) -> _Evaluation | None:
        """Return the common result of all cells of one kind; ``None`` if there are no such cells."""
        mask = spot.mask & row.mask & kind.mask
        if not spot.on_axes and not mask & self._rules.includes:
            return None
        task = self._task(row, mask & self._rules.overrides)
        paired = pairs(spot.target.gpu, spot.target.toolchain)
        reason = self._reason(spot, row, kind, mask, task) if paired else None
        if self._is_only_compiled(spot, kind, task, reason, row.selected.problem.ranks):
            return self._evaluate_compile_only(spot, row, kind, mask, task)
        if self.compile_only or not paired:
            return None
        link = self._skip_rules.link(spot.target, row.selected.problem.ranks)
        expected_s = expected_seconds(
            task.settings.protocol,
            workloads=len(task.workloads),
            held_out=len(row.selected.problem.held_out_workloads),
            platform=spot.target.gpu.platform,
            language=kind.language,
            sanitizers=len(task.settings.policy.sanitize),
        )
        return _Evaluation(
            question=linked_digest(joined(spot.digest, task.digest), link),
            workloads=task.workloads,
            protocol=task.settings.protocol,
            policy=task.settings.policy,
            reason=reason,
            expected_s=expected_s,
            link=link,
        )

    def _is_only_compiled(self, spot: _Spot, kind: _Kind, task: _Task, reason: Skip | None, ranks: int) -> bool:
        """Return whether cells of one kind are built but not run, on request or because the device is absent.

        Calls of several ranks cannot be compiled ahead of time, since a builder has no other ranks.
        """
        if ranks > 1 or not compiles(spot.target.gpu, spot.target.toolchain, kind.language):
            return False
        absent = spot.target.device is None and (reason is None or reason.kind in ABSENT)
        return self.compile_only or (task.settings.policy.compile_absent and absent)

    def _evaluate_compile_only(self, spot: _Spot, row: _Row, kind: _Kind, mask: int, task: _Task) -> _Evaluation:
        reason = self._excluded(spot, row, kind, mask) or self._skip_rules.of_compiling(spot.target, kind.language)
        return _Evaluation(
            question=compiling_digest(joined(spot.digest, task.digest)),
            workloads=task.workloads,
            protocol=task.settings.protocol,
            policy=task.settings.policy,
            reason=reason,
            expected_s=expected_compile_seconds(kind.language),
            compile_only=True,
        )

    def _task(self, row: _Row, overrides: int) -> _Task:
        key = (row.selected.problem.id, row.selected.problem.ranks, overrides)
        if key not in self._tasks:
            settings = resolve_settings(self.matrix, self._rules.overrides_of(overrides))
            workloads = settings.choose(row.selected.workloads, row.selected.problem.shown_workloads)
            how = settings_digest(settings.protocol, settings.policy)
            self._tasks[key] = _Task(settings, workloads, joined(row.digest, how, workloads_digest(workloads)))
        return self._tasks[key]

    def _reason(self, spot: _Spot, row: _Row, kind: _Kind, mask: int, task: _Task) -> Skip | None:
        policy, target = task.settings.policy, spot.target
        reason = self._excluded(spot, row, kind, mask)
        reason = reason or self._skip_rules.of_cell(target, spot.dtype, kind.language, policy.clocks)
        reason = reason or self._skip_rules.of_ranks(target, row.selected.problem.ranks, kind.language)
        if reason is not None or target.device is None or not target.platform.IS_ACCELERATOR:
            return reason
        usable = usable_bytes(target.device, policy)
        return memory_skip_reason(row.selected.problem, task.workloads, spot.dtype, usable, self._footprints)

    def _excluded(self, spot: _Spot, row: _Row, kind: _Kind, mask: int) -> Skip | None:
        """Return the reason to skip such cells on every host; ``None`` if there is none."""
        exclude = self._rules.exclusion_of(mask)
        if exclude is not None:
            return Skip(kind=SkipReason.EXCLUDED, text=f"excluded because {exclude.reason}")
        for noun, offered in (("problem", row.selected.problem.dtypes), ("candidate", kind.dtypes)):
            if offered and spot.dtype not in offered:
                names = ", ".join(dtype.value for dtype in offered)
                text = f"the {noun} does not offer {spot.dtype.value}, only {names}"
                return Skip(kind=SkipReason.DTYPE_NOT_OFFERED, text=text)
        return None


def make_plan(
    matrix: Matrix,
    selection: Selection,
    host: HostInventory,
    *,
    compile_only: bool = False,
    footprints: Footprints | None = None,
) -> Plan:
    """Return the plan of ``matrix`` on a host with the inventory ``host``.

    Args:
        matrix: The matrix.
        selection: Its problems and candidates.
        host: Inventory of the host.
        compile_only: Only compile every cell on a GPU axis with a compute capability, and leave out all others.
        footprints: Device memory that workloads need, as earlier records measured it.
    """
    rules, skip_rules = RuleMasks.of(matrix), SkipRules(host)
    unpaired = compile_only or _compiles_absent(matrix)
    spots = tuple(spot for spot in _spots(matrix, rules, skip_rules) if unpaired or _is_paired(spot))
    notes = (note for spot in spots if _is_paired(spot) for note in skip_rules.notes(spot.target))
    axes = (*(() if compile_only else _unpaired(matrix, host)), *_mixed_axes(matrix, host))
    return Plan(
        matrix=matrix,
        selection=selection,
        host=host,
        warnings=tuple(dict.fromkeys((*selection.warnings, *axes, *notes))),
        compile_only=compile_only,
        _spots=spots,
        _rows=tuple(_row(selected, rules) for selected in selection.problems),
        _skip_rules=skip_rules,
        _rules=rules,
        _footprints=footprints or {},
    )


def _spots(matrix: Matrix, rules: RuleMasks, skip_rules: SkipRules) -> Iterator[_Spot]:
    dtypes = dict.fromkeys((*matrix.dtypes, *(dtype for rule in matrix.include for dtype in rule.dtypes)))
    for gpu in (gpu for gpu in matrix.gpus if gpu.platform in platforms()):
        for toolchain in matrix.toolchains:
            target = skip_rules.target(gpu, toolchain)
            mask = rules.gpu_mask(gpu.name) & rules.toolchain_mask(toolchain.name)
            for dtype in dtypes:
                yield _Spot(
                    target=target,
                    dtype=dtype,
                    mask=mask & rules.dtype_mask(dtype),
                    digest=place_digest(gpu, toolchain, dtype),
                    on_axes=dtype in matrix.dtypes,
                )


def _is_paired(spot: _Spot) -> bool:
    return pairs(spot.target.gpu, spot.target.toolchain)


def _compiles_absent(matrix: Matrix) -> bool:
    """Return whether the policy, or an override of it, asks to compile candidates for GPUs that are not here."""
    return matrix.policy.compile_absent or any(rule.policy.get("compile_absent") for rule in matrix.overrides)


def _row(selected: SelectedProblem, rules: RuleMasks) -> _Row:
    kinds: dict[_Kind, int] = {}
    candidates = []
    for candidate in selected.candidates:
        kind = _Kind(rules.candidate_mask(candidate), candidate.language, candidate.dtypes)
        candidates.append((candidate, candidate_digest(candidate), kinds.setdefault(kind, len(kinds))))
    return _Row(
        selected=selected,
        mask=rules.problem_mask(selected.problem),
        digest=problem_digest(selected.problem),
        kinds=tuple(kinds),
        candidates=tuple(candidates),
    )


def _unpaired(matrix: Matrix, host: HostInventory) -> Iterator[str]:
    """Yield a warning for each axis value without cells, because no value of the other axis fits it."""
    toolchains = [host.environments.get(toolchain.name, toolchain) for toolchain in matrix.toolchains]
    for gpu in matrix.gpus:
        if gpu.platform not in platforms():
            yield f"gpu {gpu.name} has no cell: platform {gpu.platform} cannot be used, see kernel-matrix doctor"
        elif not any(pairs(gpu, toolchain) for toolchain in toolchains):
            yield f"gpu {gpu.name} has no cell: no toolchain fits it, none is for {get_platform(gpu.platform).TITLE}s"
    for toolchain in toolchains:
        if not any(pairs(gpu, toolchain) for gpu in matrix.gpus):
            kind = platforms()[toolchain.platform].TITLE if toolchain.platform in platforms() else toolchain.platform
            its = "its PyTorch is built" if toolchain.environment else "it is"
            yield f"toolchain {toolchain.name} has no cell: no gpu fits it, {its} for {kind}s"


def _mixed_axes(matrix: Matrix, host: HostInventory) -> Iterator[str]:
    """Yield a warning for each axis value that matches several kinds of device, whose results are not comparable."""
    for gpu in matrix.gpus:
        devices = devices_matching(gpu, host.gpus)
        if len({device.compute_capability for device in devices}) > 1:
            names = ", ".join(f"{device.name} ({device.compute_capability})" for device in devices)
            yield f"gpu {gpu.name} matches different devices here: {names}; narrow it by model or compute_capability"
