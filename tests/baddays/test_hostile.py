"""One night with every hostile candidate, one after the other, on each sandbox: nobody harms anybody else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from kernel_matrix.inside import confine
from kernel_matrix.model.enums import Fault, Status, fault_of
from kernel_matrix.results.reading import read_record
from kernel_matrix.sandboxes.process import ProcessSandbox
from tests.baddays.conftest import SANDBOXES, images_for
from tests.baddays.field import HERE, PRELOADED, REAL, ROOT, Field, events, new_field
from tests.baddays.living import containers, processes

pytestmark = pytest.mark.timeout(1800)  # where the CPU image is missing, it is built first

FROM_RELU = ("segfaults", "eats_memory", "phones_home", "writes_outside", "exits_quietly", "leaves_a_child")
"""Hostile candidates among the project's own examples."""

STOPPED_BY_THE_TREE_OR_A_LIMIT = (
    *("tiny/deletes_itself", "tiny/fills_the_disk", "tiny/forks_without_end", "tiny/honest", "tiny/prints_without_end"),
    *("relu/eats_memory", "relu/phones_home", "relu/writes_outside", "relu/leaves_a_child"),
)
"""Hostile candidates for unpacked images, which differ from the process sandbox in the files that a role sees."""

MORE = f"""
[[problems]]
source = "folder"
path = "{ROOT / "problems"}"
select = "relu"
workloads = "smoke"

[[override]]
match.candidate = "tiny/honest"
protocol.budget_s = 0.1  # the shortest cell runs last

[[override]]
match.candidate = "tiny/forks_without_end"
policy.pids = 64  # a busy machine may take a hundredth of a second for a fork

[[override]]
match.candidate = "relu/eats_memory"
policy.memory_mib = 768  # a machine may take seconds per GiB that it has not given to anybody yet
policy.first_call_timeout_s = 120  # and much longer while other work wants memory too
policy.call_timeout_s = 120
policy.session_timeout_s = 300
"""

EVIDENCE = {
    "tiny/announces_too_much": "announces 4294967295 bytes",
    "tiny/closes_the_socket": "it closed its connection but kept running",
    "tiny/deletes_itself": "Read-only file system",
    "tiny/exits_with_an_odd_code": "ended without answering",
    "tiny/fills_the_disk": "No space left on device",
    "tiny/floods_stderr_and_hangs": "no answer within 4 s",
    "tiny/forks_without_end": "Resource temporarily unavailable",
    "tiny/returns_a_million": "another structure",
    "tiny/sends_garbage": "magic number",
    "relu/segfaults": "SIGSEGV",
    "relu/exits_quietly": "exit code 0",
    "relu/phones_home": "Network is unreachable",
    "relu/writes_outside": "Read-only file system",
}


@dataclass(frozen=True)
class Night:
    sandbox: str
    field: Field
    code: int
    stderr: str
    events: list[dict[str, Any]]
    records: list[dict[str, Any]]

    @property
    def run_id(self) -> str:
        return str(self.field.runs()[0]["run_id"])


@pytest.fixture(
    scope="module",
    params=SANDBOXES,
)
def night(request, tmp_path_factory):
    if request.param != "docker" and ProcessSandbox().confinement.namespaces == confine.NONE:
        pytest.skip(
            "this machine gives processes no namespaces of their own: hostile candidates need the docker sandbox"
        )
    program = PRELOADED if request.param == "process" else REAL
    with new_field(tmp_path_factory.mktemp("night"), program=program, **images_for(request.param, request)) as field:
        everything = ("tiny/*", *(f"relu/{name}" for name in FROM_RELU))
        field.write_matrix(*(STOPPED_BY_THE_TREE_OR_A_LIMIT if request.param == "unpacked" else everything), more=MORE)
        ran = field.run("--sandbox", request.param, limit_s=1200)
        yield Night(request.param, field, ran.returncode, ran.stderr, events(ran.stdout), field.records())


def test_each_ends_as_what_it_is(night):
    assert (night.code, night.stderr) == (0, "")
    ended = {record["cell"]["candidate"]: record["outcome"]["status"] for record in night.records}
    assert ended == {record["cell"]["candidate"]: record["cell"]["expect"] for record in night.records}
    everything = len(list(night.field.candidates.glob("*.py"))) + len(FROM_RELU)
    assert len(ended) == (len(STOPPED_BY_THE_TREE_OR_A_LIMIT) if night.sandbox == "unpacked" else everything)


def test_each_has_one_record_of_its_own_that_holds(night):
    paths = sorted((night.field.store / "records").iterdir())
    assert [read_record(path)["attempt"] for path in paths] == [1] * len(night.records)
    assert night.field.unfinished_files() == []
    assert max(path.stat().st_size for path in paths) < 200_000


def test_the_fault_is_the_candidates_and_the_evidence_says_why(night):
    for record in night.records:
        outcome = record["outcome"]
        assert outcome["fault"] == fault_of(Status(outcome["status"])).value
        assert outcome["fault"] in (Fault.NONE.value, Fault.CANDIDATE.value)
        assert EVIDENCE.get(record["cell"]["candidate"], "") in outcome["evidence"]["message"]
    if night.sandbox != "unpacked":
        assert EVIDENCE.keys() <= {record["cell"]["candidate"] for record in night.records}


def test_the_next_one_is_untouched(night):
    last = night.records[-1]
    assert (last["cell"]["candidate"], last["outcome"]["status"]) == ("tiny/honest", "passed")
    assert [event["event"] for event in night.events[1:-1]] == ["cell_started", "cell_ended"] * len(night.records)


def test_of_endless_output_only_the_end_is_kept(night):
    tails = {
        record["cell"]["candidate"]: exit_["log_tail"]
        for record in night.records
        for exit_ in record["host"]["exits"]
        if exit_["role"] == "candidate"
    }
    endless = {"tiny/prints_without_end": "x" * 1000, "tiny/floods_stderr_and_hangs": "still at it\n" * 80}
    for name in endless.keys() & tails.keys():
        assert endless[name] in tails[name]
        assert len(tails[name]) <= 16 << 10
    assert "tiny/prints_without_end" in tails


def test_nobody_touched_the_sources(night):
    for original in (HERE / "problems").rglob("*.*"):
        copy = night.field.root / "problems" / original.relative_to(HERE / "problems")
        assert copy.read_bytes() == original.read_bytes()


def test_nothing_is_left(night):
    assert processes(night.field) == []
    assert night.field.leftovers() == []
    if night.sandbox == "docker":
        assert containers(night.run_id) == []


def test_the_record_says_how_isolated_each_was(night):
    for record in night.records:
        isolation = record["host"]["isolation"]["candidate"]
        assert isolation["network"] == "none"
        assert isolation["filesystem"] == "read-only"
        assert "pids" in isolation["limits"]


def test_a_second_run_has_nothing_to_do(night):
    again = night.field.run("--sandbox", night.sandbox)
    assert again.returncode == 0
    begin, end = events(again.stdout)
    assert (begin["cells"], begin["done_before"]) == (0, len(night.records))
    assert (end["counts"], end["left"]) == ({}, 0)
    assert len(night.field.records()) == len(night.records)
