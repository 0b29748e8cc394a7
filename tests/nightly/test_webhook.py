"""The text of a night, posted to a server of this machine; and servers that are slow, gone or send elsewhere."""

from __future__ import annotations

import json
import socket

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.nightly.webhook import check_webhooks, post, webhook_host, without_webhooks
from tests.nightly.chat import SECRET, Chat, served


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")


def test_it_gets_the_text_as_slack_wants_it():
    with served(Chat()) as chat:
        assert not post([chat.url], "größer: a < b & c\nreport: x")
    ((path, kind, body),) = chat.asked
    assert (path, kind) == (f"/services/{SECRET}", "application/json")
    assert json.loads(body) == {"text": "größer: a &lt; b &amp; c\nreport: x"}


def test_names_of_candidates_mention_nobody():
    with served(Chat()) as chat:
        post([chat.url], "broke: <!channel> <http://evil|docs> @all p/@reference")
    said = json.loads(chat.asked[0][2])["text"]
    assert "<" not in said
    assert "@all" not in said
    assert said.replace("\u200b", "").endswith("@all p/@reference")


def test_each_is_told_though_one_fails():
    with served(Chat(status=404)) as gone, served(Chat()) as chat:
        failure = post([gone.url, chat.url], "text")
    assert failure == "the webhook http://127.0.0.1/… answers 404 Not Found"
    assert len(chat.asked) == 1


def test_no_redirect_is_followed():
    with served(Chat()) as other, served(Chat(status=307, location=other.url)) as chat:
        failure = post([chat.url], "text")
    assert "answers 307 Temporary Redirect: redirects are not followed" in failure
    assert other.asked == []
    assert SECRET not in failure


def test_a_server_that_is_gone_is_a_sentence():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    failure = post([f"http://127.0.0.1:{port}/{SECRET}"], "text")
    assert failure == "the webhook http://127.0.0.1/… cannot be reached"


def test_a_server_that_never_ends_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes the connection, and answers nothing
        failure = post([f"http://127.0.0.1:{silent.getsockname()[1]}/{SECRET}"], "text", limit_s=0.2)
    assert "took longer than 0 s" in failure
    assert SECRET not in failure


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("", "is not a URL"),
        (f"hooks.example.org/{SECRET}", "is not a URL"),
        (f"ftp://hooks.example.org/{SECRET}", "is not a URL"),
        (f"https://hooks.example.org:x/{SECRET}", "is not a URL"),
        (f"https://hooks.example.org/{SECRET}\n", "is not a URL"),
        (f"https://[hooks/{SECRET}", "is not a URL"),
        (f"http://hooks.example.org/{SECRET}", "http://hooks.example.org/… would be sent in the clear"),
        (f"http://localhost.example.org/{SECRET}", "would be sent in the clear"),
        (f"http://127.0.0.1.example.org/{SECRET}", "would be sent in the clear"),
    ],
)
def test_what_cannot_be_posted_to_is_refused(url, words):
    with pytest.raises(UsageError, match=words) as refused:
        check_webhooks([url])
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "host", ["https://hooks.example.org", "http://localhost:80", "http://127.1.2.3", "http://[::1]:8"]
)
def test_this_machine_may_be_told_in_the_clear(host):
    check_webhooks([f"{host}/{SECRET}"])


def test_no_more_than_the_host_is_shown():
    url = f"https://me:word@hooks.example.org/{SECRET}?key={SECRET}"
    assert webhook_host(url) == "https://hooks.example.org/…"
    words = ("kernel-matrix", "nightly", "--webhook", url, f"--webhook={url}", "--keep", "3")
    assert without_webhooks(words, [url]) == (
        "kernel-matrix", "nightly", "--webhook", "https://hooks.example.org/…",
        "--webhook=https://hooks.example.org/…", "--keep", "3",
    )  # fmt: skip
