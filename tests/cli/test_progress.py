"""What is said of a cell as it ends."""

import io
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from kernel_matrix.cli.progress import LiveView, PlainLines, RunPace, event_line, verdict_line
from kernel_matrix.executors.local import EventKind, RunEvent
from kernel_matrix.model.enums import Role, Status
from tests.results.factory import BUILD, CELL_KEY, HOST, block, failed_record, make_record, session, workload


def timed(number, candidate, eager, **changes):
    blocks = []
    for index in range(0, 8, 2):
        blocks += [block(Role.CANDIDATE, index, (candidate,) * 5), block(Role.BASELINE, index + 1, (eager,) * 5)]
    return replace(session(number, workloads=(workload(name="smoke", blocks=tuple(blocks)),)), **changes)


def test_speeds_are_those_of_the_samples_that_count():
    gone = ((0, "throttled: hw_thermal"), (1, "throttled: hw_thermal"))
    blocks = (
        block(Role.CANDIDATE, 0, (9_000, 9_000, 2_000), gone),
        block(Role.BASELINE, 1, (4_000,)),
    )
    record = replace(make_record(), sessions=(session(workloads=(workload(name="smoke", blocks=blocks),)),))
    assert verdict_line(record) == "passed: smoke 2.0 µs, 2.00x of eager, inconclusive (few_calls 1)"


@pytest.mark.parametrize(
    ("sessions", "line"),
    [
        ((timed(0, 2_000, 4_000),), "passed: smoke 2.0 µs, 2.00x of eager, faster (beyond_floor 5 %)"),
        ((timed(0, 2_000, 2_020),), "passed: smoke 2.0 µs, 1.01x of eager, inconclusive (one_session 5 %)"),
        (
            (timed(0, 2_000, 4_000), timed(1, 2_000, 4_000)),
            "passed: smoke 2.0 µs, 2.000x of eager (2.000 to 2.000), faster (beyond_margin 2x), grade A",
        ),
        (
            (timed(0, 2_000, 4_000), timed(1, 2_000, 3_000)),
            "passed: smoke 2.0 µs, 1.732x of eager (0.278 to 10.772), inconclusive (few_sessions 0.000183x), grade A",
        ),
        ((timed(0, 2_000, 4_000, labels=("interpreted",)),), "passed (interpreted: its speed says nothing)"),
    ],
)
def test_a_verdict_is_told_where_there_is_one(sessions, line):
    assert verdict_line(replace(make_record(), sessions=sessions)) == line


def test_a_grade_says_why_it_is_no_better():
    sessions = (timed(0, 2_000, 4_000), timed(1, 2_000, 4_000))
    unlocked = replace(make_record(), sessions=sessions, host=replace(HOST, clock_state="unlocked"))
    assert verdict_line(unlocked).endswith("faster (beyond_margin 2x), grade B (clocks not locked)")


def test_what_was_only_compiled_is_told_by_its_kernels():
    compiled = failed_record(status=Status.COMPILED, cell=CELL_KEY)
    assert verdict_line(compiled) == (
        "compiled: 2 kernels, at most 255 registers, 262144 bytes of shared memory, 24 bytes spilled, "
        "online_softmax_wide cannot be launched: 262144 bytes of shared memory, 232448 are there"
    )
    one = replace(BUILD, kernels=BUILD.kernels[:1])
    assert verdict_line(replace(compiled, host=replace(HOST, build=one))) == (
        "compiled: 1 kernel, at most 40 registers, 4096 bytes of shared memory"
    )
    assert verdict_line(replace(compiled, host=replace(HOST, build=None))) == "compiled"


def test_a_failure_is_told_by_its_evidence():
    said = "compile_error: expected ';'\nbefore '}'"
    assert verdict_line(failed_record()) == said
    expected = replace(CELL_KEY, expect=Status.COMPILE_ERROR)
    assert verdict_line(failed_record(cell=expected)) == said.replace(":", " (as expected):", 1)


# ---- Events

CELLS = [
    SimpleNamespace(
        candidate=SimpleNamespace(id=f"p/{name}"),
        dtype=SimpleNamespace(value="fp32"),
        gpu=SimpleNamespace(name="h200"),
        toolchain=SimpleNamespace(name="cu130"),
        problem=SimpleNamespace(ranks=1),
        expected_s=seconds,
    )
    for name, seconds in (("long", 7200.0), ("middle", 3600.0), ("short", 40.0))
]
LONG, MIDDLE, SHORT = CELLS


def put_off(cell):
    return RunEvent(happening=EventKind.CELL_SKIPPED, cell=cell, text="it would end too late")


def ended(cell, happening=EventKind.CELL_ENDED):
    return RunEvent(happening=happening, cell=cell, record=failed_record())


def test_time_left_excludes_ended_and_postponed_cells(monkeypatch):
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    pace = RunPace(CELLS)
    assert (pace.left(), pace.planned) == ("3.0 h left", 3)
    pace.note(put_off(LONG))
    assert (pace.left(), pace.ended) == ("61 min left", 0)
    now += 20.0  # the short cell took half of what was expected
    pace.note(ended(SHORT, EventKind.CELL_RETRIED))
    pace.note(ended(SHORT))
    assert (pace.left(), pace.ended) == ("30 min left", 1)
    pace.note(ended(MIDDLE))
    assert pace.left() == ""


def test_event_line_names_retry_and_reason_of_postponement():
    assert event_line(put_off(LONG)) == "p/long fp32 h200/cu130: put off: it would end too late"
    assert event_line(ended(LONG, EventKind.CELL_RETRIED)).endswith("; trying again")
    assert not event_line(ended(LONG)).endswith("; trying again")
    assert event_line(RunEvent(happening=EventKind.CELL_STARTED, cell=LONG)) == ""


def test_a_pipe_and_a_terminal_tell_the_same_of_a_cell(monkeypatch):
    said, screen = [], io.StringIO()
    monkeypatch.setattr("kernel_matrix.cli.progress.SafeConsole", lambda **_: Console(file=screen, width=200))
    watchers = (PlainLines(said.append, said.append), LiveView())
    for event in (put_off(LONG), ended(SHORT)):
        for watcher in watchers:
            watcher.tell(event)
    for line in map(event_line, (put_off(LONG), ended(SHORT))):
        assert any(line in told for told in said)
        assert " ".join(line.split()) in " ".join(screen.getvalue().split())
