"""Generate candidates by a language model for the problems of a matrix, and judge them here or by a service."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kernel_matrix.api.judge_candidates import HostJudge, SentCandidate, result_of
from kernel_matrix.api.plan import load_matrix
from kernel_matrix.api.run_cells import new_run_id
from kernel_matrix.errors import NothingSelectedError, UsageError, suggestion
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.generation import CandidateEvaluator, GeneratedCandidate
from kernel_matrix.generation.budget import GenerationBudget
from kernel_matrix.generation.candidate_files import CANDIDATE_FOLDER
from kernel_matrix.generation.chat import ChatEndpoint
from kernel_matrix.generation.generation_events import (
    AnswerReceived,
    CandidateJudged,
    GenerationListener,
    GenerationNote,
    GenerationProgress,
    GenerationResult,
    GenerationStarted,
)
from kernel_matrix.generation.prices import BUNDLED_PRICES, read_price
from kernel_matrix.generation.prompts import LANGUAGES, PromptOptions, PromptTarget, PromptWriter
from kernel_matrix.generation.recorded_server import recorded_server
from kernel_matrix.generation.rounds import Generation, GenerationSettings
from kernel_matrix.generation.service_evaluator import judging_by_service
from kernel_matrix.hosts.survey import AUTO, survey
from kernel_matrix.matrix import GpuAxis, Matrix
from kernel_matrix.matrix.globs import matches
from kernel_matrix.model.enums import Fault, Language, Status
from kernel_matrix.model.evaluation import EvaluationResult
from kernel_matrix.plan import Cell, load_selection

__all__ = [
    "AnswerReceived",
    "CandidateJudged",
    "GenerationBudget",
    "GenerationListener",
    "GenerationNote",
    "GenerationOptions",
    "GenerationProgress",
    "GenerationResult",
    "GenerationSettings",
    "GenerationStarted",
    "Language",
    "PromptOptions",
    "first_prompts",
    "generate",
    "parse_language",
]

_RESULT_FOLDER: Final = "results"
_PLAIN_SOURCE: Final = "class ModelNew:\n    pass\n"
"""Candidate without a kernel: all that can keep it from being judged are problem, GPU, dtype and toolchain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions:
    """Options of a generation."""

    matrix: Path
    settings: GenerationSettings
    """What is asked; without a price, that of ``prices`` is taken."""
    folder: Path = Path("generated")
    """Where candidates, answers, the ledger and results are kept. The same folder goes on with what is there."""
    base_url: str = ""
    """Address of an OpenAI-compatible endpoint, up to ``/chat/completions``."""
    recorded: Path | None = None
    """Folder of recorded answers that take the place of an endpoint; see
    :mod:`kernel_matrix.generation.recorded_server`."""
    api_key_env: str = "OPENAI_API_KEY"
    """Name of the environment variable of the key; it need not be set for an endpoint without keys."""
    timeout_s: float = 600.0
    """Longest time from sending a request to the end of its answer."""
    problems: Sequence[str] = ()
    """Globs on the ids of the matrix's problems; none: all."""
    gpu: str = ""
    """Names of the matrix, as are ``dtype`` and ``toolchain``; empty: its first."""
    dtype: str = ""
    toolchain: str = ""
    prices: Path | None = None
    runs: Path | None = None
    """Folder for a copy of the candidates in the layout of KernelBench's ``runs/<run>``."""
    judge: str = ""
    """Address of a service that judges; its token is in ``KERNEL_MATRIX_TOKEN``. Empty: this host judges, with
    ``sandbox`` and ``lock``."""
    sandbox: str = AUTO
    lock: Path | None = None


def parse_language(name: str) -> Language:
    """Return the language of that name.

    Raises:
        UsageError: Candidates cannot be asked for in it.
    """
    if name not in LANGUAGES:
        what = f"--language {name} is not known{suggestion(name, LANGUAGES)}"
        raise UsageError(what, next_step=f"choose one of {', '.join(LANGUAGES)}")
    return Language(name)


def first_prompts(options: GenerationOptions) -> Iterator[tuple[str, str]]:
    """Yield the id of each problem and the prompt of its first round; nothing is sent.

    Raises:
        UsageError: An option cannot be used.
        NothingSelectedError: No problem is selected.
    """
    writer = PromptWriter(options.settings.prompt)
    for target in _targets(load_matrix(options.matrix), options):
        yield target.problem.id, writer.first(target)


def generate(
    options: GenerationOptions,
    *,
    listener: GenerationListener = lambda _progress: None,
    evaluator: CandidateEvaluator | None = None,
    command: Sequence[str] = (),
) -> GenerationResult:
    """Ask a model for candidates, judge them, and feed back what was found, for some rounds.

    Args:
        options: What is asked, and where everything is kept.
        listener: Gets events in this thread.
        evaluator: Judges candidates; None: a service or this host does, as ``options`` say.
        command: Words of the command line, for the record of the run.

    Raises:
        UsageError: An option cannot be used, or the endpoint refuses requests.
        NothingSelectedError: No problem is selected.
        InfrastructureError: The endpoint or the service does not answer, a file cannot be written, or nothing can be
            judged here.
    """
    settings = options.settings
    if not settings.model or not (options.base_url or options.recorded):
        raise UsageError("no model, or no endpoint, is named", next_step="give --model NAME and --base-url URL")
    if options.judge and (options.sandbox != AUTO or options.lock is not None):
        given = "--lock" if options.sandbox == AUTO else "--sandbox"
        raise UsageError(
            f"{given} is about this host, and --judge judges nothing here", next_step="leave one of them out"
        )
    matrix = load_matrix(options.matrix)
    targets = _targets(matrix, options)
    if settings.price is None:
        settings = replace(settings, price=read_price(options.prices or BUNDLED_PRICES, settings.model))
    with ExitStack() as undo:
        endpoint = _endpoint(options, undo)
        judge = evaluator or undo.enter_context(_judging(matrix, targets, options, command))
        return Generation(
            settings,
            targets,
            options.folder,
            endpoint=endpoint,
            evaluator=judge,
            listener=listener,
            runs=options.runs,
        ).run()


def _endpoint(options: GenerationOptions, undo: ExitStack) -> ChatEndpoint:
    if options.recorded is not None:
        return ChatEndpoint(base_url=undo.enter_context(recorded_server(options.recorded)).url)
    return ChatEndpoint(
        base_url=options.base_url,
        api_key=os.environ.get(options.api_key_env, "").strip(),
        key_variable=options.api_key_env,
        timeout_s=options.timeout_s,
    )


def _targets(matrix: Matrix, options: GenerationOptions) -> list[PromptTarget]:
    """Return what candidates are asked for.

    Raises:
        UsageError: A name is not one of the matrix.
        NothingSelectedError: No problem is selected.
    """
    gpu = _gpu(matrix, options.gpu)
    targets = []
    selected = load_selection(matrix).problems
    for chosen in selected:
        dtypes = [it for it in matrix.dtypes if it in chosen.problem.dtypes and options.dtype in ("", it.value)]
        if dtypes and matches(chosen.problem.id, options.problems):
            targets.append(
                PromptTarget(
                    problem=chosen.problem,
                    workloads=chosen.workloads,
                    gpu=gpu,
                    toolchain=options.toolchain or matrix.toolchains[0].name,
                    dtype=dtypes[0],
                )
            )
    if not targets:
        wanted = next(iter(options.problems), "*")
        hint = suggestion(wanted, [chosen.problem.id for chosen in selected])
        what = f"no problem of {matrix.path.name} is {wanted!r} and has dtype {options.dtype or 'of the matrix'}{hint}"
        raise NothingSelectedError(what, next_step="kernel-matrix plan lists the matrix's problems and dtypes")
    return targets


def _gpu(matrix: Matrix, name: str) -> GpuAxis:
    gpus = {gpu.name: gpu for gpu in matrix.gpus}
    if name and name not in gpus:
        what = f"there is no gpu {name!r}{suggestion(name, list(gpus))}"
        raise UsageError(what, next_step=f"gpus of the matrix are {', '.join(gpus)}")
    return gpus[name] if name else matrix.gpus[0]


class _MatrixEvaluator:
    """Judges candidates in cells of a matrix on this host."""

    def __init__(self, judge: HostJudge, options: GenerationOptions, run_id: str) -> None:
        self._judge = judge
        self._options = options
        self.run_id = run_id
        self.counts: Counter[Status] = Counter()

    def evaluate(
        self, candidates: Sequence[GeneratedCandidate], /
    ) -> Iterator[tuple[GeneratedCandidate, EvaluationResult]]:
        """See :class:`CandidateEvaluator`."""
        cells: dict[str, Cell] = {}
        waiting: dict[str, GeneratedCandidate] = {}
        for candidate in candidates:
            try:
                cell = self._judge.cell_of(self._sent(candidate))
            except UsageError as error:  # noqa: PERF203  # one that cannot be judged must not end the others
                evidence = {"message": error.what}
                yield candidate, EvaluationResult(Status.UNSUPPORTED.value, Fault.UNSUPPORTED.value, evidence=evidence)
            else:
                cells[cell.id], waiting[cell.id] = cell, candidate
        policy = RunPolicy(run_id=self.run_id, build_workers=self._judge.matrix.policy.build_workers)
        for record in self._judge.judge(tuple(cells.values()), policy):
            self.counts[record.outcome.status] += 1
            yield waiting[record.cell_id], result_of(record)

    def check(self, problem: str) -> None:
        """Check, before anything is paid for, that candidates for a problem can be judged here.

        Raises:
            UsageError: They cannot.
        """
        try:
            self._judge.cell_of(self._sent(GeneratedCandidate(problem=problem, name="", source=_PLAIN_SOURCE)))
        except UsageError as error:
            step = "kernel-matrix plan says what runs here; --gpu, --dtype, --toolchain and --problem choose"
            raise UsageError(f"{problem} cannot be judged: {error.what}", next_step=step) from None

    def _sent(self, candidate: GeneratedCandidate) -> SentCandidate:
        options, file = self._options, f"{candidate.name}{candidate.suffix}"
        return SentCandidate(
            problem=candidate.problem,
            source=candidate.source,
            suffix=candidate.suffix,
            # Its metadata make the record say who wrote it, in which round, and what it cost.
            file=options.folder / CANDIDATE_FOLDER / candidate.problem / file if candidate.name else None,
            dtype=options.dtype,
            gpu=options.gpu,
            toolchain=options.toolchain,
        )


def _judging(
    matrix: Matrix, targets: Sequence[PromptTarget], options: GenerationOptions, command: Sequence[str]
) -> AbstractContextManager[CandidateEvaluator]:
    if options.judge:
        return judging_by_service(options.judge, targets, options.folder)
    return _judging_here(matrix, targets, options, command)


@contextmanager
def _judging_here(
    matrix: Matrix, targets: Sequence[PromptTarget], options: GenerationOptions, command: Sequence[str]
) -> Iterator[_MatrixEvaluator]:
    """Provide the judge of this host; its records are one run, whose description is written at both ends.

    Raises:
        UsageError: Candidates for a problem cannot be judged here.
    """
    folder = options.folder / _RESULT_FOLDER / matrix.name
    judge = HostJudge(matrix, folder, survey(matrix, sandbox=options.sandbox, lock_path=options.lock))
    evaluator = _MatrixEvaluator(judge, options, new_run_id())
    for target in targets:
        evaluator.check(target.problem.id)
    with judge.described(evaluator.run_id, evaluator.counts, command=command):
        yield evaluator
