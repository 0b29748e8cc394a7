"""Who may use a service, and how often: tokens and a limit of requests per second for each client."""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kernel_matrix.errors import KernelMatrixError, UsageError

ANYBODY: Final = "anybody"
"""The client of a service without tokens."""
_DIGEST_LENGTH: Final = 64


class UnknownClientError(KernelMatrixError):
    """A request has no token, or one that the service does not know."""


class TooManyRequestsError(KernelMatrixError):
    """A client sends more requests than it may.

    Args:
        retry_after_s: When the next one would be accepted, seconds.
    """

    def __init__(self, retry_after_s: float) -> None:
        super().__init__("too many requests", next_step=f"wait {retry_after_s:.1f} s")
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Tokens:
    """The clients that a service knows; without any, everybody is one client."""

    digests: Mapping[str, str] = field(default_factory=dict)
    """Client → SHA-256 of its token as hexadecimal digits."""

    @staticmethod
    def read(path: Path) -> Tokens:
        """Read lines ``CLIENT SHA256``; empty lines and those that begin with ``#`` are left out.

        Raises:
            UsageError: The file cannot be read, or has other lines.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} cannot be read: {error}", next_step="name the file of the tokens") from None
        found: dict[str, str] = {}
        for number, line in enumerate(lines, start=1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            if len(words) != 2 or not _is_digest(words[1]) or words[0] in found:  # the two words
                hint = "write a line CLIENT SHA256 for each client: printf %s TOKEN | sha256sum"
                raise UsageError(
                    f"{path}:{number}: not a client that is new and the digest of its token", next_step=hint
                )
            found[words[0]] = words[1].lower()
        return Tokens(found)

    def client_of(self, authorization: str | None) -> str:
        """Return the client of a request.

        Args:
            authorization: The request's header of that name.

        Raises:
            UnknownClientError: It is of nobody.
        """
        if not self.digests:
            return ANYBODY
        kind, _, token = (authorization or "").partition(" ")
        digest = hashlib.sha256(token.strip().encode()).hexdigest()
        # All are compared, so that the time does not tell how many begin alike.
        found = [client for client, known in self.digests.items() if hmac.compare_digest(known, digest)]
        if kind.lower() != "bearer" or not found:
            raise UnknownClientError("the request has no valid token", next_step="send Authorization: Bearer TOKEN")
        return found[0]


class RequestLimit:
    """A limit of requests per second for each client, which may save up some of them (token bucket).

    Args:
        per_s: Requests per second.
        most: Requests that a client may send at once after a pause.
        now_s: The clock, seconds.
    """

    def __init__(self, per_s: float, most: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._most, self._now_s = per_s, most, now_s
        self._left: dict[str, tuple[float, float]] = {}
        """Client → requests left, and when that was."""
        self._turn = threading.Lock()

    def take(self, client: str) -> None:
        """Count a request.

        Raises:
            TooManyRequestsError: It is one too many.
        """
        with self._turn:
            now_s = self._now_s()
            left, then_s = self._left.get(client, (float(self._most), now_s))
            left = min(float(self._most), left + (now_s - then_s) * self._per_s)
            if left < 1:
                self._left[client] = left, now_s
                raise TooManyRequestsError((1 - left) / self._per_s)
            self._left[client] = left - 1, now_s


def _is_digest(text: str) -> bool:
    return len(text) == _DIGEST_LENGTH and all(digit in "0123456789abcdefABCDEF" for digit in text)
