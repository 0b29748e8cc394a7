"""Read answers of chat endpoints, and find the code in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kernel_matrix.model.enums import Language
from kernel_matrix.sources.native.candidate import FUNCTION, LANGUAGES
from kernel_matrix.untrusted_json import parse_lenient

MAX_SOURCE_CHARACTERS: Final = 1 << 20
"""Longer code is not used; kernels are far shorter."""
CUT_OFF: Final = "length"
"""Finish reason of an answer that reached the limit of tokens."""

_THOUGHT = re.compile(r"(</?think(?:ing)?>)", re.IGNORECASE)
_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([^`\n]*)$")
_MODEL_NEW = re.compile(r"^(?:class[ \t]+ModelNew\b|ModelNew[ \t]*=)", re.MULTILINE)
_NATIVE = re.compile(rf"\b{FUNCTION}[ \t]*\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Tokens of one answer, as the endpoint counts them."""

    prompt: int = 0
    """Tokens read, those from a cache included."""
    cached: int = 0
    completion: int = 0
    """Tokens written, those of reasoning included."""
    reasoning: int = 0

    @property
    def total(self) -> int:
        """Tokens read and written."""
        return self.prompt + self.completion


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """The content of an answer."""

    text: str
    finish_reason: str = ""
    refusal: str = ""
    """Words in which the model declined; empty if it did not."""
    tokens: TokenCounts | None = None
    """None if the endpoint does not say."""


class NoCodeError(ValueError):
    """An answer has no code that can be judged; the message says why."""


def read_answer(response: str) -> ChatAnswer:
    """Read the response of a chat endpoint.

    Raises:
        ValueError: It is not JSON, or has another form.
    """
    document = parse_lenient(response)
    try:
        choice = document["choices"][0]
        message = choice["message"]
        content, refusal = message.get("content"), message.get("refusal")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise ValueError("the answer has no choices[0].message") from None
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, Mapping))
    return ChatAnswer(
        text=content if isinstance(content, str) else "",
        finish_reason=str(choice.get("finish_reason") or ""),
        refusal=str(refusal or ""),
        tokens=_read_tokens(document.get("usage")),
    )


def _read_tokens(usage: Any) -> TokenCounts | None:
    def count(of: Any, key: str) -> int | None:
        value = of.get(key) if isinstance(of, Mapping) else None
        return value if isinstance(value, int) and value >= 0 else None

    prompt, completion = count(usage, "prompt_tokens"), count(usage, "completion_tokens")
    if prompt is None or completion is None:
        return None
    return TokenCounts(
        prompt=prompt,
        cached=min(prompt, count(usage.get("prompt_tokens_details"), "cached_tokens") or 0),
        completion=completion,
        reasoning=count(usage.get("completion_tokens_details"), "reasoning_tokens") or 0,
    )


def find_code(answer: ChatAnswer, language: Language) -> tuple[str, str]:
    """Return the code in an answer, and the suffix of its file.

    It is the last block that defines ``ModelNew``. For CUDA and HIP, if there is none, it is the last block with a
    kernel and a function ``run``. Without any block, it is the whole text if that defines ``ModelNew``. A block whose
    fence is not closed ends with the text, but does not count if the answer reached its limit of tokens.

    Raises:
        NoCodeError: There is none.
    """
    if answer.refusal:
        raise NoCodeError("the model refused")
    text = without_thoughts(answer.text)
    if not text.strip():
        cut = answer.finish_reason == CUT_OFF
        raise NoCodeError("the answer was cut off before any code" if cut else "the answer is empty")
    every = list(_blocks(text)) or [(text, False)]
    blocks = [body for body, is_closed in every if is_closed or answer.finish_reason != CUT_OFF]
    found = [(body, ".py") for body in blocks if _MODEL_NEW.search(body)]
    suffix = next((suffix for suffix, (usual, *_) in LANGUAGES.items() if usual is language), "")
    if not found and suffix:
        found = [(body, suffix) for body in blocks if "__global__" in body and _NATIVE.search(body)]
    if not found:
        cut = answer.finish_reason == CUT_OFF
        raise NoCodeError("the answer was cut off" if cut else "no block of code in the answer defines ModelNew")
    if len(found[-1][0]) > MAX_SOURCE_CHARACTERS:
        raise NoCodeError(f"the code is longer than {MAX_SOURCE_CHARACTERS >> 20} MiB")
    return found[-1]


def without_thoughts(text: str) -> str:
    """Remove ``<think>…</think>``; the opening tag may be missing at the beginning, the closing one at the end."""
    kept: list[str] = []
    is_inside = False
    for piece in _THOUGHT.split(text):
        if not _THOUGHT.fullmatch(piece):
            if not is_inside:
                kept.append(piece)
        elif not piece.startswith("</"):
            is_inside = True
        elif is_inside:
            is_inside = False
        else:
            kept.clear()
    return "".join(kept)


def _blocks(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the content of each fenced block, and whether its fence is closed."""
    fence, lines = "", list[str]()
    for line in text.replace("\r\n", "\n").split(
        "\n"
    ):  # not splitlines, which also ends lines inside texts of the code
        match = _FENCE.match(line)
        if not fence:
            if match:
                fence, lines = match[1], []
        elif match and match[1].startswith(fence) and not match[2].strip():
            yield "\n".join(lines) + "\n", True
            fence = ""
        else:
            lines.append(line)
    if fence:
        yield "\n".join(lines), False
