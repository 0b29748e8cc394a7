"""The loop: what is sent, stored, judged and fed back, and what is done again after an end in the middle."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from kernel_matrix.errors import InfrastructureError, UsageError
from kernel_matrix.generation.budget import GenerationBudget
from kernel_matrix.generation.generation_events import CandidateJudged, GenerationNote
from kernel_matrix.generation.prices import ModelPrice
from kernel_matrix.generation.strategies import STRATEGIES
from kernel_matrix.matrix import GpuAxis
from kernel_matrix.model.evaluation import EvaluationResult
from kernel_matrix.sources import load_candidates
from tests.generation.recording import (
    MACHINE,
    WRONG,
    StubEvaluator,
    code,
    generation,
    ledger_of,
    right,
    serving,
    target,
)

PRICE = ModelPrice(prompt=1.0, cached=0.1, completion=10.0)
FIRST = {"contains": "Write a Triton", "text": code("return x + 2")}
REPAIRED = {"contains": "is not right", "text": code("return x + 1")}
FASTER = {"contains": "is right", "text": code("return x.add(1)")}
RESULTS = {"x + 2": WRONG, "x + 1": right(1.5), "x.add": right(2.0)}


def notes_of(events):
    return [event.text for event in events if isinstance(event, GenerationNote)]


def test_wrong_is_repaired_and_right_is_optimised(tmp_path):
    evaluator = StubEvaluator(RESULTS)
    with serving(tmp_path, FIRST, REPAIRED, FASTER) as server:
        result = generation(server, tmp_path, evaluator=evaluator, rounds=3).run()
    assert (result.answers, result.sent, result.candidates, result.right) == (6, 6, 6, 4)
    assert result.best["tiny"].speedup == pytest.approx(2.0)
    assert result.best["tiny"].name.startswith("r2-")
    assert server.used == {"00.json": 2, "01.json": 2, "02.json": 2}
    assert len(evaluator.asked) == 6


def test_ledger_has_the_tokens_that_the_server_counted(tmp_path):
    with serving(tmp_path, {**FIRST, "usage": {"prompt_tokens": 1000, "completion_tokens": 17}}, REPAIRED) as server:
        result = generation(server, tmp_path, evaluator=StubEvaluator(RESULTS), rounds=2, price=PRICE).run()
    lines = ledger_of(tmp_path)
    assert sum(line["tokens_prompt"] for line in lines) == server.prompt_tokens
    assert sum(line["tokens_completion"] for line in lines) == server.completion_tokens
    assert result.tokens == server.prompt_tokens + server.completion_tokens
    assert result.usd == pytest.approx((server.prompt_tokens + 10 * server.completion_tokens) / 1e6)
    assert len(lines) == len(server.requests) == 4
    assert {(line["round"], line["sample"]) for line in lines} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert all((line["parent"] is None) == (line["round"] == 0) for line in lines)
    assert all((tmp_path / "out" / line["answer"]).is_file() for line in lines)


def test_candidates_are_read_by_the_source_folder(tmp_path):
    goal = target(tmp_path)
    usage = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}}
    with serving(tmp_path, {**FIRST, "usage": usage}, REPAIRED) as server:
        run = generation(server, tmp_path, targets=[goal], evaluator=StubEvaluator(RESULTS), rounds=2, price=PRICE)
        run.run()
    found, refused = load_candidates("folder", tmp_path / "out" / "candidates", {"tiny": goal.problem})
    assert refused == ()
    first, _, second, _ = found
    assert (first.origin.method, first.origin.model, first.origin.sample) == ("refine", "tester", 0)
    assert (first.origin.tokens_in, first.origin.tokens_cached, first.origin.tokens_out) == (9, 3, 4)
    assert first.origin.cost_usd == pytest.approx((6 + 0.3 + 40) / 1e6)
    assert second.origin.round == 1
    assert second.origin.parent == first.path.stem
    assert (first.origin.prompt, len(first.origin.prompt_sha256)) == ("zero-shot", 64)


def test_seeds_differ_between_samples_and_rounds(tmp_path):
    with serving(tmp_path, {"text": code()}) as server:
        run = generation(
            server, tmp_path, strategy="repeated", rounds=2, seed=7, temperature=0.5, fields={"top_p": 0.9}
        )
        run.run()
    assert {request["seed"] for request in server.requests} == {7, 8, 1007, 1008}
    assert {(request["temperature"], request["top_p"]) for request in server.requests} == {(0.5, 0.9)}


@pytest.mark.parametrize(("strategy", "samples"), [("repeated", 4), ("refine", 2)])
def test_attempts_that_begin_anew_are_samples_of_their_own(tmp_path, strategy, samples):
    goal = target(tmp_path)
    with serving(tmp_path, {"text": code()}) as server:
        generation(server, tmp_path, targets=[goal], strategy=strategy, rounds=2).run()
    found, _ = load_candidates("folder", tmp_path / "out" / "candidates", {"tiny": goal.problem})
    assert (len(found), len({one.origin.sample for one in found})) == (4, samples)


def test_second_run_sends_nothing(tmp_path):
    with serving(tmp_path, FIRST, REPAIRED) as server:
        first = generation(server, tmp_path, evaluator=StubEvaluator(RESULTS), rounds=2).run()
        evaluator = StubEvaluator()
        second = generation(server, tmp_path, evaluator=evaluator, rounds=2, budget=GenerationBudget(usd=None)).run()
        assert len(server.requests) == 4
    assert (second.sent, second.answers, second.best) == (0, 4, first.best)
    assert evaluator.asked == []


def test_prompts_are_the_same_when_the_generation_goes_on(tmp_path):
    evidence = {"message": "m", "index": (1, 2), "error": 0.1}  # as results are that come from a judge
    wrong = EvaluationResult("incorrect_values", "candidate", stage="verify", evidence=evidence)
    with serving(tmp_path, FIRST, REPAIRED) as server:
        generation(server, tmp_path, evaluator=StubEvaluator({"x + 2": wrong}), rounds=2).run()
        assert generation(server, tmp_path, rounds=2).run().sent == 0


def test_answers_are_judged_anew_on_another_gpu(tmp_path):
    elsewhere = replace(target(tmp_path), gpu=GpuAxis(name="l4", platform="cuda"))
    evaluator = StubEvaluator()
    with serving(tmp_path, FIRST) as server:
        generation(server, tmp_path).run()
        result = generation(server, tmp_path, targets=[elsewhere], evaluator=evaluator).run()
    assert (result.sent, len(evaluator.asked)) == (0, 2)


def test_more_samples_and_rounds_send_the_new_ones_alone(tmp_path):
    with serving(tmp_path, FIRST, REPAIRED) as server:
        generation(server, tmp_path, evaluator=StubEvaluator(RESULTS)).run()
        result = generation(server, tmp_path, evaluator=StubEvaluator(RESULTS), samples=3, rounds=2).run()
    assert (result.answers, result.sent, len(server.requests)) == (6, 4, 6)


def test_failure_of_the_machine_is_neither_score_nor_fed_back(tmp_path):
    events = []
    evaluator = StubEvaluator({"x + 2": MACHINE})
    new = [{"text": code(), "seed": 1}, {"text": code(), "seed": 1000}]  # the first sample begins anew
    with serving(tmp_path, {**FIRST, "seed": 0}, *new, FASTER) as server:
        run = generation(server, tmp_path, evaluator=evaluator, rounds=2, listener=events.append)
        result = run.run()
        asked = "\n".join(str(request["messages"]) for request in server.requests)
        assert "gpu_lost" not in asked
        assert "x + 2" not in asked
        assert (result.machine_failed, result.right, result.candidates) == (1, 3, 4)
        judged = [event.attempt for event in events if isinstance(event, CandidateJudged)]
        assert [one.is_usable for one in judged if one.result == MACHINE] == [False]
        # It is judged again when the generation goes on, and nothing is paid for twice.
        again = StubEvaluator(RESULTS)
        generation(server, tmp_path, evaluator=again).run()
        assert [one.source for one in again.asked] == [
            "class ModelNew:\n    def forward(self, x):\n        return x + 2\n"
        ]
        assert len(server.requests) == 4


def test_round_without_a_judged_candidate_is_the_last(tmp_path):
    events = []
    with serving(tmp_path, FIRST) as server:
        run = generation(server, tmp_path, evaluator=StubEvaluator(default=MACHINE), rounds=3, listener=events.append)
        assert run.run().machine_failed == 2
        assert len(server.requests) == 2
    assert "tiny: no candidate could be judged, so there is no next round" in notes_of(events)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"text": "I would rather not."}, "no block of code in the answer defines ModelNew"),
        ({"text": "", "refusal": "I refuse."}, "the model refused"),
        ({"text": "```python\nclass ModelNew:", "finish_reason": "length"}, "the answer was cut off"),
    ],
)
def test_answer_without_code_is_fed_back_as_such(tmp_path, answer, reason):
    better = {"contains": f"cannot be judged: {reason}", "text": code()}
    evaluator = StubEvaluator()
    with serving(tmp_path, {**answer, "contains": "Write a Triton"}, better) as server:
        result = generation(server, tmp_path, evaluator=evaluator, rounds=2).run()
    assert (result.without_code, result.candidates, result.right) == (2, 2, 2)
    assert server.used["01.json"] == 2
    assert len(ledger_of(tmp_path)) == 4
    in_place = [one for one in evaluator.asked if one.source.endswith(" holds no code.\n")]
    found, refused = load_candidates("folder", tmp_path / "out" / "candidates", {"tiny": target(tmp_path).problem})
    without = [(one.language.value, one.origin.round, one.path.stem) for one in found if one.origin.no_code == reason]
    assert without == [("triton", 0, one.name) for one in sorted(in_place, key=lambda one: one.name)]
    assert (len(found), len(without), refused) == (4, 2, ())


@pytest.mark.parametrize("limit", ["usd", "tokens", "seconds"])
def test_budget_of_nothing_sends_nothing(tmp_path, limit):
    events = []
    with serving(tmp_path, FIRST) as server:
        budget = GenerationBudget(**{limit: 0})
        result = generation(server, tmp_path, budget=budget, price=PRICE, listener=events.append).run()
        assert server.requests == []
    assert (result.answers, result.without_answer) == (0, 2)
    assert len(notes_of(events)) == 1
    assert "is spent" in notes_of(events)[0]


def test_budget_counts_earlier_processes_and_stops_between(tmp_path):
    answer = {"text": code(), "usage": {"prompt_tokens": 60, "completion_tokens": 40}}
    with serving(tmp_path, answer) as server:
        limited = {"budget": GenerationBudget(tokens=250), "concurrency": 1, "samples": 5}
        assert generation(server, tmp_path, **limited).run().sent == 3
        assert generation(server, tmp_path, **limited).run().sent == 0
        assert generation(server, tmp_path, **{**limited, "budget": GenerationBudget(tokens=350)}).run().sent == 1


def test_budget_needs_counts_and_prices(tmp_path):
    with serving(tmp_path, {**FIRST, "usage": None}) as server:
        with pytest.raises(UsageError, match="does not say how many tokens"):
            generation(server, tmp_path, budget=GenerationBudget(tokens=1000)).run()
        with pytest.raises(UsageError, match="the price of tester is unknown"):
            generation(server, tmp_path, budget=GenerationBudget(usd=1.0))


def test_unknown_prices_and_counts_are_told_once(tmp_path):
    events = []
    with serving(tmp_path, {**FIRST, "seed": 0}, {**FIRST, "usage": None}) as server:
        result = generation(server, tmp_path, samples=4, listener=events.append).run()
    assert len([text for text in notes_of(events) if "the price of tester is unknown" in text]) == 1
    assert len([text for text in notes_of(events) if "does not say how many tokens" in text]) == 1
    assert result.usd is None
    assert {line["usd"] for line in ledger_of(tmp_path)} == {None}
    assert [line["tokens_prompt"] for line in ledger_of(tmp_path)].count(None) == 3


def test_request_that_fails_is_given_up_and_told(tmp_path):
    events = []
    with serving(tmp_path, {"seed": 0, "status": 500}, {"text": code()}) as server:
        result = generation(server, tmp_path, samples=3, listener=events.append).run()
        assert (result.answers, result.without_answer) == (2, 1)
        assert notes_of(events).count("HTTP 500 from 127.0.0.1") == 1
    with serving(tmp_path, {"text": code()}, {"text": code()}) as server:
        assert generation(server, tmp_path, samples=3).run().sent == 1


def test_endpoint_that_is_down_ends_the_generation(tmp_path):
    with serving(tmp_path, {"status": 503}) as server:
        with pytest.raises(InfrastructureError, match="the endpoint does not answer: HTTP 503"):
            generation(server, tmp_path, samples=50).run()
        assert len(server.requests) < 20
    assert ledger_of(tmp_path) == []


def test_refusal_by_the_endpoint_keeps_what_came_before(tmp_path):
    refused = {"status": 401, "response": {"error": "the key has expired"}}
    with serving(tmp_path, {**FIRST, "times": 3}, refused) as server, pytest.raises(UsageError, match="has expired"):
        generation(server, tmp_path, samples=20, concurrency=1).run()
    assert len(ledger_of(tmp_path)) == 3
    with serving(tmp_path, FIRST, FIRST) as server:
        assert generation(server, tmp_path, samples=20).run().sent == 17


def test_refusal_stops_sending_while_candidates_are_judged(tmp_path):
    class WaitingEvaluator(StubEvaluator):
        def evaluate(self, candidates):
            while run._inbox.qsize() < 19:  # every other request has its outcome
                time.sleep(0.01)
            return super().evaluate(candidates)

    goals = [target(tmp_path, f"p{number}") for number in range(20)]
    refused = {"status": 401, "times": 1}
    with serving(tmp_path, {**FIRST, "times": 1}, refused, FIRST) as server:
        once = {"samples": 1, "concurrency": 1}
        run = generation(server, tmp_path, targets=goals, evaluator=WaitingEvaluator(), **once)
        with pytest.raises(UsageError, match="HTTP 401"):
            run.run()
    assert len(server.requests) == 2


def test_interrupt_stores_answers_that_are_on_their_way(tmp_path):
    class Interrupted(BaseException):
        pass

    def interrupt(event):
        if isinstance(event, CandidateJudged):
            raise Interrupted

    goals = [target(tmp_path, name) for name in ("tiny", "other", "third")]
    with serving(tmp_path, {"text": code(), "times": 1}, {"text": code(), "delay_s": 0.3}) as server:
        run = generation(server, tmp_path, targets=goals, samples=1, concurrency=3, listener=interrupt)
        with pytest.raises(Interrupted):
            run.run()
        assert len(ledger_of(tmp_path)) == len(server.requests)
        result = generation(server, tmp_path, targets=goals, samples=1).run()
        assert (result.answers, len(server.requests)) == (3, 3)


def test_strategy_that_wants_no_more_ends_the_problem(tmp_path, monkeypatch):
    monkeypatch.setitem(STRATEGIES.built_in, "enough", lambda _attempts, _samples: [])
    with serving(tmp_path, FIRST) as server:
        assert generation(server, tmp_path, strategy="enough", rounds=3).run().answers == 2


def test_strategy_sees_usable_attempts_in_their_order(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setitem(
        STRATEGIES.built_in, "seeing", lambda attempts, samples: seen.append(attempts) or [None] * samples
    )
    with serving(tmp_path, {"seed": 0, "text": code(), "delay_s": 0.2}, {"text": code()}) as server:
        generation(server, tmp_path, strategy="seeing", rounds=3).run()
    assert [[(one.round, one.sample) for one in attempts] for attempts in seen] == [
        [(0, 0), (0, 1)],
        [(0, 0), (0, 1), (1, 0), (1, 1)],
    ]


def test_retries_are_told_once_for_each_cause(tmp_path):
    events = []
    with serving(tmp_path, {"status": 429, "times": 4}, {"text": code()}) as server:
        run = generation(server, tmp_path, samples=8, listener=events.append, endpoint={"retries": 9})
        assert run.run().answers == 8
    assert [text for text in notes_of(events) if "429" in text] == [
        "HTTP 429 from 127.0.0.1; such requests are sent again"
    ]
    assert sum(line["retries"] for line in ledger_of(tmp_path)) == 4


def test_copy_in_the_layout_of_kernelbench(tmp_path):
    goals = [target(tmp_path, "level1/7_add"), target(tmp_path, "tiny")]
    with serving(tmp_path, {"text": code()}) as server:
        generation(server, tmp_path, targets=goals, runs=tmp_path / "runs" / "mine").run()
    known = {"level1/7_add": goals[0].problem}
    found, refused = load_candidates("kernelbench", tmp_path / "runs" / "mine", known)
    assert [one.origin.sample for one in found] == [0, 1]
    assert refused == ()
    assert len(list((tmp_path / "out" / "candidates" / "level1" / "7_add").glob("*.py"))) == 2


def test_key_is_nowhere_in_the_folder(tmp_path):
    key = "sk-very-secret"
    with serving(tmp_path, {"text": code(f"return '{key}'")}) as server:
        events = []
        generation(server, tmp_path, endpoint={"api_key": key}, listener=events.append).run()
        assert server.authorizations == [f"Bearer {key}"] * 2
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(files) == 9
    assert [path for path in files if key.encode() in path.read_bytes()] == []
    assert key not in repr(events)


@pytest.mark.parametrize(
    "settings", [{"samples": 0}, {"samples": 1001}, {"fields": {"n": 2}}, {"fields": {"model": "x"}}]
)
def test_settings_that_cannot_be_are_refused(tmp_path, settings):
    with serving(tmp_path, FIRST) as server, pytest.raises(UsageError, match=r"--samples|--field"):
        generation(server, tmp_path, **settings)
