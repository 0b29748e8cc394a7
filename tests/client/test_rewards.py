"""Rewards: mappings of results, masks, and the function that has a batch judged."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kernel_matrix.client.http_clients import Client
from kernel_matrix.client.rewards import (
    binary,
    fast_p,
    last_code_block,
    log_speedup,
    masked,
    reward_function,
    speedup_bound,
    staged,
)
from kernel_matrix.errors import ServiceRefusedError, UsageError
from kernel_matrix.model.enums import Fault, Stage, Status, fault_of
from kernel_matrix.model.evaluation import EvaluationResult
from tests.client.faulty_front import fronting


def result(status, *workloads, stage="done"):
    named = {str(number): columns for number, columns in enumerate(workloads)}
    return EvaluationResult(status.value, fault_of(status).value, stage, workloads=named)


def timed(speedup, limit=100.0, **more):
    return {"speedup": speedup, "speedup_limit": limit, **more}


WRONG = result(Status.INCORRECT_VALUES, stage="verify")
BROKEN = result(Status.COMPILE_ERROR, stage="build")
ALL = [binary, fast_p(1.0), log_speedup(), staged()]


@pytest.mark.parametrize("mapping", ALL)
def test_mapping_of_what_says_nothing_is_none(mapping):
    assert mapping(None) is None
    blameless = [status for status in Status if fault_of(status) not in (Fault.NONE, Fault.CANDIDATE)]
    assert len(blameless) > 10
    assert {mapping(result(status, timed(2.0))) for status in blameless} == {None}


@pytest.mark.parametrize("mapping", ALL)
def test_mapping_of_a_wrong_candidate_is_its_least(mapping):
    wrong = [status for status in Status if fault_of(status) is Fault.CANDIDATE]
    least = mapping(BROKEN)
    for status in wrong:
        given = mapping(result(status, timed(9.0), stage="build"))
        assert given == least < mapping(result(Status.PASSED, timed(9.0, verdict="faster")))


def test_binary_is_whether_it_is_right():
    assert (binary(result(Status.PASSED)), binary(WRONG)) == (1.0, 0.0)
    assert binary(result(Status.COMPILED)) is None


@pytest.mark.parametrize(
    ("workloads", "bound"),
    [
        ([timed(2.0)], 2.0),
        ([timed(2.0, limit=1.5)], 1.5),
        ([timed(2.0, verdict_low=1.8)], 1.8),
        ([timed(2.0, limit=1.5, verdict_low=1.8)], 1.5),
        ([{"speedup": 2.0}], None),
        ([{"speedup_limit": 2.0}], None),
        ([timed(2.0), timed(1.25)], 1.25),
        ([timed(2.0), {"speedup": 3.0}], None),
        ([], None),
    ],
    ids=range(9),
)
def test_bound_is_the_least_that_is_believed(workloads, bound):
    assert speedup_bound(result(Status.PASSED, *workloads)) == bound


def test_fast_p_needs_a_bound_above_p():
    of_right = {bound: fast_p(1.5)(result(Status.PASSED, timed(bound))) for bound in (1.4, 1.5, 1.6)}
    assert of_right == {1.4: 0.0, 1.5: 0.0, 1.6: 1.0}
    assert fast_p(0.0)(result(Status.PASSED)) == 0.0
    assert fast_p(0.0)(result(Status.NONDETERMINISTIC, timed(9.0))) == 0.0


def test_log_speedup_is_clamped_and_lower_when_wrong():
    mapping = log_speedup(least=0.5, most=4.0)
    given = [mapping(result(Status.PASSED, timed(bound))) for bound in (0.0, 0.1, 1.0, 2.0, 64.0)]
    assert given == [-1.0, -1.0, 0.0, 1.0, 2.0]
    assert (mapping(result(Status.PASSED)), mapping(WRONG)) == (-1.0, -2.0)
    for least, most in ((0.0, 1.0), (2.0, 1.0)):
        with pytest.raises(UsageError, match="0 < least < most"):
            log_speedup(least=least, most=most)


def test_staged_adds_up_what_was_achieved():
    mapping = staged(compiled=1, right=10, faster=100)
    faster, equal = timed(2.0, verdict="faster"), timed(1.0, verdict="equivalent")
    assert mapping(BROKEN) == mapping(result(Status.LOAD_ERROR, stage="load")) == 0
    assert mapping(WRONG) == mapping(result(Status.COMPILED, stage="build")) == 1
    assert mapping(result(Status.PASSED, faster, equal)) == mapping(result(Status.PASSED)) == 11
    assert mapping(result(Status.PASSED, faster, faster)) == 111
    for cheated in (Status.TIMING_MISMATCH, Status.PROTOCOL_VIOLATION, Status.POLICY_VIOLATION):
        assert mapping(result(cheated, faster, stage=Stage.TIME.value)) == 0


def test_masked_rewards_move_no_mean():
    assert masked([1.0, None, 0.0]) == ([1.0, 0.5, 0.0], [True, False, True])
    assert masked([None]) == ([0.0], [False])
    assert masked([]) == ([], [])


def test_source_is_the_last_block_of_a_completion():
    assert last_code_block("plain") == "plain"
    assert last_code_block("x\n```python\na = 1\n```\ny\n```\nb\n```\nz") == "b\n"
    assert last_code_block("```python\nnot closed") == "```python\nnot closed"


def test_rewards_need_no_httpx():
    program = "import kernel_matrix.client.rewards, sys; sys.exit('httpx' in sys.modules or 'polars' in sys.modules)"
    subprocess.run((sys.executable, "-c", program), check=True)


@pytest.fixture
def client(service):
    with Client(service) as made:
        yield made


def test_reward_function_judges_a_batch(client, answers):
    answers["bad"] = {"status": "incorrect_values", "fault": "candidate"}
    answers["lost"] = {"status": "infra_error", "fault": "infra"}
    rewards = reward_function(client, mapping=binary, problem="softmax")
    chat = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "```python\ngood\n```"}]
    completions = ["bad", chat, "", "lost", "x" * (2 << 20), "half \ud800", "bad", " \n"]
    assert rewards(completions, prompts=["?"] * 8) == [0.0, 1.0, 0.0, None, 0.0, 0.0, 0.0, 0.0]
    assert (rewards([""]), rewards([])) == ([0.0], [])
    assert rewards.__name__ == "kernel_matrix"


def test_reward_of_what_has_not_ended_is_none(client):
    assert reward_function(client, mapping=binary, wait_s=0, problem="softmax")(["a", ""]) == [None, 0.0]


def test_reward_function_for_an_unknown_problem_raises(client):
    with pytest.raises(ServiceRefusedError, match="no problem 'unknown'"):
        reward_function(client, mapping=binary, problem="unknown")(["a", "b"])


def test_reward_function_of_a_stranger_asks_once(service):
    with fronting(service) as front, Client(front.address, token="eve") as client:
        with pytest.raises(ServiceRefusedError, match="no valid token"):
            reward_function(client, mapping=binary, problem="softmax")(["a", "b"])
        assert len(front.requests) == 1
