"""Code in answers of models, in all the forms in which models give it."""

from __future__ import annotations

import json
import time

import pytest

from kernel_matrix.generation.answers import ChatAnswer, NoCodeError, TokenCounts, find_code, read_answer
from kernel_matrix.model.enums import Language

MODEL = "class ModelNew:\n    pass\n"
OLD = "class Model:\n    pass\n"
KERNEL = "__global__ void kernel() {}\ntorch::Tensor run(torch::Tensor x) { return x; }\n"


def fenced(text, language="python", fence="```"):
    return f"{fence}{language}\n{text}{fence}\n"


def found(text, language=Language.TRITON, **more):
    return find_code(ChatAnswer(text=text, **more), language)


@pytest.mark.parametrize(
    "text",
    [
        fenced(MODEL),
        f"Words.\n\n{fenced(MODEL, '')}\nMore words.",
        fenced("class ModelNew:\n    first = True\n") + fenced(MODEL) + fenced("print('a test')\n"),
        fenced(MODEL, fence="~~~~"),
        f"```python\n{MODEL}",  # the fence is never closed
        f"<think>{fenced('class ModelNew:  # a thought')}</think>{fenced(MODEL)}",
        f"a thought {fenced('class ModelNew:  # a thought')}</think>{fenced(MODEL)}",
        fenced(MODEL).replace("\n", "\r\n"),
        MODEL,
    ],
    ids=["block", "prose", "several", "tildes", "unclosed", "thought", "untagged-thought", "crlf", "bare"],
)
def test_find_code_returns_the_last_model(text):
    assert found(text) == (MODEL, ".py")


def test_find_code_keeps_fences_inside_a_longer_fence():
    inner = "class ModelNew:\n    text = '''\n```\n'''\n"
    assert found(fenced(inner, fence="````"))[0] == inner


def test_find_code_takes_native_code_for_native_languages_only():
    assert found(fenced(KERNEL, "cuda"), Language.CUDA) == (KERNEL, ".cu")
    assert found(fenced(KERNEL, "cpp"), Language.HIP) == (KERNEL, ".hip")
    assert found(fenced(KERNEL, "cuda") + fenced(MODEL), Language.HIP) == (MODEL, ".py")
    with pytest.raises(NoCodeError, match="no block of code in the answer defines ModelNew"):
        found(fenced(KERNEL, "cuda"))


@pytest.mark.parametrize(
    ("text", "more", "why"),
    [
        ("", {}, "the answer is empty"),
        ("", {"finish_reason": "length"}, "cut off before any code"),
        ("<think>thoughts that never end", {"finish_reason": "length"}, "cut off before any code"),
        (f"```python\n{MODEL}", {"finish_reason": "length"}, "was cut off"),
        ("I cannot do that. ModelNew would be needed.", {}, "defines ModelNew"),
        (fenced(OLD), {}, "defines ModelNew"),
        (fenced(MODEL), {"refusal": "I refuse"}, "refused"),
        (fenced(f"{MODEL}# {'x' * (1 << 20)}\n"), {}, "longer than 1 MiB"),
    ],
)
def test_find_code_says_why_there_is_none(text, more, why):
    with pytest.raises(NoCodeError, match=why):
        found(text, **more)


def test_find_code_uses_a_whole_block_of_a_cut_answer():
    assert found(f"{fenced(MODEL)}And now", finish_reason="length")[0] == MODEL


@pytest.mark.parametrize("piece", ["<think>", "</think>", "```\n", "class ModelNew", "````python\n", "`"])
def test_find_code_needs_time_in_proportion_to_the_text(piece):
    start = time.process_time()
    with pytest.raises(NoCodeError):
        found(piece * (2_000_000 // len(piece)) + "\nclass Other: pass", finish_reason="length")
    assert time.process_time() - start < 30  # quadratic time would be hours


def response(**message):
    return {"choices": [{"message": message, "finish_reason": "stop"}]}


def test_read_answer_reads_text_and_tokens():
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    answer = read_answer(json.dumps({**response(content="yes"), "usage": usage}))
    assert answer.text == "yes"
    assert answer.tokens == TokenCounts(prompt=10, cached=4, completion=7, reasoning=5)
    assert answer.tokens.total == 17


def test_read_answer_accepts_parts_and_missing_values():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert read_answer(json.dumps(response(content=parts))).text == "ab"
    empty = read_answer(json.dumps({**response(content=None, refusal="no"), "usage": {"prompt_tokens": None}}))
    assert (empty.text, empty.refusal, empty.tokens) == ("", "no", None)
    assert read_answer('{"choices": [{"message": {"content": "half \\ud83d"}}]}').text == "half \\ud83d"


@pytest.mark.parametrize("text", ["", "<html>", "[]", "{}", '{"choices": []}', '{"choices": [{"message": "x"}]}'])
def test_read_answer_of_another_form_is_refused(text):
    with pytest.raises(ValueError):
        read_answer(text)
