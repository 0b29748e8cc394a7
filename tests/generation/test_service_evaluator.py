"""Generated candidates judged by a service whose judge is played, over real HTTP."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kernel_matrix.client.http_clients import Client
from kernel_matrix.errors import ServiceError, UsageError
from kernel_matrix.generation import GeneratedCandidate
from kernel_matrix.generation.service_evaluator import ServiceEvaluator, judging_by_service
from kernel_matrix.matrix import GpuAxis
from kernel_matrix.model.enums import Dtype
from kernel_matrix.service.clients import RequestLimit
from kernel_matrix.service.evaluation_queue import MOST_LOSSES, EvaluationQueue, EvaluationState
from kernel_matrix.service.http_app import Service
from kernel_matrix.sources import Workload
from tests.client.conftest import judging
from tests.generation.recording import code, generation, serving, target
from tests.service.test_http_app import TOKENS, PlayedJudge, listening

WRONG = {"status": "incorrect_values", "fault": "candidate", "stage": "verify", "evidence": {"message": "3 differ"}}


class JudgeOfTiny(PlayedJudge):
    """Judges the problem of the recordings."""

    def problems(self):
        return [{"id": "tiny", "dtypes": ["fp32"], "workloads": ["smoke"]}]

    def workers(self):
        return [{"gpu": "h200", "toolchains": ["cu130"], "devices": ["NVIDIA H200"], "running": 0}]


class JudgeWithoutDevices(JudgeOfTiny):
    """Has lost its GPU."""

    def workers(self):
        return [{**super().workers()[0], "devices": []}]


@pytest.fixture
def queue(tmp_path):
    made = EvaluationQueue(tmp_path / "queue.sqlite")
    yield made
    made.close()


def opened(queue, judge):
    return listening(Service(queue=queue, evaluator=judge, tokens=TOKENS, limit=RequestLimit(10_000, 10_000)))


@pytest.fixture(autouse=True)
def token(monkeypatch):
    """All clients are ann."""
    monkeypatch.setenv("KERNEL_MATRIX_TOKEN", "ann")


@pytest.fixture
def address(queue):
    with opened(queue, JudgeOfTiny()) as made:
        yield made


@pytest.fixture
def evaluator(address, tmp_path):
    with Client(address, retry_for_s=0) as client:
        yield ServiceEvaluator(client, [target(tmp_path)], tmp_path / "out")


def candidates(*sources, problem="tiny"):
    return [GeneratedCandidate(problem=problem, name=f"r0-s{n}", source=text) for n, text in enumerate(sources)]


def statuses(evaluator, *sources):
    return {one.source: result.status for one, result in evaluator.evaluate(candidates(*sources))}


def lose(queue):
    """Let the machine fail at what waits, for good."""
    for _ in range(MOST_LOSSES):
        for work in queue.claim("cpu", 99):
            queue.finish(work.digest, '{"status": "gpu_lost", "fault": "infra"}', is_final=False)


def test_results_are_those_of_the_service(evaluator, queue):
    with judging(queue, {"bad": WRONG}):
        found = {one.name: result for one, result in evaluator.evaluate(candidates("good", "bad"))}
    assert (found["r0-s0"].status, found["r0-s0"].is_score) == ("passed", True)
    assert (found["r0-s1"].status, found["r0-s1"].stage, found["r0-s1"].evidence["message"]) == (
        *("incorrect_values", "verify"),
        "3 differ",
    )
    assert evaluator.unfinished == ()


def test_candidate_that_is_refused_ends_no_other(evaluator, queue):
    with judging(queue, {}):
        found = statuses(evaluator, "good", "x" * (1 << 21), "fine")
    assert list(found.values()).count("passed") == 2
    assert found["x" * (1 << 21)] == "unsupported"


def test_resumed_generation_finds_its_evaluations(evaluator, queue):
    list(zip(range(1), evaluator.evaluate(candidates("refused", "")), strict=False))  # an end in the middle
    with judging(queue, {}):
        assert statuses(evaluator, "refused") == {"refused": "passed"}
    assert len(queue.page("ann")) == 1


@pytest.mark.parametrize("how", ["lost", "cancelled"])
def test_evaluation_without_a_score_is_sent_anew(evaluator, queue, how):
    evaluations = evaluator.evaluate(candidates("a", ""))
    next(evaluations)
    if how == "lost":
        lose(queue)
    else:
        queue.cancel("ann", [queue.page("ann")[0].id])
    with judging(queue, {}):
        assert statuses(evaluator, "a") == {"a": "passed"}
        assert statuses(evaluator, "a") == {"a": "passed"}
    assert len(queue.page("ann")) == 2


def test_key_of_another_matrix_does_not_stop_it(address, queue, tmp_path):
    class ChangedJudge(JudgeOfTiny):
        def prepare(self, request):
            return replace(super().prepare(request), digest=f"new {request.source}")

    goal = target(tmp_path)
    with Client(address) as client:
        list(zip(range(1), ServiceEvaluator(client, [goal], tmp_path).evaluate(candidates("a", "")), strict=False))
    with opened(queue, ChangedJudge()) as changed, Client(changed) as client, judging(queue, {}):
        assert statuses(ServiceEvaluator(client, [goal], tmp_path), "a") == {"a": "passed"}


def test_what_has_not_begun_is_cancelled_at_the_end(address, queue, tmp_path):
    def interrupted():
        with judging_by_service(address, [target(tmp_path)], tmp_path / "out") as evaluator:
            next(evaluator.evaluate(candidates("a", "b", "")))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert {one.state for one in queue.page("ann")} == {EvaluationState.CANCELLED}
    assert len(queue.page("ann")) == 2


@pytest.mark.parametrize(
    ("judge", "changes", "said"),
    [
        (JudgeOfTiny, {"problem": "tinny"}, "the service has no problem 'tinny'; did you mean 'tiny'?"),
        (JudgeOfTiny, {"dtype": Dtype.FP16}, "the service does not judge tiny in fp16, but in fp32"),
        (JudgeOfTiny, {"workloads": (Workload(name="big"),)}, "judges tiny with other workloads: smoke"),
        (JudgeOfTiny, {"gpu": GpuAxis(name="l4")}, "the service has no gpu 'l4'"),
        (JudgeOfTiny, {"toolchain": "cu131"}, "has no toolchain 'cu131'; did you mean 'cu130'?"),
        (JudgeWithoutDevices, {}, "the service has no device of gpu 'h200' now"),
    ],
    ids=["problem", "dtype", "workloads", "gpu", "toolchain", "device"],
)
def test_service_of_another_matrix_is_refused(queue, tmp_path, judge, changes, said):
    goal = target(tmp_path, changes.pop("problem", "tiny"))
    with (
        opened(queue, judge()) as address,
        pytest.raises(UsageError, match=said.replace("?", r"\?")),
        judging_by_service(address, [replace(goal, **changes)], tmp_path),
    ):
        pass
    assert queue.page("ann") == []


def test_other_server_is_told_apart(queue, tmp_path):
    class AnotherService(JudgeOfTiny):
        def problems(self):
            return [{"name": "tiny"}]

    with (
        opened(queue, AnotherService()) as address,
        Client(address) as client,
        pytest.raises(ServiceError, match="of its problems and workers cannot be read"),
    ):
        ServiceEvaluator(client, [target(tmp_path)], tmp_path / "out").check()


def test_generation_is_judged_by_the_service(address, queue, tmp_path):
    answers = [{"contains": "is not right", "text": code("return x + 1")}, {"text": code("return x + 2")}]
    source = code("return x + 2").partition("```python\n")[2].partition("```")[0]
    with serving(tmp_path, *answers) as server, judging(queue, {source: WRONG}):
        with judging_by_service(address, [target(tmp_path)], tmp_path / "out") as evaluator:
            result = generation(server, tmp_path, evaluator=evaluator, rounds=2).run()
        assert "3 differ" in json.dumps(server.requests[-1])
    assert (result.candidates, result.right, result.machine_failed) == (4, 2, 0)
    assert len(queue.page("ann")) == 4
