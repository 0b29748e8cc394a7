"""``kernel-matrix generate`` on a small matrix, with recorded answers in place of a model."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter

import pytest

from kernel_matrix.api.serve import ServiceOptions
from kernel_matrix.api.serve import serving as serving_matrix
from kernel_matrix.model.evaluation import source_name
from tests.baddays.field import PRELOADED, new_field
from tests.generation.recording import serving

pytestmark = pytest.mark.torch

KEY = "sk-very-secret"
ANSWERS = ("Write a Triton", "wrong"), ("is not right", "honest"), ("is right", "honest")


@pytest.fixture
def field(tmp_path):
    with new_field(tmp_path, program=PRELOADED, environment={"OPENAI_API_KEY": KEY}) as made:
        yield made


@pytest.fixture
def answers(field):
    """Wrong code first, then right code."""
    return [
        {"contains": words, "text": f"```python\n{(field.candidates / f'{name}.py').read_text()}```\n"}
        for words, name in ANSWERS
    ]


def words(server, *more):
    sized = ("--samples", "2", "--rounds", "2", "--concurrency", "2")
    sandbox = () if "--judge" in more else ("--sandbox", "process")
    return ("generate", "--model", "tester", "--base-url", server.url, *sandbox, *sized, *more)


def ledger(field):
    return [json.loads(line) for line in (field.root / "generated" / "ledger.jsonl").read_text().splitlines()]


def test_candidates_are_judged_repaired_and_recorded(field, answers):
    with serving(field.root, *answers) as server:
        done = field.call(*words(server, "--json"))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["answers"], summary["candidates"], summary["right"], summary["machine_failed"]) == (4, 4, 2, 0)
    assert summary["tokens"] == server.prompt_tokens + server.completion_tokens
    assert summary["usd"] is None
    assert summary["best"]["tiny"]["name"].startswith("r1-")
    assert ": incorrect_values\n" in done.stderr
    assert done.stderr.count("the price of tester is unknown") == 1
    repairs = [request["messages"][-1]["content"] for request in server.requests[2:]]
    assert all("elements beyond tolerance" in text for text in repairs)
    out = field.root / "generated"
    results = out / "results" / "baddays"
    runs = [json.loads(path.read_text()) for path in (results / "runs").glob("*.json")]
    assert [run["counts"] for run in runs] == [{"incorrect_values": 2, "passed": 2}]
    cells = [json.loads(path.read_text())["cell"] for path in (results / "records").glob("*.json")]
    origins = {(cell["origin"]["model"], cell["origin"]["round"], cell["origin"]["sample"]) for cell in cells}
    assert origins == {("tester", round_, sample) for round_ in (0, 1) for sample in (0, 1)}
    assert server.authorizations == [f"Bearer {KEY}"] * 4
    said = [done.stdout, done.stderr, *(path.read_text() for path in out.rglob("*") if path.is_file())]
    assert [text for text in said if KEY in text] == []
    assert field.leftovers() == []


def test_answers_without_code_cost_and_solve_nothing(field):
    usage = {"prompt_tokens": 900, "completion_tokens": 100}
    with serving(field.root, {"text": "", "refusal": "no", "usage": usage}) as server:
        done = field.call(*words(server, "--json"))
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["answers"], summary["without_code"], summary["candidates"]) == (4, 4, 0)
    told = field.call("analyze", "budgets", "generated/results", "--json")
    (answer,) = json.loads(told.stdout)["answers"]
    assert {(row["unit"], row["tasks"], row["correct"]) for row in answer["rows"]} == {("tokens", 1, 0.0)}
    assert [row["budget"] for row in answer["rows"] if row["ended"]] == [5000.0]  # after 4 answers of 1000 tokens
    assert field.leftovers() == []


@pytest.mark.usefixtures("forked_roles")
def test_service_judges_as_this_host_does(field, answers):
    def results(out):
        found = (json.loads(path.read_text()) for path in (field.root / out / "evaluations").rglob("*.json"))
        return sorted((one["status"], one["stage"], list(one["evidence"]), list(one["workloads"])) for one in found)

    options = ServiceOptions(matrix=field.root / "matrix.toml", folder=field.results, sandbox="process")
    with serving(field.root, *answers) as server, serving_matrix(options, port=0) as address:
        here = field.call(*words(server))
        there = field.call(*words(server, "--judge", address, "--out", "there"))
    assert (here.returncode, there.returncode) == (0, 0), there.stderr
    assert "4 candidates, 2 right" in there.stdout
    assert results("there") == results("generated") != []
    assert not (field.root / "there" / "results").exists()
    origins = sorted((one["cell"]["origin"] for one in field.records()), key=lambda origin: origin["round"])
    assert [(origin["model"], origin["round"]) for origin in origins] == [("tester", 0), ("tester", 1)]
    (wrong,) = {path.read_text() for path in (field.root / "there" / "candidates").rglob("r0-*.py")}
    assert origins[1]["parent"] == source_name(wrong, ".py")


def test_killed_generation_goes_on_and_pays_once(field, answers):
    """Only requests without an answer yet when it is killed may be paid for twice: as many as are sent at once."""
    slow = [{**answer, "delay_s": 0.5} for answer in answers]
    with serving(field.root, *slow) as server:
        with field.start(*words(server)) as first:
            while len(server.requests) < 3:  # two are answered, and the second round has begun
                time.sleep(0.01)
            first.send_signal(signal.SIGKILL)
        stored = len(list((field.root / "generated" / "answers").glob("*.json")))
        assert stored >= 2
        done = field.call(*words(server))
        assert done.returncode == 0, done.stderr
        sent = Counter(json.dumps(request, sort_keys=True) for request in server.requests)
    assert len(sent) == 4
    assert sum(sent.values()) - 4 <= 2
    assert len(ledger(field)) == 4
    assert "4 answers" in done.stdout
    assert "best of tiny: r1-" in done.stdout


def test_interrupted_generation_keeps_what_was_paid_for(field, answers):
    slow = [{**answer, "delay_s": 0.5} for answer in answers]
    with serving(field.root, *slow) as server:
        with field.start(*words(server)) as process:
            while len(server.requests) < 2:
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate()
        assert process.returncode == 128 + signal.SIGINT
        assert said.endswith("stopped by SIGINT\n")
        assert len(ledger(field)) == len(server.requests) == 2
        assert sum(line["tokens_completion"] for line in ledger(field)) == server.completion_tokens
    assert field.leftovers() == []


def test_recorded_answers_need_no_endpoint(field, answers):
    with serving(field.root, *answers):
        pass
    sized = ("--model", "recorded", "--recorded", "recorded", "--samples", "1", "--rounds", "2")
    done = field.call("generate", *sized, "--sandbox", "process", "--runs", "runs/mine")
    assert done.returncode == 0, done.stderr
    assert "2 answers (2 new)" in done.stdout
    assert "2 candidates, 1 right" in done.stdout


def test_printed_prompt_is_the_one_that_is_sent(field, answers):
    with serving(field.root, *answers) as server:
        printed = field.call("generate", "--print-prompt", "--precision")
        assert server.requests == []
        field.call(*words(server, "--precision", "--budget-s", "60"))
    assert server.requests[0]["messages"][0]["content"] in printed.stdout


@pytest.mark.parametrize(
    ("more", "code", "what"),
    [
        (("--problem", "tinny"), 3, "did you mean 'tiny'?"),
        (("--language", "trition"), 2, "did you mean 'triton'?"),
        (("--strategy", "genetic"), 4, "unknown strategy 'genetic'"),
        (("--gpu", "h200"), 2, "there is no gpu 'h200'"),
        (("--dtype", "fp8"), 3, "has dtype fp8"),
        (("--toolchain", "cu130"), 2, "there is no toolchain 'cu130'"),
        (("--field", "max_tokens"), 2, "--field max_tokens is not KEY=JSON"),
        (("--prompt", "zero"), 2, "the prompt zero is not there"),
        (("--prices", "absent.toml"), 2, "absent.toml cannot be read"),
        (("--budget-usd", "1"), 2, "the price of tester is unknown"),
        (("--base-url", "host"), 2, "--base-url host is no address"),
        (("--judge", "host"), 2, "the service's address cannot be used: 'host'"),
        (("--judge", "http://localhost", "--sandbox", "process"), 2, "--sandbox is about this host, and --judge"),
        (("--judge", "http://localhost", "--lock", "absent.lock"), 2, "--lock is about this host, and --judge"),
        (("--model", ""), 2, "no model, or no endpoint, is named"),
        (("--recorded", "problems"), 2, "problems has no recorded answer"),
    ],
)
def test_mistake_is_told_and_nothing_is_sent(field, answers, more, code, what):
    with serving(field.root, *answers) as server:
        done = field.call(*words(server, *more))
    assert (done.returncode, server.requests) == (code, [])
    assert done.stderr.startswith("error: ")
    assert what in done.stderr
    assert "\n  → " in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_endpoint_without_a_valid_key_is_told_at_once(field):
    with serving(field.root, {"status": 401, "response": {"error": f"{KEY} is wrong"}}) as server:
        done = field.call(*words(server, "--concurrency", "1"))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == "  → set the environment variable OPENAI_API_KEY to a key for this endpoint"
    assert KEY not in done.stdout + done.stderr
    assert len(server.requests) == 1


def test_missing_dependency_is_told():
    program = "import sys; sys.modules['httpx'] = None; from kernel_matrix.cli import main; main()"
    done = subprocess.run((sys.executable, "-c", program, "generate"), check=False, capture_output=True, text=True)
    assert done.returncode == 4
    assert done.stderr == "error: httpx is not installed\n  → pip install 'kernel-matrix[client]'\n"
