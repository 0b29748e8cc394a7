"""Judge and candidate of one session, side by side until the judge has spoken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import jsonschema_rs

from runner.contracts import load_schema
from runner.core.messages import SessionReport, from_json
from runner.engines import Engine, Exit, Labels, RoleSpec, Running
from runner.results.reading import RefusedError, parse, read_bytes

_POLL_S = 0.05
_ORPHANED_JUDGE_S = 20.0
"""How long a judge may go on after its candidate ended: it only has to notice and report."""
_LINGERING_CANDIDATE_S = 0.5
"""How long a candidate may go on after its judge ended: an honest worker leaves at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One session to run."""

    engine: Engine
    judge: RoleSpec
    candidate: RoleSpec
    report: Path
    deadline_s: float
    called_off: Callable[[], bool]
    """Asked while it runs; true takes both away at once."""
    admit: Callable[[Running], None]
    """Told of each process as soon as it runs, before it can have reached the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairResult:
    """What a session left: the judge's report, if there is one, and how both processes ended."""

    report: SessionReport | None
    exits: tuple[Exit, ...]
    called_off: bool = False
    trouble: str = ""
    """Why there is no usable report, in words."""
    phases_s: dict[str, float] = field(default_factory=dict)


def run_pair(pair: Pair) -> PairResult:
    """Start both, wait for the judge, take both away, read the report.

    :raises runner.errors.EngineError: when one of them could not be started.
    """
    started = time.monotonic()
    phases: dict[str, float] = {}
    with ExitStack() as undo:
        judge, candidate = _start_both(pair, undo)
        phases["start"] = time.monotonic() - started
        judge_exit, called_off = _until_judge_ends(pair, judge, candidate)
        candidate_exit = candidate.wait(_LINGERING_CANDIDATE_S) if judge_exit is not None else None
        ended = time.monotonic()
        if candidate_exit is None:
            candidate.kill()
        if judge_exit is None:
            judge.kill()
        exits = tuple(e for e in (judge_exit or judge.wait(10), candidate_exit or candidate.wait(10)) if e is not None)
    phases["teardown"] = time.monotonic() - ended
    if called_off:
        return PairResult(report=None, exits=exits, called_off=True, phases_s=phases)
    report, trouble = read_report(pair.report, pair.judge.labels)
    return PairResult(report=report, exits=exits, trouble=trouble, phases_s=phases)


def _start_both(pair: Pair, undo: ExitStack) -> tuple[Running, Running]:
    """Start judge and candidate at the same time: each start waits for the daemon, not for us."""
    # The helper thread lives as long as the pair: a process whose parent thread ends is killed (PR_SET_PDEATHSIG).
    helper = undo.enter_context(ThreadPoolExecutor(max_workers=1, thread_name_prefix="start-candidate"))
    context = _admitted(pair, pair.candidate)
    other = helper.submit(context.__enter__)
    try:
        judge = undo.enter_context(_admitted(pair, pair.judge))
    finally:
        # Whatever became of the judge, a candidate that was started has to be taken away again.
        with suppress(Exception):
            other.result()
            undo.push(context)
    return judge, other.result()


@contextmanager
def _admitted(pair: Pair, spec: RoleSpec) -> Iterator[Running]:
    with pair.engine.launch(spec) as running:
        pair.admit(running)
        yield running


def _until_judge_ends(pair: Pair, judge: Running, candidate: Running) -> tuple[Exit | None, bool]:
    """Wait for the judge's end; null when it was called off, is too late, or has no candidate any more."""
    deadline = time.monotonic() + pair.deadline_s
    orphaned_since: float | None = None
    while True:
        now = time.monotonic()
        ended = judge.wait(_POLL_S)
        if ended is not None:
            return ended, False
        if pair.called_off():
            return None, True
        gone = candidate.wait(0)
        if gone is not None and gone.lost:
            return None, False  # whatever the judge would say of it now, it is not the candidate's doing
        if orphaned_since is None and gone is not None:
            orphaned_since = now
        if now > deadline or (orphaned_since is not None and now - orphaned_since > _ORPHANED_JUDGE_S):
            return None, False


def read_report(path: Path, labels: Labels) -> tuple[SessionReport | None, str]:
    """The judge's report, or why it cannot be used.

    Where an engine can isolate little, a candidate may have written it: no link is followed, no pipe waited for, and
    nothing of it believed that its schema does not allow.
    """
    try:
        document = parse(read_bytes(path))
        _report_schema().validate(document)
        report = from_json(SessionReport, document)
    except RefusedError as error:
        return None, f"the judge's report: {error.detail}"
    except (jsonschema_rs.ValidationError, ValueError) as error:
        return None, f"the judge's report is malformed: {str(error).splitlines()[0]}"
    if (report.cell_id, report.session) != (labels.cell_id, labels.session):
        return None, "the judge's report is about another cell"
    return report, ""


@cache
def _report_schema() -> jsonschema_rs.Draft202012Validator:
    definitions = load_schema("record")["$defs"]
    # The mask keeps whole values out of its messages.
    return jsonschema_rs.Draft202012Validator({"$ref": "#/$defs/session", "$defs": definitions}, mask="the value")
