"""README and tutorial can be read by people whose first language is not English."""

from __future__ import annotations

import re

import pytest

from tests.docs.snippets import ROOT

PAGES = (ROOT / "README.md", ROOT / "docs" / "tutorial.md")
MOST_WORDS = 30
LEAST_EASE = 50.0
"""Flesch reading ease; 50 to 60 is "fairly difficult", as in newspapers."""

_NO_PROSE = re.compile(r"```.*?```|<!--.*?-->|!\[[^\]]*\]\([^)]*\)", re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_VOWELS = re.compile(r"[aeiouy]+")


def sentences(text):
    """The sentences of a page's paragraphs, list items and cells of tables; code counts as one word."""
    text = _LINK.sub(r"\1", _NO_PROSE.sub("\n\n", text))
    text = re.sub(r"`[^`]*`", "code", text)
    blocks = re.split(r"\n\s*\n|\n(?=[-#|])|\|", text)
    for block in blocks:
        plain = re.sub(r"^[-#\s]+|\*\*", "", " ".join(block.split()))
        yield from (one for one in re.split(r"(?<=[.!?])\s+(?=[A-Z0-9])", plain) if re.search(r"[a-z]", one))


def words(sentence):
    return re.findall(r"[A-Za-z][A-Za-z'’-]*|\d[\d.,]*", sentence)


def syllables(word):
    """Groups of vowels, without a silent e at the end."""
    word = word.lower()
    groups = len(_VOWELS.findall(word)) - (word.endswith("e") and not word.endswith(("le", "ee")) and len(word) > 2)
    return max(1, groups)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_sentence_is_longer_than_thirty_words(page):
    long = [sentence for sentence in sentences(page.read_text()) if len(words(sentence)) > MOST_WORDS]
    assert long == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_are_plain_english(page):
    found = [words(sentence) for sentence in sentences(page.read_text()) if len(words(sentence)) > 3]
    count = sum(map(len, found))
    ease = 206.835 - 1.015 * count / len(found) - 84.6 * sum(syllables(w) for ws in found for w in ws) / count
    assert ease >= LEAST_EASE


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_syllables_are_counted():
    assert [syllables(word) for word in ("time", "table", "kernel", "the", "GPU")] == [1, 2, 2, 1, 1]
