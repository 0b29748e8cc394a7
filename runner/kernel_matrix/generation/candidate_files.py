"""Files of a generation beside its ledger: candidates that the source ``folder`` reads, and results of evaluations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from kernel_matrix.errors import StoreError
from kernel_matrix.generation import GeneratedCandidate, GenerationAttempt
from kernel_matrix.generation.ledger import LedgerLine
from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.model.enums import Language
from kernel_matrix.model.evaluation import EvaluationResult
from kernel_matrix.model.messages import dumps
from kernel_matrix.sources import Origin
from kernel_matrix.sources.folder import side_file_text
from kernel_matrix.untrusted_json import UntrustedJsonError, parse_object, read_object

CANDIDATE_FOLDER: Final = "candidates"
_EVALUATION_FOLDER: Final = "evaluations"
_KERNELBENCH: Final = re.compile(r"level(\d+)/(\d+)_")


class CandidateFiles:
    """Candidates and evaluations in the folder of a generation.

    Args:
        folder: Folder of the generation.
        method: Name of the method in the candidates' metadata.
        prompt: Name of the prompt there.
        language: Language that candidates are asked for in.
        runs: Folder for a copy in the layout of KernelBench's ``runs/<run>``; None for no copy.
    """

    def __init__(self, folder: Path, *, method: str, prompt: str, language: Language, runs: Path | None = None) -> None:
        self._folder = folder
        self._method = method
        self._prompt = prompt
        self._language = language
        self._runs = runs

    def write_candidate(self, attempt: GenerationAttempt, line: LedgerLine, number: int) -> None:
        """Write the file that is judged for an attempt, and its metadata beside it.

        Args:
            attempt: The attempt.
            line: Its line in the ledger.
            number: Number of the sample over all rounds.

        Raises:
            StoreError: A file cannot be written.
        """
        candidate = attempt.judged
        path = self._folder / CANDIDATE_FOLDER / attempt.problem / f"{attempt.name}{candidate.suffix}"
        _write(path, candidate.source)
        _write(path.with_suffix(".toml"), self._metadata(attempt, line, number))
        match = _KERNELBENCH.match(attempt.problem)
        if self._runs is not None and match is not None and attempt.candidate is not None and candidate.suffix == ".py":
            name = f"level_{match[1]}_problem_{match[2]}_sample_{number}_kernel.py"
            _write(self._runs / name, candidate.source)

    def read_result(self, candidate: GeneratedCandidate, place: str) -> EvaluationResult | None:
        """Return the result of an earlier evaluation at a place; None if there is none."""
        try:
            return EvaluationResult.from_json(read_object(self._evaluation(candidate, place)))
        except (UntrustedJsonError, TypeError):  # it is evaluated again, which costs no money
            return None

    def write_result(self, candidate: GeneratedCandidate, place: str, result: EvaluationResult) -> EvaluationResult:
        """Keep the result of an evaluation, and return it as it will be read.

        Prompts are made of it, and have to be the same when the generation goes on.

        Raises:
            StoreError: It cannot be written.
        """
        text = dumps(result)
        _write(self._evaluation(candidate, place), text)
        return EvaluationResult.from_json(parse_object(text.encode()))

    def _evaluation(self, candidate: GeneratedCandidate, place: str) -> Path:
        return self._folder / _EVALUATION_FOLDER / place / candidate.problem / f"{candidate.name}.json"

    def _metadata(self, attempt: GenerationAttempt, line: LedgerLine, number: int) -> str:
        origin = Origin(
            method=self._method,
            model=line.model,
            # A later attempt that begins anew is a draw of its own, not a round of the sample before it.
            sample=number if attempt.parent is None else attempt.sample,
            round=attempt.round,
            parent=attempt.parent,
            prompt=self._prompt,
            prompt_sha256=line.prompt_sha256,
            no_code=attempt.no_code or None,
            tokens_in=line.tokens_prompt,
            tokens_cached=line.tokens_cached,
            tokens_out=line.tokens_completion,
            cost_usd=line.usd,
            wall_s=line.latency_s,
        )
        # The source shows no language where there is no code.
        return side_file_text(origin, "" if attempt.candidate is not None else self._language.value)


def _write(path: Path, text: str) -> None:
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, text)
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror}"
        raise StoreError(what, next_step="make room, and start the same command again") from None
