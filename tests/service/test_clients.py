"""Who may use a service, and how often."""

from __future__ import annotations

import hashlib

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.service.clients import ANYBODY, RequestLimit, Tokens, TooManyRequestsError, UnknownClientError

ANN, BOB = (hashlib.sha256(token.encode()).hexdigest() for token in ("s3cr3t", "t0k3n"))


@pytest.fixture
def tokens(tmp_path):
    (tmp_path / "tokens").write_text(f"# the laboratory's\nann {ANN}\n\nbob {BOB.upper()}\n")
    return Tokens.read(tmp_path / "tokens")


@pytest.mark.parametrize(
    ("header", "client"), [("Bearer s3cr3t", "ann"), ("bearer t0k3n", "bob"), ("BEARER  s3cr3t ", "ann")]
)
def test_token_names_its_client(tokens, header, client):
    assert tokens.client_of(header) == client


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", "Bearer ", "Basic s3cr3t", "s3cr3t", f"Bearer {ANN}", "Bearer ✂"]
)
def test_request_of_nobody_is_refused(tokens, header):
    with pytest.raises(UnknownClientError, match="no valid token"):
        tokens.client_of(header)


def test_everybody_is_one_client_without_tokens():
    assert Tokens().client_of(None) == Tokens().client_of("Bearer x") == ANYBODY


@pytest.mark.parametrize(
    "text", ["ann", f"ann {ANN} more", "ann s3cr3t", f"ann {ANN[:-1]}g", f"ann {ANN}\nann {BOB}"], ids=range(5)
)
def test_file_with_other_lines_is_refused(tmp_path, text):
    (tmp_path / "tokens").write_text(f"{text}\n")
    with pytest.raises(UsageError, match=r"tokens:[12]: not a client that is new and the digest of its token"):
        Tokens.read(tmp_path / "tokens")


def test_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        Tokens.read(tmp_path / "absent")


def test_client_may_send_a_burst_and_then_its_rate():
    now = [100.0]
    limit = RequestLimit(2.0, 3, lambda: now[0])
    for _ in range(3):
        limit.take("ann")
    limit.take("bob")  # each client has a limit of its own
    with pytest.raises(TooManyRequestsError) as refused:
        limit.take("ann")
    assert refused.value.retry_after_s == pytest.approx(0.5)
    now[0] += 0.5
    limit.take("ann")
    now[0] += 60
    for _ in range(3):
        limit.take("ann")
    with pytest.raises(TooManyRequestsError):
        limit.take("ann")
