"""The bridges of ``docs/examples/bridges``: to the real packages where they are installed."""

from __future__ import annotations

import asyncio
import json
import math
from importlib import import_module

import pytest

from kernel_matrix.client.http_clients import Client
from tests.client.conftest import answers, queue, service  # noqa: F401  # fixtures
from tests.client.faulty_front import answered, fronting
from tests.own_python import ROOT

FOLDER = ROOT / "docs" / "examples" / "bridges"
FASTER = {"speedup": 2.0, "speedup_limit": 4.0, "verdict": "faster"}
TIMES = {"candidate_median_ns": 2000.0, "baseline_median_ns": 4000.0}


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """Let a test import the bridges."""
    monkeypatch.syspath_prepend(FOLDER)


@pytest.fixture
def client(service, answers):  # noqa: F811  # the fixtures above
    """A client of a service that knows what becomes of four sources."""
    answers |= {
        "fast": {"status": "passed", "fault": "none", "stage": "done", "workloads": {"smoke": {**FASTER, **TIMES}}},
        "wrong": {"status": "incorrect_values", "fault": "candidate", "stage": "verify", "evidence": {"message": "m"}},
        "lost": {"status": "infra_error", "fault": "infra"},
    }
    with Client(service) as made:
        yield made


def test_bridges_are_short():
    lengths = {path.name: len(path.read_text().splitlines()) for path in FOLDER.glob("*.py")}
    assert len(lengths) == 4
    assert {name: length for name, length in lengths.items() if length > 60} == {}


def test_gym_environment_ends_after_its_turns(client):
    environment = import_module("gym_environment").KernelEnvironment(client, "softmax", turns=2)
    assert environment.reset(seed=1) == ({"problem": "softmax", "turns": 2}, {})
    observation, reward, terminated, truncated, info = environment.step("wrong")
    assert (observation["status"], observation["evidence"]) == ("incorrect_values", {"message": "m"})
    assert (reward, terminated, truncated, info) == (-3.0, False, False, {"masked": False})
    observation, *rest = environment.step("So it is:\n```python\nx = 1\n```\n")
    assert observation["turn"] == 2
    assert rest == [-2.0, True, False, {"masked": False}]


def test_gym_environment_cuts_off_what_is_not_known(client):
    environment = import_module("gym_environment").KernelEnvironment(client, "softmax")
    environment.reset()
    observation, *rest = environment.step("lost")
    assert rest == [0.0, False, True, {"masked": True}]
    assert "status" not in observation
    assert environment.step("fast")[1] == 1.0
    assert environment.step("")[1] == -3.0


def kernelbench(monkeypatch, result, **arguments):
    """Call KernelBench's function; returns its answer and the request that was sent."""
    module = import_module("kernelbench_eval")
    given = {
        "id": "ev-1",
        "number": 1,
        "key": None,
        "created_at": "",
        "ended_at": "",
        "state": "ended",
        "result": result,
    }
    with fronting() as front:
        front.faults = [answered({"evaluations": [given]}, 202), answered({"evaluations": [given]})]
        monkeypatch.setenv("KERNEL_MATRIX_SERVICE", front.address)
        found = module.eval_kernel_against_ref("the reference", "the candidate", 42, 5, 100, **arguments)
        (sent,) = json.loads(front.requests[0][2])["evaluations"]
    return found, sent


def test_kernelbench_call_sends_the_reference(monkeypatch):
    result = {"status": "passed", "fault": "none", "stage": "done", "workloads": {"default": {**FASTER, **TIMES}}}
    found, sent = kernelbench(monkeypatch, result, measure_performance=True, device=0, precision="torch.bfloat16")
    assert sent.pop("key")
    assert sent == {"reference": "the reference", "source": "the candidate", "dtype": "bf16"}
    assert (found.compiled, found.correctness, found.runtime, found.ref_runtime) == (True, True, 2.0, 4.0)
    assert found.metadata == {"status": "passed", "speedup_bound": 2.0}


@pytest.mark.parametrize(
    ("status", "stage", "compiled"), [("incorrect_values", "verify", True), ("compile_error", "build", False)]
)
def test_kernelbench_call_tells_what_is_wrong(monkeypatch, status, stage, compiled):
    result = {"status": status, "fault": "candidate", "stage": stage, "evidence": {"message": "m"}}
    found, sent = kernelbench(monkeypatch, result)
    assert sent["tier"] == "values"
    assert (found.compiled, found.correctness, found.runtime) == (compiled, False, -1.0)
    assert found.metadata["message"] == "m"


def test_kernelbench_call_is_none_for_a_machine(monkeypatch):
    assert kernelbench(monkeypatch, {"status": "gpu_lost", "fault": "infra"})[0] is None


@pytest.mark.filterwarnings("ignore")  # those of the package and of what it uses
def test_inspect_scorer_scores_samples(client, service, tmp_path):  # noqa: F811  # the fixture above
    inspect_ai = pytest.importorskip("inspect_ai", reason="inspect_ai is not installed")
    from inspect_ai.dataset import Sample  # noqa: PLC0415  # may be missing
    from inspect_ai.model import ModelOutput  # noqa: PLC0415  # may be missing
    from inspect_ai.solver import solver  # noqa: PLC0415  # may be missing

    @solver
    def repeating():
        async def solve(state, _generate):
            state.output = ModelOutput.from_content("mockllm/model", state.metadata["says"])
            return state

        return solve

    said = ["fast", "wrong", "lost", ""]
    samples = [Sample(input="?", target="softmax", metadata={"says": one}) for one in said]
    scorer = import_module("inspect_scorer").kernel_scorer(service)
    task = inspect_ai.Task(dataset=samples, solver=repeating(), scorer=scorer)
    (log,) = inspect_ai.eval(task, model="mockllm/model", log_dir=str(tmp_path), display="none")
    assert log.status == "success", log.error
    scores = [sample.scores["kernel_scorer"] for sample in log.samples]
    assert [score.value for score in scores if not math.isnan(score.value)] == [1.0, 0.1, 0.0]
    assert math.isnan(scores[2].value)
    assert scores[0].metadata["evaluation"].startswith("ev-")
    assert log.results.scores[0].metrics["mean"].value == pytest.approx(1.1 / 3)


@pytest.mark.filterwarnings("ignore")  # as above
def test_verifiers_rubric_scores_a_group(client):
    verifiers = pytest.importorskip("verifiers", reason="verifiers is not installed")
    if not hasattr(verifiers, "Rubric"):
        pytest.skip("this version of verifiers has no rubrics")
    rubric = import_module("verifiers_rubric").kernel_rubric(client)
    states = [
        {"prompt": [], "completion": [{"role": "assistant", "content": said}], "answer": "softmax", "trajectory": []}
        for said in ("fast", "wrong", "lost")
    ]
    asyncio.run(rubric.score_group(states))
    assert [state["reward"] for state in states] == [1.0, -3.0, -1.0]
    assert states[2]["advantage"] == 0.0
    assert [type(state.get("error")).__name__ for state in states] == ["NoneType", "NoneType", "InfraError"]
