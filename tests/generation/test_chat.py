"""Requests to a real server that behaves badly in every way that endpoints do."""

from __future__ import annotations

import socket
import threading
import time
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.generation.chat import ChatClient, ChatEndpoint, RequestGivenUpError
from tests.generation.recording import serving

KEY = "sk-very-secret"
BODY = {"model": "tester", "messages": [{"role": "user", "content": "hello"}], "seed": 0}
GOOD = {"text": "yes"}


class Asked:
    """A client, the notes that it gave, and the way to stop it."""

    def __init__(self, url, **endpoint):
        self.notes, self.stopping = [], threading.Event()
        given = {"api_key": KEY, "first_wait_s": 0.01, "retries": 1, **endpoint}
        self.client = ChatClient(ChatEndpoint(base_url=url, **given), self.stopping, self.notes.append)

    def ask(self):
        try:
            return self.client.ask(BODY)
        finally:
            self.client.close()


def test_answer_is_read_and_timed(tmp_path):
    with serving(tmp_path, GOOD) as server:
        reply = Asked(server.url).ask()
    assert (reply.answer.text, reply.retries) == ("yes", 0)
    assert reply.answer.tokens.total == 2
    assert reply.latency_s > 0
    assert server.requests == [BODY]
    assert server.authorizations == [f"Bearer {KEY}"]


def test_no_key_sends_no_header(tmp_path):
    with serving(tmp_path, GOOD) as server:
        Asked(server.url, api_key="").ask()
    assert server.authorizations == [None]


@pytest.mark.parametrize(
    ("bad", "note"),
    [
        ({"status": 500}, "HTTP 500"),
        ({"status": 503, "raw": "<html>later</html>"}, "HTTP 503"),
        ({"status": 429}, "HTTP 429"),
        ({"raw": "<html>a login page</html>"}, "no answer of a chat endpoint: <html>a login page"),
        ({"raw": "{"}, "no answer of a chat endpoint"),
        ({"response": {"choices": []}}, "no answer of a chat endpoint"),
        ({"drop": True, "text": "a long answer"}, "the connection ended early"),
        ({"delay_s": 1.5}, "no answer within 0.5 s"),
    ],
    ids=["500", "html-503", "429", "html-200", "torn", "no-choice", "dropped", "slow"],
)
def test_passing_failure_is_retried(tmp_path, bad, note):
    with serving(tmp_path, {**bad, "times": 1}, GOOD) as server:
        asked = Asked(server.url, timeout_s=0.5)
        assert asked.ask().retries == 1
    assert len(asked.notes) == 1
    assert note in asked.notes[0]


def test_lasting_failure_is_given_up_after_the_retries(tmp_path):
    with serving(tmp_path, {"status": 500}) as server, pytest.raises(RequestGivenUpError, match="HTTP 500") as error:
        Asked(server.url, retries=2).ask()
    assert len(server.requests) == 3
    assert error.value.is_endpoint


def test_answer_that_trickles_is_cut_off(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle():
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                try:
                    while True:
                        connection.sendall(b" ")
                        time.sleep(0.02)
                except OSError:
                    pass

        thread = threading.Thread(target=trickle)
        thread.start()
        with pytest.raises(RequestGivenUpError, match=r"no answer within 0.3 s"):
            Asked(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.3, retries=0).ask()
        thread.join()


def test_retry_after_is_waited_for(tmp_path):
    with serving(tmp_path, {"status": 429, "headers": {"Retry-After": "1"}, "times": 1}, GOOD) as server:
        asked, start = Asked(server.url), time.monotonic()
        asked.ask()
    assert asked.notes == ["HTTP 429 from 127.0.0.1; such requests are sent again"]
    assert time.monotonic() - start >= 1


def test_retry_after_may_be_a_date(tmp_path):
    past = format_datetime(datetime.now(timezone.utc) - timedelta(hours=1), usegmt=True)
    far = format_datetime(datetime.now(timezone.utc) + timedelta(days=1), usegmt=True)
    with serving(tmp_path, {"status": 429, "headers": {"Retry-After": past}, "times": 1}, GOOD) as server:
        asked = Asked(server.url, first_wait_s=600.0)
        asked.ask()
    assert len(asked.notes) == 1
    answer = {"status": 429, "headers": {"Retry-After": far}}
    with serving(tmp_path, answer) as server, pytest.raises(RequestGivenUpError, match=r"asks for a wait of 8[56]"):
        Asked(server.url).ask()


def test_wait_ends_when_stopped(tmp_path):
    with serving(tmp_path, {"status": 429, "headers": {"Retry-After": "600"}}) as server:
        asked = Asked(server.url)
        asked.stopping.set()
        with pytest.raises(RequestGivenUpError, match="stopped"):
            asked.ask()


@pytest.mark.parametrize(
    ("status", "said", "hint"),
    [
        (401, "bad key", "set the environment variable OPENAI_API_KEY"),
        (403, "not allowed", "set the environment variable"),
        (400, "unknown model 'tester'", "check --model"),
        (404, "no such page", "check --model, --base-url"),
        (301, "moved", "check --model, --base-url"),
        (429, "insufficient_quota", "no credit left"),
        (402, "pay", "no credit left"),
    ],
)
def test_refusal_of_all_requests_is_raised_at_once(tmp_path, status, said, hint):
    answer = {"status": status, "response": {"error": {"message": said}}}
    with serving(tmp_path, answer) as server, pytest.raises(UsageError, match=f"HTTP {status}") as error:
        Asked(server.url).ask()
    assert said in error.value.what
    assert hint in error.value.next_step
    assert len(server.requests) == 1


def test_request_that_is_too_long_is_given_up_alone(tmp_path):
    answer = {"status": 400, "response": {"error": {"code": "context_length_exceeded"}}}
    with serving(tmp_path, answer) as server, pytest.raises(RequestGivenUpError) as error:
        Asked(server.url).ask()
    assert not error.value.is_endpoint


def test_endpoint_that_is_down_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(RequestGivenUpError, match=r"127.0.0.1 cannot be reached"):
        Asked(url).ask()


def test_key_is_not_repeated_with_what_the_endpoint_says(tmp_path):
    refusal = {"status": 401, "response": {"error": f"{KEY} is no key"}}
    with serving(tmp_path, refusal) as server, pytest.raises(UsageError, match=r"\[key\] is no key") as error:
        Asked(server.url).ask()
    assert KEY not in f"{error.value!r} {error.value}"
    with serving(tmp_path, {"text": f"your key is {KEY}"}) as server:
        assert KEY not in Asked(server.url).ask().response
    assert KEY not in repr(ChatEndpoint(base_url=server.url, api_key=KEY))


@pytest.mark.parametrize("url", ["", "host/v1", "ftp://host", "https://user:pass@host/v1", "https://host/v1?key=a"])
def test_address_that_cannot_be_used_is_refused(url):
    with pytest.raises(UsageError, match="--base-url"):
        ChatEndpoint(base_url=url)


@pytest.mark.parametrize("key", ["two\nlines", "clé"])
def test_key_that_cannot_be_sent_is_refused_unseen(key):
    with pytest.raises(UsageError, match="OPENAI_API_KEY holds no key") as error:
        ChatEndpoint(base_url="http://host", api_key=key)
    assert key not in str(error.value)
