"""The loop of a generation: requests, answers, evaluations, and the next round of each problem.

Requests are sent by threads, each of which stores its answer before it takes the next request. The calling thread does
the rest, and evaluates the candidates of a problem's round while other problems' requests are on their way. All that is
decided depends on stored answers and stored results, so that a generation that was killed goes on where it was.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kernel_matrix.errors import InfrastructureError, UsageError
from kernel_matrix.generation import CandidateEvaluator, GeneratedCandidate, GenerationAttempt
from kernel_matrix.generation.answers import CUT_OFF, ChatAnswer, NoCodeError, find_code, read_answer
from kernel_matrix.generation.budget import GenerationBudget
from kernel_matrix.generation.candidate_files import CandidateFiles
from kernel_matrix.generation.chat import ChatClient, ChatEndpoint, ChatReply, RequestGivenUpError
from kernel_matrix.generation.generation_events import (
    AnswerReceived,
    BestCandidate,
    CandidateJudged,
    GenerationListener,
    GenerationNote,
    GenerationResult,
    GenerationStarted,
)
from kernel_matrix.generation.ledger import ANSWER_FOLDER, Ledger, LedgerLine, StoredAnswer
from kernel_matrix.generation.prices import ModelPrice
from kernel_matrix.generation.prompts import PromptOptions, PromptTarget, PromptWriter
from kernel_matrix.generation.strategies import STRATEGIES
from kernel_matrix.model.evaluation import EvaluationResult
from kernel_matrix.model.instants import utc_now
from kernel_matrix.model.messages import dumps

MOST_SAMPLES: Final = 1000
"""Samples of a round; seeds of one round must not be those of the next."""
_GIVEN_UP_IN_A_ROW: Final = 3
"""After so many requests in a row that the endpoint did not answer, nothing more is sent: it is down."""
_OWN_FIELDS: Final = ("model", "messages", "n", "stream")
"""Fields of a request that the user cannot set: one request has one answer, in one piece."""
_NO_USAGE: Final = "the endpoint does not say how many tokens an answer took"


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSettings:
    """Settings of a generation: requests, rounds and budget."""

    model: str
    prompt: PromptOptions = field(default_factory=PromptOptions)
    samples: int = 4
    rounds: int = 1
    strategy: str = "refine"
    """A name in :data:`~kernel_matrix.generation.strategies.STRATEGIES`."""
    temperature: float | None = None
    """None leaves it to the endpoint."""
    seed: int = 0
    """Seed of the first sample; each further one has the next."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of each request, such as ``max_tokens``; None removes a field."""
    concurrency: int = 4
    """Requests on their way at the same time."""
    budget: GenerationBudget = field(default_factory=GenerationBudget)
    price: ModelPrice | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: They cannot be used together.
        """
        if not 1 <= self.samples <= MOST_SAMPLES:
            raise UsageError(f"--samples {self.samples}", next_step=f"choose 1 to {MOST_SAMPLES}")
        for name in self.fields:
            if name in _OWN_FIELDS:
                raise UsageError(f"--field {name} cannot be set", next_step="use --model, --samples and --prompt")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChatRequest:
    """One request, and what it is for."""

    target: PromptTarget
    sample: int
    round: int
    parent: str | None
    body: Mapping[str, Any]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """The end of a request: an answer, or the error that took its place."""

    request: _ChatRequest
    stored: StoredAnswer | None = None
    was_stored: bool = False
    error: Exception | None = None


@dataclass(slots=True, kw_only=True)
class _ProblemProgress:
    """The attempts at one problem."""

    target: PromptTarget
    round: int = 0
    waiting: int = 0
    """Requests of this round without an outcome."""
    attempts: dict[str, GenerationAttempt] = field(default_factory=dict)
    """By name."""
    is_ended: bool = False

    def in_order(self) -> list[GenerationAttempt]:
        """Return the attempts by round and sample, whatever the order in which they were answered."""
        return sorted(self.attempts.values(), key=lambda attempt: (attempt.round, attempt.sample))


class Generation:
    """One generation; :meth:`run` is called once.

    Args:
        settings: What is asked.
        targets: What candidates are for.
        folder: Where everything is kept.
        endpoint: Who is asked.
        evaluator: Who judges.
        listener: Gets events.
        runs: See :class:`CandidateFiles`.

    Raises:
        UsageError: The prompt cannot be used, or the budget cannot be kept.
        PluginError: The strategy is unknown.
    """

    def __init__(
        self,
        settings: GenerationSettings,
        targets: Sequence[PromptTarget],
        folder: Path,
        *,
        endpoint: ChatEndpoint,
        evaluator: CandidateEvaluator,
        listener: GenerationListener = lambda _progress: None,
        runs: Path | None = None,
    ) -> None:
        if settings.budget.usd is not None and settings.price is None:
            what = f"--budget-usd cannot be kept: the price of {settings.model} is unknown"
            raise UsageError(what, next_step="add the model to a file, and name it with --prices")
        self._settings = settings
        self._folder = folder
        self._endpoint = endpoint
        self._evaluator = evaluator
        self._tell = listener
        self._strategy = STRATEGIES.load(settings.strategy)
        self._prompts = PromptWriter(settings.prompt)
        self._files = CandidateFiles(
            folder,
            method=settings.strategy,
            prompt=self._prompts.name,
            language=settings.prompt.language,
            runs=runs,
        )
        self._problems = {target.problem.id: _ProblemProgress(target=target) for target in targets}
        self._inbox: queue.SimpleQueue[_Outcome | str] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._started = time.monotonic()
        self._told: set[str] = set()
        self._lock = threading.Lock()
        self._given_up_in_a_row = 0
        self._sent = self._without_answer = 0

    def run(self) -> GenerationResult:
        """Generate until every problem has had its rounds, and return the summary.

        Raises:
            UsageError: The endpoint refuses all requests, or a budget cannot be kept.
            InfrastructureError: The endpoint does not answer, or something cannot be stored.
        """
        with ExitStack() as undo:
            self._ledger = Ledger(self._folder)
            undo.callback(self._ledger.close)
            self._chat = ChatClient(self._endpoint, self._stopping, self._inbox.put)
            undo.callback(self._chat.close)
            self._pool = undo.enter_context(self._sending())
            self._tell(
                GenerationStarted(
                    problems=len(self._problems),
                    samples=self._settings.samples,
                    rounds=self._settings.rounds,
                    stored=len(self._ledger.lines),
                )
            )
            for progress in self._problems.values():
                self._begin_round(progress)
            while not all(progress.is_ended for progress in self._problems.values()):
                self._receive()
                self._end_rounds()
            result = self._summary()
        self._tell(result)
        return result

    @contextmanager
    def _sending(self) -> Iterator[ThreadPoolExecutor]:
        """Provide the threads; on leaving, nothing more is sent, and answers on their way are awaited and stored."""
        pool = ThreadPoolExecutor(self._settings.concurrency, thread_name_prefix="chat")
        try:
            yield pool
        finally:
            self._stopping.set()
            pool.shutdown(cancel_futures=True)

    # ---- requests

    def _begin_round(self, progress: _ProblemProgress) -> None:
        usable = [attempt for attempt in progress.in_order() if attempt.is_usable]
        parents: Sequence[GenerationAttempt | None] = [None] * self._settings.samples
        if progress.round:
            parents = self._strategy(usable, self._settings.samples)[: self._settings.samples]
        progress.waiting = len(parents)
        progress.is_ended = not parents
        for sample, parent in enumerate(parents):
            self._pool.submit(self._answer, self._request(progress, sample, parent))

    def _request(self, progress: _ProblemProgress, sample: int, parent: GenerationAttempt | None) -> _ChatRequest:
        settings = self._settings
        body = {
            "model": settings.model,
            "messages": self._prompts.messages(progress.target, parent),
            "seed": settings.seed + self._number(sample, progress.round),
            "temperature": settings.temperature,
            **settings.fields,
        }
        body = {key: value for key, value in body.items() if value is not None}
        # Sample and round too: without a seed, requests for further samples are the same.
        what = {"body": body, "problem": progress.target.problem.id, "sample": sample, "round": progress.round}
        return _ChatRequest(
            target=progress.target,
            sample=sample,
            round=progress.round,
            parent=parent.name if parent else None,
            body=body,
            digest=hashlib.sha256(dumps(what).encode()).hexdigest(),
        )

    @staticmethod
    def _number(sample: int, round_: int) -> int:
        return round_ * MOST_SAMPLES + sample

    def _answer(self, request: _ChatRequest) -> None:
        """Find or get the answer to a request, and store it; runs in a thread of the pool."""
        try:
            outcome = self._outcome(request)
        except RequestGivenUpError as error:
            outcome = _Outcome(request=request, error=self._weigh(error))
        except Exception as error:  # noqa: BLE001  # the calling thread raises it
            outcome = _Outcome(request=request, error=error)
        # At once, since the calling thread may be evaluating: nothing more is to be paid for.
        if outcome.error is not None and not isinstance(outcome.error, RequestGivenUpError):
            self._stopping.set()
        self._inbox.put(outcome)

    def _weigh(self, error: RequestGivenUpError) -> Exception:
        """Return ``error``, or the one that ends the generation if the endpoint seems to be down."""
        if not error.is_endpoint:
            return error
        with self._lock:
            self._given_up_in_a_row += 1
            if self._given_up_in_a_row < _GIVEN_UP_IN_A_ROW:
                return error
        step = "look after the endpoint or --base-url, and start the same command again; answers so far are kept"
        return InfrastructureError(f"the endpoint does not answer: {error.what}", next_step=step)

    def _outcome(self, request: _ChatRequest) -> _Outcome:
        stored = self._ledger.find(request.digest)
        if stored is not None:
            return _Outcome(request=request, stored=stored, was_stored=True)
        seconds = time.monotonic() - self._started
        budget, ledger = self._settings.budget, self._ledger
        why = budget.why_exhausted(usd=ledger.usd, tokens=ledger.tokens, seconds=seconds)
        if self._stopping.is_set():
            why = "stopped"
        if why:
            raise RequestGivenUpError(why)
        reply = self._chat.ask(request.body)
        line = self._line(request, reply)
        self._ledger.keep(line, request.body, reply.response)
        with self._lock:
            self._given_up_in_a_row = 0
        if reply.answer.tokens is None and budget.needs_usage:
            raise UsageError(
                f"{_NO_USAGE}, so that the budget cannot be kept", next_step="give --budget-s, or no budget"
            )
        return _Outcome(request=request, stored=StoredAnswer(line=line, response=reply.response))

    def _line(self, request: _ChatRequest, reply: ChatReply) -> LedgerLine:
        tokens, price = reply.answer.tokens, self._settings.price
        return LedgerLine(
            digest=request.digest,
            answered_at=utc_now(),
            model=self._settings.model,
            provider=self._endpoint.host,
            prompt_sha256=hashlib.sha256(dumps(request.body["messages"]).encode()).hexdigest(),
            problem=request.target.problem.id,
            sample=request.sample,
            round=request.round,
            parent=request.parent,
            tokens_prompt=tokens.prompt if tokens else None,
            tokens_cached=tokens.cached if tokens else None,
            tokens_completion=tokens.completion if tokens else None,
            tokens_reasoning=tokens.reasoning if tokens else None,
            usd=price.cost_usd(tokens) if tokens and price else None,
            latency_s=reply.latency_s,
            finish_reason=reply.answer.finish_reason,
            retries=reply.retries,
            answer=f"{ANSWER_FOLDER}/{request.digest}.json",
        )

    # ---- answers

    def _receive(self) -> None:
        """Wait for an outcome or a note, and take all that are there."""
        self._take(self._inbox.get())
        while not self._inbox.empty():
            self._take(self._inbox.get())

    def _take(self, item: _Outcome | str) -> None:
        if isinstance(item, str):
            self._tell_once(item)
            return
        progress = self._problems[item.request.target.problem.id]
        progress.waiting -= 1
        if item.stored is not None:
            self._take_answer(progress, item.request, item.stored, was_stored=item.was_stored)
        elif isinstance(item.error, RequestGivenUpError):
            self._without_answer += 1
            self._tell_once(item.error.what)
        elif item.error is not None:
            raise item.error

    def _take_answer(
        self, progress: _ProblemProgress, request: _ChatRequest, stored: StoredAnswer, *, was_stored: bool
    ) -> None:
        line, answer = stored.line, read_answer(stored.response)
        attempt = self._attempt(request, answer)
        progress.attempts[attempt.name] = attempt
        self._files.write_candidate(attempt, line, self._number(request.sample, request.round))
        self._tell(AnswerReceived(attempt=attempt, line=line, was_stored=was_stored))
        if was_stored:
            return
        self._sent += 1
        if answer.finish_reason == CUT_OFF:
            self._tell_once("an answer was cut off at the limit of tokens; --field max_tokens=N sets a higher one")
        if answer.tokens is None:
            self._tell_once(f"{_NO_USAGE}; counts and costs in the ledger are null")
        elif line.usd is None:
            self._tell_once(f"the price of {line.model} is unknown, and so is the cost; --prices FILE has prices")

    def _attempt(self, request: _ChatRequest, answer: ChatAnswer) -> GenerationAttempt:
        problem, name = request.target.problem.id, f"r{request.round}-s{request.sample}-{request.digest[:8]}"
        attempt = GenerationAttempt(
            problem=problem, name=name, sample=request.sample, round=request.round, parent=request.parent
        )
        try:
            source, suffix = find_code(answer, self._settings.prompt.language)
        except NoCodeError as error:
            return replace(attempt, no_code=str(error))
        candidate = GeneratedCandidate(problem=problem, name=name, source=source, suffix=suffix)
        return replace(attempt, candidate=candidate)

    # ---- evaluations

    def _end_rounds(self) -> None:
        """Evaluate rounds whose requests all have an outcome, and begin the next."""
        ready = [one for one in self._problems.values() if not one.is_ended and not one.waiting]
        self._evaluate(ready)
        for progress in ready:
            attempts = progress.in_order()
            has_new = any(attempt.round == progress.round for attempt in attempts)
            progress.round += 1
            if progress.round == self._settings.rounds or not has_new:
                progress.is_ended = True
            elif not any(attempt.is_usable for attempt in attempts):
                progress.is_ended = True
                self._tell_once(
                    f"{progress.target.problem.id}: no candidate could be judged, so there is no next round"
                )
            else:
                self._begin_round(progress)

    def _evaluate(self, ready: Sequence[_ProblemProgress]) -> None:
        new = []
        for attempt in (one for progress in ready for one in progress.in_order()):
            if attempt.result is not None:
                continue
            known = self._files.read_result(attempt.judged, self._place(attempt.problem))
            if known is None:
                new.append(attempt.judged)
            else:
                self._take_result(attempt.judged, known)
        for candidate, result in self._evaluator.evaluate(new) if new else ():
            # One that says nothing of the candidate is not kept: it is evaluated again when the generation goes on.
            if result.is_score:
                result = self._files.write_result(candidate, self._place(candidate.problem), result)  # noqa: PLW2901  # as it will be read
            self._take_result(candidate, result)

    def _place(self, problem: str) -> str:
        return self._problems[problem].target.place

    def _take_result(self, candidate: GeneratedCandidate, result: EvaluationResult) -> None:
        attempts = self._problems[candidate.problem].attempts
        if attempts[candidate.name].candidate is None:  # the next prompt says why there is no code
            return
        attempts[candidate.name] = replace(attempts[candidate.name], result=result)
        self._tell(CandidateJudged(attempt=attempts[candidate.name]))

    # ---- end

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._tell(GenerationNote(text=text))

    def _summary(self) -> GenerationResult:
        attempts = [attempt for progress in self._problems.values() for attempt in progress.in_order()]
        candidates = [attempt for attempt in attempts if attempt.candidate is not None]
        best: dict[str, GenerationAttempt] = {}
        for attempt in sorted(candidates, key=lambda one: one.rank):
            if attempt.is_right:
                best[attempt.problem] = attempt
        lines = self._ledger.lines
        return GenerationResult(
            folder=self._folder,
            answers=len(attempts),
            sent=self._sent,
            without_answer=self._without_answer,
            without_code=len(attempts) - len(candidates),
            candidates=len(candidates),
            right=sum(attempt.is_right for attempt in candidates),
            machine_failed=sum(not attempt.is_usable for attempt in candidates),
            tokens=self._ledger.tokens,
            usd=self._ledger.usd if all(line.usd is not None for line in lines) else None,
            best={problem: BestCandidate(name=one.name, speedup=one.speedup) for problem, one in best.items()},
        )
