"""Send the text of a night to webhooks that understand Slack's ``{"text": …}``, as Mattermost and others do.

A webhook's URL is a secret: whoever has it can post. So no message, record or file names more of it than its host.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import SplitResult, urlsplit

import requests
from requests.exceptions import RequestException, SSLError, Timeout

from kernel_matrix.errors import UsageError

VARIABLE: Final = "KERNEL_MATRIX_WEBHOOK"
"""The environment variable with one or more URLs, separated by blanks."""
LIMIT_S: Final = 60.0
"""Seconds until a webhook is given up: a night must end, however slowly a server answers."""
_TIMEOUTS_S: Final = (10.0, 30.0)
"""Seconds to connect, and between two bytes of the answer."""
_THIS_MACHINE: Final = re.compile(r"localhost|127(\.\d{1,3}){3}|::1")
_HIDDEN: Final = "(webhook)"


def check_webhooks(urls: Sequence[str]) -> None:
    """Check that each of ``urls`` can be posted to.

    Raises:
        UsageError: One cannot.
    """
    for url in urls:
        parts = _parts(url)
        if parts is None or parts.scheme not in ("http", "https"):
            raise UsageError("a webhook is not a URL", next_step=f"e.g. {VARIABLE}=https://hooks.slack.com/services/…")
        if parts.scheme == "http" and not _THIS_MACHINE.fullmatch(parts.hostname or ""):
            raise UsageError(f"the webhook {webhook_host(url)} would be sent in the clear", next_step="Use https://.")


def webhook_host(url: str) -> str:
    """Return what may be shown of a webhook's URL."""
    parts = _parts(url)
    return f"{parts.scheme}://{parts.hostname}/…" if parts is not None else _HIDDEN


def without_webhooks(words: Sequence[str], urls: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command line with each webhook's URL replaced by what may be shown of it."""
    hidden = tuple(words)
    for url in urls:
        hidden = tuple(word.replace(url, webhook_host(url)) for word in hidden)
    return hidden


def post(urls: Sequence[str], text: str, *, limit_s: float = LIMIT_S) -> str:
    """Post ``text`` to each webhook.

    Args:
        urls: The webhooks, checked by :func:`check_webhooks`.
        text: What became of the night.
        limit_s: Seconds after which a webhook is given up.

    Returns:
        What went wrong, in a sentence; empty where nothing did.
    """
    said = ((webhook_host(url), _post_in_time(url, {"text": _plain(text)}, limit_s)) for url in urls)
    return "; ".join(f"the webhook {host} {failure}" for host, failure in said if failure)


def _parts(url: str) -> SplitResult | None:
    """Return the parts of ``url``; ``None`` if it is none, or holds what no URL may hold."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises where it is none
        return parts if parts.hostname and url.isprintable() and " " not in url else None
    except ValueError:
        return None


def _plain(text: str) -> str:
    """Escape ``text`` so that names of candidates neither call people in a chat nor become links of Slack's form."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped.replace("@", "@\u200b")  # else Mattermost would call everybody for a candidate named @all


def _post_in_time(url: str, message: dict[str, str], limit_s: float) -> str:
    # A thread, since the timeouts of requests start again with each byte that a server sends.
    failures: list[str] = []
    thread = threading.Thread(target=lambda: failures.append(_post(url, message)), daemon=True)
    thread.start()
    thread.join(limit_s)
    return failures[0] if failures else f"took longer than {limit_s:.0f} s"


def _post(url: str, message: dict[str, str]) -> str:
    """Return what went wrong; never in the words of the server or the library, which may repeat the URL."""
    try:
        # No redirect is followed: the secret and the text are for this host alone.
        with requests.post(url, json=message, timeout=_TIMEOUTS_S, allow_redirects=False, stream=True) as answer:
            return "" if HTTPStatus.OK <= answer.status_code < HTTPStatus.MULTIPLE_CHOICES else _refusal(answer)
    except Timeout:
        return "did not answer in time"
    except SSLError:
        return "has no certificate that this machine trusts"
    except RequestException:
        return "cannot be reached"
    except Exception as error:  # noqa: BLE001  # a defect of a library must not cost the night's result
        return f"cannot be used: {type(error).__name__}"


def _refusal(answer: requests.Response) -> str:
    code = answer.status_code
    phrase = next((status.phrase for status in HTTPStatus if status == code), "")
    if answer.is_redirect:
        return f"answers {code} {phrase}: redirects are not followed; give the URL that it leads to"
    return f"answers {code} {phrase}".rstrip()
