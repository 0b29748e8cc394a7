"""Evaluation of generated candidates by a service that runs elsewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from kernel_matrix.client.exchanges import Evaluation
from kernel_matrix.client.http_clients import Client
from kernel_matrix.client.rewards import submit_each
from kernel_matrix.errors import KernelMatrixError, ServiceError, ServiceRefusedError, UsageError, suggestion
from kernel_matrix.generation import GeneratedCandidate
from kernel_matrix.generation.candidate_files import CANDIDATE_FOLDER
from kernel_matrix.generation.prompts import PromptTarget
from kernel_matrix.model.enums import Fault, Status
from kernel_matrix.model.evaluation import EvaluationResult, source_name
from kernel_matrix.model.messages import dumps
from kernel_matrix.sources.document import read_document
from kernel_matrix.sources.folder import SUFFIXES

_LOOK_EVERY_S: Final = 2.0
"""How long results may be known to the service before they are taken."""
_CANCEL_FOR_S: Final = 10.0
"""How long a service that does not answer is asked to cancel: the user waits for the end of the command."""


class ServiceEvaluator:
    """Has candidates judged by a service.

    A candidate has the same key whenever it is sent, so that a generation that was killed finds its evaluations again.

    Args:
        client: Client of the service.
        targets: What candidates are for; names are those of the service's matrix too.
        folder: Folder of the generation, which has the candidates' metadata.
    """

    def __init__(self, client: Client, targets: Sequence[PromptTarget], folder: Path) -> None:
        self._client = client
        self._candidates = folder / CANDIDATE_FOLDER
        self._targets = {target.problem.id: target for target in targets}
        self._waiting: dict[str, GeneratedCandidate] = {}

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Ids of the evaluations that have not ended."""
        return tuple(self._waiting)

    def check(self) -> None:
        """Check, before anything is paid for, that the service judges what candidates are for.

        Raises:
            UsageError: It does not.
            ServiceError: It cannot be reached, or is no service of kernel-matrix.
        """
        try:
            problems = {one["id"]: one for one in self._client.problems()}
            gpus = {one["gpu"]: one for one in self._client.workers()}
            for target in self._targets.values():
                _check_target(target, problems, gpus)
        except (LookupError, TypeError) as error:
            what = f"what {self._client} says of its problems and workers cannot be read: {error}"
            raise ServiceError(what, next_step="check that --judge is the address of a kernel-matrix service") from None

    def evaluate(
        self, candidates: Sequence[GeneratedCandidate], /
    ) -> Iterator[tuple[GeneratedCandidate, EvaluationResult]]:
        """See :class:`~kernel_matrix.generation.CandidateEvaluator`."""
        submitted = self._submit([self._request(candidate) for candidate in candidates])
        refused = []
        for candidate, one in zip(candidates, submitted, strict=True):
            if isinstance(one, Evaluation):
                self._waiting[one.id] = candidate
            else:
                refused.append((candidate, one.what))
        for candidate, why in refused:
            evidence = {"message": why}
            yield candidate, EvaluationResult(Status.UNSUPPORTED.value, Fault.UNSUPPORTED.value, evidence=evidence)
        while self._waiting:
            for one in self._client.wait(self.unfinished, _LOOK_EVERY_S):
                if one.has_ended:
                    candidate = self._waiting.pop(one.id)
                    if one.result is not None:  # else it was cancelled by somebody, and has none
                        yield candidate, one.result

    def _request(self, candidate: GeneratedCandidate) -> dict[str, Any]:
        target = self._targets[candidate.problem]
        request = {
            "problem": candidate.problem,
            "source": candidate.source,
            "suffix": candidate.suffix,
            "dtype": target.dtype.value,
            "gpu": target.gpu.name,
            "toolchain": target.toolchain,
        }
        named = dumps({**request, "name": candidate.name})
        key = hashlib.sha256(named.encode()).hexdigest()
        return {**request, "key": key, "origin": self._origin(candidate)}

    def _origin(self, candidate: GeneratedCandidate) -> dict[str, Any] | None:
        """Return what the candidate's metadata say, with the name by which the service knows its parent."""
        folder = self._candidates / candidate.problem
        side = folder / f"{candidate.name}.toml"
        origin = dict(read_document(side, "candidate").values["origin"]) if side.exists() else None
        if origin and "parent" in origin:
            for file in (folder / f"{origin['parent']}{suffix}" for suffix in SUFFIXES):
                if file.exists():
                    origin["parent"] = source_name(file.read_bytes().decode(), file.suffix)
        return origin

    def _submit(self, requests: Sequence[Mapping[str, Any]]) -> list[Evaluation | ServiceRefusedError]:
        """Submit requests, again if an earlier evaluation of the same key has no score for a passing reason."""
        try:
            found = submit_each(self._client, requests)
        except ServiceRefusedError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            # Matrix or version of the service have changed since the keys were used.
            found = submit_each(self._client, [{**request, "key": None} for request in requests])
        lost = {place: one.id for place, one in enumerate(found) if isinstance(one, Evaluation) and _is_lost(one)}
        if lost:
            again = self._submit([{**requests[place], "key": f"after-{id_}"} for place, id_ in lost.items()])
            for place, one in zip(lost, again, strict=True):
                found[place] = one
        return found


@contextmanager
def judging_by_service(address: str, targets: Sequence[PromptTarget], folder: Path) -> Iterator[ServiceEvaluator]:
    """Provide the evaluator of a service; on leaving, what has not begun there is cancelled.

    Raises:
        UsageError: The address cannot be used, or the service does not judge one of the targets.
        ServiceError: The service cannot be reached.
    """
    with Client(address) as client:
        evaluator = ServiceEvaluator(client, targets, folder)
        evaluator.check()
        try:
            yield evaluator
        finally:
            _cancel(address, evaluator.unfinished)


def _cancel(address: str, ids: Sequence[str]) -> None:
    # What is not cancelled is judged, and found again by its key.
    with suppress(KernelMatrixError), Client(address, retry_for_s=_CANCEL_FOR_S) as client:
        for id_ in ids:
            client.cancel(id_)


def _check_target(target: PromptTarget, problems: Mapping[str, Any], gpus: Mapping[str, Any]) -> None:
    problem, gpu = target.problem.id, target.gpu.name
    what = ""
    if problem not in problems:
        what = f"has no problem {problem!r}{suggestion(problem, list(problems))}"
    elif target.dtype.value not in problems[problem]["dtypes"]:
        what = f"does not judge {problem} in {target.dtype.value}, but in {', '.join(problems[problem]['dtypes'])}"
    elif {one.name for one in target.workloads} != set(problems[problem]["workloads"]):
        what = f"judges {problem} with other workloads: {', '.join(problems[problem]['workloads'])}"
    elif gpu not in gpus:
        what = f"has no gpu {gpu!r}{suggestion(gpu, list(gpus))}"
    elif not gpus[gpu]["devices"]:
        what = f"has no device of gpu {gpu!r} now"
    elif target.toolchain and target.toolchain not in gpus[gpu]["toolchains"]:
        what = f"has no toolchain {target.toolchain!r}{suggestion(target.toolchain, gpus[gpu]['toolchains'])}"
    if what:
        step = "names must be the same in both matrices; --problem, --gpu, --dtype and --toolchain choose"
        raise UsageError(f"the service {what}", next_step=step)


def _is_lost(one: Evaluation) -> bool:
    """Return whether an evaluation ended without an answer that would be the same the next time."""
    return one.has_ended and (one.result is None or one.result.fault == Fault.INFRA.value)
