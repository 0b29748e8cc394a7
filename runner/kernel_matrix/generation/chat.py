"""Requests to chat endpoints in the form of OpenAI, with retries that a provider's limits ask for."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from kernel_matrix.errors import InfrastructureError, UsageError
from kernel_matrix.generation.answers import ChatAnswer, read_answer

_MAX_ANSWER_BYTES: Final = 32 << 20
_LONGEST_WAIT_S: Final = 60.0
_LONGEST_RETRY_AFTER_S: Final = 3600.0
"""A provider that asks for a longer wait means a limit per day."""
_EXCERPT_CHARACTERS: Final = 300
_TOO_LONG: Final = ("context_length", "maximum context", "string_above_max_length")
"""Words of errors that concern one request alone, because it is too long."""
_NO_CREDIT: Final = "insufficient_quota"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatEndpoint:
    """An endpoint, and how patiently it is asked."""

    base_url: str
    """Address up to ``/chat/completions``."""
    api_key: str = field(default="", repr=False)
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable of the key, for messages."""
    timeout_s: float = 600.0
    """Longest time from sending a request to the end of its answer."""
    retries: int = 5
    first_wait_s: float = 1.0
    """Wait before the first retry; each further one is twice as long, up to a minute."""

    def __post_init__(self) -> None:
        """Check address and key.

        Raises:
            UsageError: One of them cannot be used.
        """
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"--base-url {self.base_url} is no address", next_step="give https://HOST/v1")
        if parts.username or parts.password or parts.query:
            what = "--base-url has a user, a password or a query, which would end up in files"
            raise UsageError(what, next_step=f"give the key in the environment variable {self.key_variable}")
        if not (self.api_key.isascii() and self.api_key.isprintable()):
            what = f"the environment variable {self.key_variable} holds no key"
            raise UsageError(what, next_step="set it to the key alone, without quotes or line breaks")

    @property
    def host(self) -> str:
        """Name of the provider's host."""
        return urlsplit(self.base_url).hostname or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """An answer, and what it took."""

    response: str
    """Its text, without the key if the endpoint repeats that."""
    answer: ChatAnswer
    latency_s: float
    retries: int


class RequestGivenUpError(InfrastructureError):
    """One request has no answer.

    Args:
        what: Cause.
        is_endpoint: Whether the endpoint failed, so that further requests may fail too.
    """

    def __init__(self, what: str, *, is_endpoint: bool = False) -> None:
        super().__init__(what)
        self.is_endpoint = is_endpoint


class _TryAgainError(Exception):
    """A request failed, and may be answered later.

    Args:
        cause: What happened.
        wait_s: Wait that the endpoint asks for; None if it asks for none.
    """

    def __init__(self, cause: str, wait_s: float | None = None) -> None:
        super().__init__(cause)
        self.cause = cause
        self.wait_s = wait_s


class ChatClient:
    """Client of one endpoint, for several threads.

    Args:
        endpoint: The endpoint.
        stopping: Ends waits for retries when it is set.
        note: Gets a line for each retry, the same one for the same cause.
    """

    def __init__(self, endpoint: ChatEndpoint, stopping: threading.Event, note: Callable[[str], None]) -> None:
        self._endpoint = endpoint
        self._stopping = stopping
        self._note = note
        self._paused_until = 0.0  # a provider's limit holds for all threads
        headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
        limits = httpx.Limits(max_connections=None)
        self._client = httpx.Client(headers=headers, timeout=endpoint.timeout_s, limits=limits)
        self._url = endpoint.base_url.rstrip("/") + "/chat/completions"

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def ask(self, body: Mapping[str, Any]) -> ChatReply:
        """Send a request, several times if need be.

        Raises:
            RequestGivenUpError: It has no answer after all retries, or is too long.
            UsageError: The endpoint refuses this and all other requests.
        """
        for retries in range(self._endpoint.retries + 1):
            self._wait(self._paused_until - time.monotonic())
            start = time.monotonic()
            try:
                response, answer = self._send(body)
                latency_s = round(time.monotonic() - start, 3)
                return ChatReply(response=response, answer=answer, latency_s=latency_s, retries=retries)
            except _TryAgainError as error:
                self._prepare_retry(error, retries)
        raise AssertionError  # the last failure has raised

    def _prepare_retry(self, error: _TryAgainError, retries: int) -> None:
        if retries == self._endpoint.retries:
            raise RequestGivenUpError(error.cause, is_endpoint=True) from None
        wait_s = error.wait_s
        if wait_s is None:
            wait_s = min(_LONGEST_WAIT_S, self._endpoint.first_wait_s * 2**retries) * random.uniform(0.75, 1.0)  # noqa: S311  # no secret
        elif wait_s > _LONGEST_RETRY_AFTER_S:
            raise RequestGivenUpError(
                f"{error.cause}; it asks for a wait of {wait_s:.0f} s", is_endpoint=True
            ) from None
        else:
            self._paused_until = max(self._paused_until, time.monotonic() + wait_s)
        self._note(f"{error.cause}; such requests are sent again")
        self._wait(wait_s)

    def _wait(self, seconds: float) -> None:
        if seconds > 0 and self._stopping.wait(seconds):
            raise RequestGivenUpError("stopped")

    def _send(self, body: Mapping[str, Any]) -> tuple[str, ChatAnswer]:
        try:
            with self._client.stream("POST", self._url, json=body) as response:
                content = self._read(response)
        except httpx.TimeoutException:
            raise _TryAgainError(f"no answer within {self._endpoint.timeout_s:g} s") from None
        except httpx.ConnectError as error:
            raise _TryAgainError(f"{self._endpoint.host} cannot be reached: {self._redact(str(error))}") from None
        except httpx.HTTPError as error:
            raise _TryAgainError(f"the connection ended early: {type(error).__name__}") from None
        text = self._redact(content.decode(errors="replace"))
        if response.status_code != httpx.codes.OK:
            raise self._failure(response, text)
        try:
            return text, read_answer(text)
        except ValueError:
            raise _TryAgainError(f"this is no answer of a chat endpoint: {_excerpt(text)}") from None

    def _read(self, response: httpx.Response) -> bytes:
        """Read an answer; the client's own limit is one for each piece of it."""
        end = time.monotonic() + self._endpoint.timeout_s
        content = b""
        for piece in response.iter_bytes():
            content += piece
            if time.monotonic() > end:
                raise httpx.ReadTimeout("too slow")
            if len(content) > _MAX_ANSWER_BYTES:
                raise RequestGivenUpError(f"the answer is larger than {_MAX_ANSWER_BYTES >> 20} MiB")
        return content

    def _failure(self, response: httpx.Response, text: str) -> Exception:
        """Return the error for an answer with a status other than 200."""
        status = response.status_code
        said = f"HTTP {status} from {self._endpoint.host}: {_excerpt(text)}"
        if status in (401, 403):
            step = f"set the environment variable {self._endpoint.key_variable} to a key for this endpoint"
            return UsageError(said, next_step=step)
        if status in (402, 429) and (status == 402 or _NO_CREDIT in text):
            return UsageError(said, next_step="the account has no credit left; answers so far are kept")
        if status in (408, 409, 425, 429) or status >= 500:
            return _TryAgainError(f"HTTP {status} from {self._endpoint.host}", _retry_after_s(response))
        if status == 413 or any(words in text for words in _TOO_LONG):
            return RequestGivenUpError(said)
        return UsageError(said, next_step="check --model, --base-url, --temperature and --field")

    def _redact(self, text: str) -> str:
        """Remove the key, which endpoints and proxies may repeat in what they say."""
        return text.replace(self._endpoint.api_key, "[key]") if self._endpoint.api_key else text


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _EXCERPT_CHARACTERS else f"{line[:_EXCERPT_CHARACTERS]}…"


def _retry_after_s(response: httpx.Response) -> float | None:
    """Return the wait of the header ``Retry-After``, seconds or a date; None without a valid one."""
    value = response.headers.get("Retry-After", "")
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(timezone.utc)).total_seconds())
    except (ValueError, TypeError):
        return None
