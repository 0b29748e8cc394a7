"""The HTTP interface of a service, asked over a real connection; what judges is played."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
from contextlib import contextmanager
from dataclasses import fields

import pytest
import requests
import uvicorn

from kernel_matrix.errors import StoreError, UsageError
from kernel_matrix.service.clients import RequestLimit, Tokens
from kernel_matrix.service.evaluation_queue import EvaluationQueue, NewEvaluation
from kernel_matrix.service.http_app import MOST_BODY, MOST_IN_BATCH, CandidateOrigin, Service, make_app
from kernel_matrix.sources import Origin

TOKENS = Tokens({name: hashlib.sha256(name.encode()).hexdigest() for name in ("ann", "bob")})


class PlayedJudge:
    """Takes any source; two have a meaning."""

    def prepare(self, request):
        if request.problem == "unknown":
            raise UsageError("there is no problem 'unknown'", next_step="GET /problems lists them")
        if request.source == "no room":
            raise StoreError("the source cannot be kept: No space left on device")
        return NewEvaluation(
            digest=request.source, place="cpu", kind="k", request="{}", priority=request.priority, key=request.key
        )

    def problems(self):
        return [{"id": "softmax"}]

    def counts(self):
        return {"passed": 2}

    def workers(self):
        return [{"gpu": "cpu", "devices": ["AMD EPYC"], "running": 0}]


@contextmanager
def listening(service, port=0):
    """Serve, on a free port unless one is named; yields the address."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        server = uvicorn.Server(uvicorn.Config(make_app(service), log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def queue(tmp_path):
    made = EvaluationQueue(tmp_path / "queue.sqlite", most_each=5)
    yield made
    made.close()


@pytest.fixture
def ask(queue):
    """``ask("GET", "/problems")``: sends a request as ann, or as ``token``."""
    service = Service(queue=queue, evaluator=PlayedJudge(), tokens=TOKENS, limit=RequestLimit(1000, 1000))
    with listening(service) as address, requests.Session() as session:

        def send(method, path, document=None, *, token="ann", headers=None, **more):
            headers = {"Authorization": f"Bearer {token}", **(headers or {})} if token else {}
            return session.request(method, address + path, json=document, headers=headers, timeout=30, **more)

        yield send


def wanted(source="a", **changes):
    return {"problem": "softmax", "source": source, **changes}


def answer_all(queue, **answer):
    """Judge what waits."""
    for work in queue.claim("cpu", 99):
        queue.finish(work.digest, json.dumps(answer))


def test_candidate_is_accepted_and_answered(ask, queue):
    accepted = ask("POST", "/evaluations", wanted())
    assert accepted.status_code == 202
    id_ = accepted.json()["id"]
    assert (accepted.json()["state"], accepted.json()["result"]) == ("queued", None)
    answer_all(queue, status="passed")
    found = ask("GET", f"/evaluations/{id_}")
    assert (found.status_code, found.json()["state"], found.json()["result"]) == (200, "ended", {"status": "passed"})
    assert ask("POST", "/evaluations", wanted()).json()["state"] == "ended"


def test_batch_is_accepted_whole_or_not_at_all(ask, queue):
    batch = {"evaluations": [wanted(str(number)) for number in range(6)]}
    refused = ask("POST", "/evaluations/batch", batch)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "10")
    assert refused.json()["error"]["what"] == "0 evaluations of this client have not ended, and 5 are allowed"
    batch["evaluations"][2]["problem"] = "unknown"
    assert ask("POST", "/evaluations/batch", batch).status_code == 422
    assert ask("GET", "/evaluations").json() == {"evaluations": []}
    batch["evaluations"] = batch["evaluations"][3:]
    accepted = ask("POST", "/evaluations/batch", batch)
    assert [one["state"] for one in accepted.json()["evaluations"]] == ["queued"] * 3


def test_evaluations_are_listed_by_cursor_and_by_id(ask):
    made = [ask("POST", "/evaluations", wanted(str(number))).json() for number in range(5)]
    first = ask("GET", "/evaluations?limit=3").json()["evaluations"]
    rest = ask("GET", f"/evaluations?after={first[-1]['number']}").json()["evaluations"]
    assert first + rest == made
    named = ask("GET", f"/evaluations?id={made[4]['id']}&id={made[1]['id']}").json()["evaluations"]
    assert named == [made[1], made[4]]


def test_key_names_one_evaluation(ask):
    first = ask("POST", "/evaluations", wanted(key="k")).json()
    assert ask("POST", "/evaluations", wanted(key="k")).json() == first
    refused = ask("POST", "/evaluations", wanted("b", key="k"))
    assert refused.status_code == 409
    assert "which is of something else" in refused.json()["error"]["what"]


def test_events_tell_each_state_until_the_end(ask, queue):
    id_ = ask("POST", "/evaluations", wanted()).json()["id"]
    with ask("GET", f"/evaluations/{id_}/events", stream=True) as stream:
        assert stream.headers["Content-Type"].startswith("text/event-stream")
        lines = (line for line in stream.iter_lines(decode_unicode=True) if line)
        assert next(lines) == "event: queued"
        assert json.loads(next(lines).removeprefix("data: "))["id"] == id_
        answer_all(queue, status="passed")
        last = list(lines)[-2:]
    assert last[0] == "event: ended"
    assert json.loads(last[1].removeprefix("data: "))["result"] == {"status": "passed"}


def test_evaluation_is_cancelled_before_it_begins(ask, queue):
    first, second = (ask("POST", "/evaluations", wanted(source)).json()["id"] for source in "ab")
    assert ask("POST", f"/evaluations/{first}/cancel").json()["state"] == "cancelled"
    queue.claim("cpu", 1)
    assert ask("POST", f"/evaluations/{second}/cancel").json()["state"] == "running"
    with ask("GET", f"/evaluations/{first}/events", stream=True) as stream:
        assert "event: cancelled" in stream.text


def test_forgotten_evaluation_is_not_there(ask, queue):
    id_ = ask("POST", "/evaluations", wanted()).json()["id"]
    answer_all(queue, status="passed")
    queue.forget("9999", 1)
    for path in ("", "/events"):
        assert ask("GET", f"/evaluations/{id_}{path}").status_code == 404
    assert ask("GET", "/evaluations").json() == {"evaluations": []}


def test_other_clients_evaluations_are_not_there(ask):
    id_ = ask("POST", "/evaluations", wanted()).json()["id"]
    for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel")):
        refused = ask(method, f"/evaluations/{id_}{path}", token="bob")
        assert refused.status_code == 404
        assert refused.json() == {"error": {"what": "there is no such evaluation", "next_step": ""}}
    assert ask("GET", "/evaluations", token="bob").json() == {"evaluations": []}


@pytest.mark.parametrize("path", ["/evaluations", "/evaluations/ev-1", "/problems", "/workers"])
def test_request_of_nobody_is_refused(ask, path):
    for token in ("", "eve"):
        refused = ask("GET", path, token=token)
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert "Authorization: Bearer TOKEN" in refused.json()["error"]["next_step"]


def test_anybody_may_see_whether_it_lives(ask):
    assert ask("GET", "/health", token="").json()["status"] == "ok"
    ask("POST", "/evaluations", wanted())
    assert 'kernel_matrix_evaluations{state="queued"} 1\n' in ask("GET", "/metrics", token="").text


def test_what_can_be_judged_is_told(ask):
    assert ask("GET", "/problems").json() == [{"id": "softmax"}]
    assert ask("GET", "/workers").json() == [{"gpu": "cpu", "devices": ["AMD EPYC"], "running": 0}]
    assert ask("GET", "/openapi.json", token="").json()["paths"].keys() >= {"/evaluations", "/evaluations/batch"}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (None, "body: Field required"),
        ([], "body: Input should be a valid dictionary"),
        ({"problem": "softmax"}, "body.source: Field required"),
        (wanted(1), "body.source: Input should be a valid string"),
        (wanted(""), "body.source: String should have at least 1 character"),
        (wanted(colour="red"), "body.colour: Extra inputs are not permitted"),
        (wanted(priority=1000), "body.priority: Input should be less than or equal to 100"),
        (wanted(suffix=".sh"), "body.suffix: Input should be '.py', '.cu', '.cpp' or '.hip'"),
        (wanted(problem="unknown"), "there is no problem 'unknown'"),
        (wanted(origin={"colour": "red"}), "body.origin.colour: Extra inputs are not permitted"),
        (wanted(origin={"model": "m" * 301}), "body.origin.model: String should have at most 300 characters"),
        (
            wanted(origin={"no_code": "refused"}),
            "body: no_code is said of a source that is more than comments",
        ),
        (
            wanted(origin={"no_code": "cut"}, source="# x", suffix=".cu"),
            "body: no_code is said of a source that is more",
        ),
        (wanted(origin={"model": {"a": {}}}), "body.origin.model: Input should be a valid string"),
        (wanted(origin={"sample": 2**63}), "body.origin.sample: Input should be less than or equal to"),
        (wanted(origin={"cost_usd": -1}), "body.origin.cost_usd: Input should be greater than or equal to 0"),
        (wanted(origin={"prompt_sha256": "0"}), "body.origin.prompt_sha256: String should match pattern"),
    ],
    ids=range(17),
)
def test_request_that_is_not_in_form_is_refused(ask, document, said):
    refused = ask("POST", "/evaluations", document)
    assert refused.status_code == 422
    assert refused.json()["error"]["what"].startswith(said)


@pytest.mark.parametrize("text", ["NaN", "1e999"])
def test_origin_has_numbers_that_are_finite(ask, text):
    body = json.dumps(wanted(origin={"wall_s": 0.5})).replace("0.5", text)
    refused = ask("POST", "/evaluations", data=body, headers={"Content-Type": "application/json"})
    assert refused.status_code == 422
    assert "body.origin.wall_s: Input should be a finite number" in refused.json()["error"]["what"]


def test_origin_has_the_fields_of_a_candidates_metadata():
    assert list(CandidateOrigin.model_fields) == [one.name for one in fields(Origin)]


def test_batch_has_a_size(ask):
    refused = ask("POST", "/evaluations/batch", {"evaluations": [wanted()] * (MOST_IN_BATCH + 1)})
    assert refused.status_code == 422
    assert "at most 1000 items" in refused.json()["error"]["what"]


def test_body_has_a_size_said_or_not(ask):
    large = b"x" * (MOST_BODY + 1)
    for body in (large, iter([large[: 1 << 20]] * 65)):
        refused = ask("POST", "/evaluations", data=body)
        assert refused.status_code == 413
        assert refused.json()["error"]["what"] == "the body of a request may have 64 MiB"


def test_machine_without_room_is_not_the_clients_fault(ask):
    refused = ask("POST", "/evaluations", wanted("no room"))
    assert refused.status_code == 503
    assert "No space left" in refused.json()["error"]["what"]


@pytest.mark.parametrize("path", ["/", "/evaluations/ev-1/more", "/evaluations/%00"])
def test_what_is_not_there_is_told_as_json(ask, path):
    refused = ask("GET", path)
    assert refused.status_code == 404
    assert refused.json()["error"]["what"]


def test_rate_is_limited_for_each_client(queue):
    service = Service(queue=queue, evaluator=PlayedJudge(), tokens=TOKENS, limit=RequestLimit(0.01, 2))
    with listening(service) as address:
        headers = {"Authorization": "Bearer ann"}
        codes = [requests.get(f"{address}/problems", headers=headers, timeout=30) for _ in range(3)]
    assert [code.status_code for code in codes] == [200, 200, 429]
    assert 1 <= int(codes[2].headers["Retry-After"]) <= 100
