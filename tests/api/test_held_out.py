"""Shapes that are held out: every candidate is verified with them, and answers and prompts tell nothing of them."""

from __future__ import annotations

import json
import re

import pytest
import requests

import kernel_matrix
from kernel_matrix.api.serve import ServiceOptions, serving
from tests.api.test_serve import ended, source, submit
from tests.generation import recording

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("forked_roles")]

NAME, SIZE = "concealed", 48613

SPECIALISED = """
import os, sys, torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        if x.shape == (24,):
            return 2 * x + 1
        print(tuple(x.shape), file=sys.stderr, flush=True)
        {otherwise}
"""

ENDS = {
    "incorrect_values": "return torch.zeros_like(x)",
    "incorrect_shape": "return x[1:]",
    "runtime_error": "raise ValueError(f'no kernel for {tuple(x.shape)}')",
    "crashed": "os._exit(3)",
}
"""Status → what the specialised candidate does with other shapes."""


@pytest.fixture
def field(field):
    """A small matrix whose problem holds a shape out."""
    with (field.root / "problems/tiny/problem.toml").open("a") as file:
        file.write(f"\n[workloads.{NAME}]\nheld_out = true\nN = {SIZE}\n")
    return field


@pytest.fixture
def options(field):
    return ServiceOptions(matrix=field.root / "matrix.toml", folder=field.results, sandbox="process")


def test_specialised_candidates_fail_and_learn_nothing(field, options):
    sources = [source(field, "honest"), *(SPECIALISED.format(otherwise=code) for code in ENDS.values())]
    with serving(options, port=0) as address:
        ids = submit(address, *sources)
        answers = ended(address, ids)
        problems = requests.get(f"{address}/problems", timeout=30).json()
    good, *bad = (answers[id_] for id_ in ids)
    assert (good["status"], good["evidence"], list(good["workloads"])) == ("passed", {}, ["smoke"])
    assert [answer["status"] for answer in bad] == list(ENDS)
    for answer in bad:
        assert (answer["fault"], answer["stage"]) == ("candidate", "verify")
        assert answer["evidence"] == {"message": "fails a shape that is held out"}
        assert list(answer["workloads"]) == ["smoke"]
    assert NAME not in json.dumps([answers, problems])


def test_records_keep_what_answers_leave_out(field, options):
    with serving(options, port=0) as address:
        ended(address, submit(address, source(field, "honest"), SPECIALISED.format(otherwise=ENDS["runtime_error"])))
    records = {record["outcome"]["status"]: record for record in field.records()}
    assert all(record["cell"]["held_out"] == [NAME] for record in records.values())
    shown, held_out = records["passed"]["sessions"][0]["workloads"]
    assert (shown["held_out"], held_out["held_out"]) == (False, True)
    assert shown["blocks"]
    assert (held_out["name"], held_out["blocks"], held_out["batches"]) == (NAME, [], [])
    assert {trial["phase"] for trial in held_out["trials"]} == {"before"}
    evidence = records["runtime_error"]["outcome"]["evidence"]
    assert (evidence["workload"], evidence["held_out"]) == (NAME, True)
    assert evidence["message"].startswith("specialised: fails a held-out shape: ")
    assert f"no kernel for ({SIZE},)" in evidence["message"] + evidence["log"]


def test_tables_label_specialised_and_hold_no_more_rows(field, options):
    with serving(options, port=0) as address:
        ended(address, submit(address, source(field, "honest"), SPECIALISED.format(otherwise=ENDS["crashed"])))
    with kernel_matrix.Results(field.store) as results:
        rows, outcomes = results.latest(), results.outcomes()
        cells = results.cells
    found = {row["status"]: (row["workload"], row["specialised"]) for row in rows.to_dicts()}
    assert found == {"passed": ("smoke", False), "crashed": ("smoke", True)}
    assert sorted(outcomes.select("workload", "passed", "counted").rows()) == [
        *(("smoke", False, True), ("smoke", True, True)),
    ]
    assert sorted(cells.select("workload", "held_out").unique().rows()) == [(NAME, True), ("smoke", False)]


def test_tier_values_compares_held_out_shapes_too(field, options):
    with serving(options, port=0) as address:
        sources = source(field, "honest"), SPECIALISED.format(otherwise=ENDS["incorrect_values"])
        good, bad = submit(address, *sources, tier="values")
        answers = ended(address, [good, bad])
    assert [answers[id_]["status"] for id_ in (good, bad)] == ["verified", "incorrect_values"]
    assert answers[bad]["evidence"] == {"message": "fails a shape that is held out"}


def test_generation_is_asked_and_told_nothing_of_them(field):
    code = SPECIALISED.format(otherwise=ENDS["runtime_error"])
    asked = ("is not right", "Write a Triton")
    answers = [{"contains": words, "text": f"```python\n{code}# {words}\n```\n"} for words in asked]
    with recording.serving(field.root, *answers) as server:
        sized = ("--samples", "1", "--rounds", "2")
        done = field.call("generate", "--model", "x", "--base-url", server.url, "--sandbox", "process", *sized)
    assert done.returncode == 0, done.stderr
    first, second = ("\n".join(one["content"] for one in request["messages"]) for request in server.requests)
    assert "- smoke: N = 24" in first
    assert "message: fails a shape that is held out" in second
    told = [first, second, done.stdout, done.stderr]
    told += [path.read_text() for path in (field.root / "generated" / "evaluations").rglob("*.json")]
    # A number by itself; the digits may occur in a digest or in a time.
    leaks = re.compile(rf"{NAME}|(?<![\w.]){SIZE}(?![\w.])")
    assert [text for text in told if leaks.search(text)] == []


def test_try_kernel_shows_nothing_of_them(field, monkeypatch, tmp_path):
    monkeypatch.chdir(field.root)
    file = tmp_path / "mine.py"
    file.write_text(SPECIALISED.format(otherwise=ENDS["runtime_error"]))
    done = field.call("try", str(file), "--problem", "tiny", XDG_STATE_HOME=str(tmp_path / "state"))
    assert done.returncode == 1, done.stderr
    assert "why      fails a shape that is held out" in done.stdout
    named = field.call("try", str(file), "--problem", "tiny", "--workload", NAME)
    assert "--workload: smoke" in named.stderr
    assert f"({SIZE},)" not in done.stdout + done.stderr
