"""The client, against the real HTTP interface of a service."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import threading
from types import SimpleNamespace

import pytest

from kernel_matrix.api.serve import ServiceOptions, serving
from kernel_matrix.client import http_clients
from kernel_matrix.client.http_clients import AsyncClient, Client
from kernel_matrix.client.rewards import speedup_bound
from kernel_matrix.errors import InfrastructureError, ServiceError, ServiceRefusedError, UsageError
from kernel_matrix.service.clients import RequestLimit, Tokens
from kernel_matrix.service.evaluation_queue import EvaluationQueue
from kernel_matrix.service.http_app import Service
from tests.baddays.field import new_field
from tests.client.faulty_front import DROP_AFTER, DROP_BEFORE, answered, fronting
from tests.service.test_http_app import PlayedJudge, answer_all, listening


@pytest.fixture
def client(service):
    with Client(service) as made:
        yield made


def wanted(source, **more):
    return {"problem": "softmax", "source": source, **more}


def test_evaluate_returns_what_became_of_a_candidate(client, answers):
    answers["bad"] = {"status": "incorrect_values", "fault": "candidate", "stage": "verify", "later": "field"}
    good = client.evaluate(problem="softmax", source="good")
    assert (good.state, good.result.status, good.has_ended) == ("ended", "passed", True)
    bad = client.evaluate(problem="softmax", source="bad", priority=3, dtype=None)
    assert (bad.result.is_score, bad.result.is_right, bad.result.stage) == (True, False, "verify")


def test_wait_returns_after_its_time_what_there_is(client, queue):
    first = client.submit(**wanted("a"))
    answer_all(queue, status="passed", fault="none")
    second = client.submit(**wanted("b"))
    ended, waiting = client.wait([first.id, second.id], timeout_s=0)
    assert (ended.state, ended.result.status) == ("ended", "passed")
    assert (waiting.state, waiting.result, waiting.has_ended) == ("queued", None, False)
    assert client.evaluate(wait_s=0.1, **wanted("b")).state == "queued"


def test_many_are_submitted_in_batches_and_in_order(service, answers):
    with fronting(service) as front, Client(front.address) as client:
        submitted = client.submit_many(wanted(str(number)) for number in range(1205))
        assert [len(json.loads(body)["evaluations"]) for _, _, body in front.requests] == [1000, 205]
        ids = [one.id for one in submitted]
        ended = client.wait([*ids[::-1], ids[0]])
        assert [one.id for one in ended] == [*ids[::-1], ids[0]]
        assert {one.result.status for one in ended} == {"passed"}
        assert [one.id for one in client.list()] == ids
        assert [one.id for one in client.list(after=submitted[1199].number)] == ids[1200:]
    assert len({one.key for one in submitted}) == 1205


def test_batches_are_split_by_size_too(service):
    with fronting(service) as front, Client(front.address) as client:
        large = "x" * (1 << 20)
        assert len(client.submit_many(wanted(f"{number}{large[8:]}") for number in range(33))) == 33
        assert len(front.requests) == 2
        assert client.submit_many([]) == client.wait([]) == []


def test_evaluation_is_cancelled(client):
    one = client.submit(**wanted("a"))
    assert client.cancel(one.id).state == client.get(one.id).state == "cancelled"
    assert client.wait([one.id])[0].result is None


def test_service_is_described(client):
    assert client.problems() == [{"id": "softmax"}]
    assert client.workers()[0]["gpu"] == "cpu"
    assert client.health()["status"] == "ok"


def test_refusal_says_what_the_service_said(client, service):
    with pytest.raises(ServiceRefusedError, match=r"no problem 'unknown'\n.*GET /problems") as refused:
        client.submit(problem="unknown", source="a")
    assert refused.value.status == 422
    with pytest.raises(ServiceRefusedError, match="there is no such evaluation"):
        client.get("ev-1")
    with pytest.raises(ServiceRefusedError, match="Not Found"):
        client.get("../problems")
    with pytest.raises(ServiceRefusedError, match="has no evaluation 'ev-1' of this client"):
        client.wait(["ev-1"])
    with (
        Client(service, token="eve") as stranger,
        pytest.raises(ServiceRefusedError, match="no valid token") as refused,
    ):
        stranger.problems()
    assert refused.value.status == 401
    with Client(service, token="bob") as bob:
        assert list(bob.list()) == []


def test_token_is_never_shown(service):
    with pytest.raises(UsageError) as unusable:
        Client(service, token="se\ncret")
    with pytest.raises(UsageError) as in_address:
        Client("http://ann:secret@127.0.0.1")
    with Client(service, token="secret") as client, pytest.raises(ServiceRefusedError) as refused:
        client.problems()
    for shown in (repr(client), *map(str, (unusable.value, in_address.value, refused.value))):
        assert "cret" not in shown
    assert repr(client) == f"Client('{service}')"


@pytest.mark.parametrize("address", ["", "127.0.0.1:8000", "ftp://host", "http://", "http://host:port", "http://\n"])
def test_address_that_is_none_is_refused(address):
    with pytest.raises(UsageError, match="write it like http://"):
        Client(address)


def test_client_without_httpx_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(InfrastructureError, match=r"httpx is not installed\n.*kernel-matrix\[client\]"):
        Client()


def test_service_that_is_down_is_told_after_the_limit():
    with socket.create_server(("127.0.0.1", 0)) as unused:
        address = f"http://127.0.0.1:{unused.getsockname()[1]}"
    with Client(address, retry_for_s=0.3) as client, pytest.raises(ServiceError, match=r"cannot be reached: .*refused"):
        client.health()


@pytest.fixture
def pauses(monkeypatch):
    """The pauses that a client makes, which take no time."""
    made = []
    monkeypatch.setattr(http_clients, "time", SimpleNamespace(sleep=made.append))
    return made


def test_refusal_for_now_is_repeated_after_its_pause(service, pauses):
    busy = answered({"error": {"what": "too many requests", "next_step": "wait"}}, 429, Retry_After="7")
    full = answered({"error": {"what": "no room", "next_step": ""}}, 503)
    with fronting(service) as front, Client(front.address, token="ann") as client:
        front.faults = [busy, full, (502, {"Retry-After": "Fri, 01 Jan 2027 00:00:00 GMT"}, b"<html>"), DROP_BEFORE]
        assert client.health()["status"] == "ok"
        assert pauses == [7.0, 0.5, 1.0, 2.0]
        front.faults = [answered({"error": {"what": "too many requests", "next_step": "wait"}}, 429, Retry_After="999")]
        with pytest.raises(ServiceError, match="too many requests"):
            client.health()


def test_limit_of_a_real_service_is_kept(queue):
    parts = Service(queue=queue, evaluator=PlayedJudge(), tokens=Tokens(), limit=RequestLimit(20, 1))
    with listening(parts) as address, Client(address) as client:
        assert [client.problems() for _ in range(2)] == [[{"id": "softmax"}]] * 2


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"", b"[]", b"[" * 100_000, b'{"evaluations": [{}]}', b'{"evaluations": []}', b"\xff"],
    ids=range(7),
)
def test_answer_of_another_form_is_an_error(body):
    with fronting() as front, Client(front.address) as client:
        front.faults = [(202, {}, body)]
        with pytest.raises(
            ServiceError, match=r"POST /evaluations/batch cannot be read: .*\n.*address of a kernel-matrix"
        ):
            client.submit(**wanted("a"))


@pytest.mark.parametrize("status", [302, 404, 500])
def test_other_status_without_words_is_an_error(status):
    with fronting() as front, Client(front.address) as client:
        front.faults = [(status, {"Location": "http://127.0.0.1:1/"}, b"<html>")]
        with pytest.raises((ServiceError, ServiceRefusedError), match=f"answered GET /health with status {status}"):
            client.health()


def test_lost_answer_makes_no_second_evaluation(service, pauses):
    with fronting(service) as front, Client(front.address, token="ann") as client:
        front.faults = [DROP_AFTER]
        submitted = client.submit_many([wanted("a"), wanted("b", key="own")])
        assert [path for _, path, _ in front.requests] == ["/evaluations/batch"] * 2
        assert list(client.list()) == submitted
    assert submitted[1].key == "own"
    assert pauses == [0.25]


def test_service_that_comes_back_is_waited_for(tmp_path, monkeypatch):
    """The service ends during a wait; in the client's next pause another one goes on with its queue."""
    path, at = tmp_path / "queue.sqlite", {}

    def served(queue, port=0):
        parts = Service(queue=queue, evaluator=PlayedJudge(), tokens=Tokens(), limit=RequestLimit(1000, 1000))
        return listening(parts, port)

    def restart(_pause_s):
        if "next" not in at:
            at["queue"] = EvaluationQueue(path)
            at["next"] = served(at["queue"], at["port"])
            at["next"].__enter__()
            answer_all(at["queue"], status="passed", fault="none")

    queue = EvaluationQueue(path)
    with served(queue) as address:
        client = Client(address)
        one = client.submit(**wanted("a"))
    queue.close()
    at["port"] = int(address.rpartition(":")[2])
    monkeypatch.setattr(http_clients, "time", SimpleNamespace(sleep=restart))
    with client:
        assert client.wait([one.id])[0].result.status == "passed"
    at["next"].__exit__(None, None, None)
    at["queue"].close()


def test_async_client_does_the_same(service, answers):
    async def use():
        with fronting(service) as front:
            async with AsyncClient(front.address) as client:
                front.faults = [DROP_AFTER]
                one = await client.evaluate(**wanted("a"))
                more = await asyncio.gather(*(client.evaluate(**wanted(str(number))) for number in range(5)))
                cancelled = await client.cancel((await client.submit(**wanted("a"))).id)
                assert [found.id async for found in client.list()][:1] == [one.id]
                assert await client.get(one.id) == one
                assert (await client.problems(), (await client.workers())[0]["gpu"]) == ([{"id": "softmax"}], "cpu")
                assert (await client.health())["status"] == "ok"
                assert repr(client) == f"AsyncClient('{front.address}')"
                return [one, *more, cancelled]

    assert {found.result.status for found in asyncio.run(use())} == {"passed"}


def test_async_client_tells_that_a_service_is_down():
    async def use():
        async with AsyncClient("http://127.0.0.1:1", retry_for_s=0) as client:
            await client.health()

    with pytest.raises(ServiceError, match="cannot be reached"):
        asyncio.run(use())


@pytest.mark.torch
def test_killed_service_goes_on_for_a_client_that_waits(tmp_path):
    with new_field(tmp_path) as field:
        source = (field.candidates / "honest.py").read_text()
        with field.start("serve", "--sandbox", "process", "--port", "0") as service:
            address = service.stdout.readline().split()[1].rstrip(";")
            client = Client(address)
            one = client.submit(problem="tiny", source=source)
            service.send_signal(signal.SIGKILL)
        found = []
        waiting = threading.Thread(target=lambda: found.extend(client.wait([one.id])))
        waiting.start()
        options = ServiceOptions(matrix=field.root / "matrix.toml", folder=field.results, sandbox="process")
        with client, serving(options, port=int(address.rpartition(":")[2])):
            waiting.join()
            assert found[0].result.status == "passed"
            assert speedup_bound(found[0].result) > 0
