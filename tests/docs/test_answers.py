"""Pages of answers: what the tool replaces, what it leaves, and what it refuses."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import kernel_matrix
from kernel_matrix.results.store import RecordStore
from tests.results.factory import CELL_KEY, cell_id, make_record
from tools import describe_answers
from tools.describe_answers import AnswerBlock, PageError, answer_blocks, main, open_shell, page_text

RESULTS = "kernel-matrix results results/tiny --format markdown --columns candidate,status"
PAGE = """# A page  \r

```console
$ kernel-matrix results results/tiny \\
    --format markdown --columns candidate,status
```

<!-- answer -->
what it was
<!-- /answer -->

Text.\tMore text.

```console
$ kernel-matrix results results/tiny
shown only
```

```text
<!-- answer -->
```
no line feed at the end"""
ANSWER = "| candidate | status |\n| --- | --- |\n| vector\\_add | passed |\n"
BLOCK = f"```console\n$ {RESULTS}\n```\n"


@pytest.fixture
def root(tmp_path):
    """A folder with sets of one record each."""
    for number, name in enumerate(("tiny", "other"), 1):
        key = replace(CELL_KEY, candidate="vector_add")
        RecordStore(tmp_path / "results" / name).save(make_record(cell_id(number), cell=key))
    return tmp_path


@pytest.fixture
def shell(root):
    with open_shell(root) as opened:
        yield opened


@pytest.fixture
def merged(monkeypatch):
    """The sets of each merge, in the order of the merges."""
    calls = []
    merge = kernel_matrix.merge

    def note(folders, out):
        calls.append(folders)
        return merge(folders, out)

    monkeypatch.setattr(kernel_matrix, "merge", note)
    return calls


def asked(shell, command):
    return shell.answer(AnswerBlock(command, "", "page.md:3", 0, 0))


def test_only_text_between_the_marks_changes(shell):
    assert page_text(PAGE, "page.md", shell) == PAGE.replace("what it was\n", ANSWER)


def test_a_current_page_stays_as_it_is(shell):
    current = page_text(PAGE, "page.md", shell)
    assert page_text(current, "page.md", shell) == current


def test_a_block_is_found_with_its_command_and_place():
    (block,) = answer_blocks(PAGE, "page.md")
    assert (block.command, block.text, block.place) == (RESULTS, "what it was\n", "page.md:8")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n<!-- answer -->\n<!-- /answer -->\n", "page.md:2: <!-- answer --> has no block"),
        (f"{BLOCK}Text.\n<!-- answer -->\n<!-- /answer -->\n", "page.md:5: <!-- answer --> has no block"),
        (f"{BLOCK}<!-- answer -->\n<!-- /answer -->\n" + "<!-- answer -->\n<!-- /answer -->\n", "page.md:6: <!-- answ"),
        (
            "```console\n$ kernel-matrix gpus\n```\n<!-- answer -->\n<!-- /answer -->",
            "page.md:4: <!-- answer --> has no",
        ),
        (
            BLOCK.replace("```console", "```text") + "<!-- answer -->\n<!-- /answer -->",
            "page.md:4: <!-- answer --> has",
        ),
        (f"{BLOCK}<!-- answer -->\n1\n", "page.md:4: <!-- answer --> is not closed by <!-- /answer -->"),
        (f"{BLOCK}<!-- answer -->\n{BLOCK}<!-- answer -->\n<!-- /answer -->\n", "page.md:4: <!-- answer --> is not cl"),
        (f"{BLOCK}<!-- /answer -->\n", "page.md:4: <!-- /answer --> has no <!-- answer --> before it"),
        ("```console\n$ kernel-matrix gpus\n", "page.md:1: ```console is not closed by ```"),
    ],
)
def test_wrong_marks_are_refused_with_their_line(text, said):
    with pytest.raises(PageError, match=f"^{re.escape(said)}"):
        answer_blocks(text, "page.md")


def test_a_command_that_fails_stops_with_what_it_said(shell):
    command = f"{RESULTS} --filter problem=relu"
    with pytest.raises(PageError) as caught:
        page_text(f"```console\n$ {command}\n```\n<!-- answer -->\n<!-- /answer -->\n", "page.md", shell)
    first, second = str(caught.value).splitlines()[:2]
    assert first == f"page.md:4: `{command}` ended with code 3:"
    assert second.startswith("error: no result in results/tiny matches --filter problem=relu")


def test_a_set_that_is_not_there_is_named(shell):
    with pytest.raises(PageError, match=r"code 2:\nerror: .*results/tinier"):
        asked(shell, RESULTS.replace("tiny", "tinier"))


def test_a_set_is_merged_once_and_answers_are_the_same(shell, merged):
    for words in ("results", "analyze scores", "audit"):
        command = f"kernel-matrix {words} results/tiny --format markdown"
        quick = asked(shell, command)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(describe_answers, "TABLE_VERBS", ())
            assert quick == asked(shell, command)
    assert merged == [("results/tiny",)]


def test_sets_are_merged_together_where_the_verb_does_so(shell, merged):
    both = asked(shell, "kernel-matrix audit --format markdown results/tiny --columns check results/other --only drift")
    assert both.startswith("| check |\n")
    assert merged == [("results/tiny", "results/other")]


def test_sides_of_a_comparison_are_merged_apart(shell, merged):
    asked(shell, "kernel-matrix compare results/tiny results/other --format markdown")
    assert merged == [("results/tiny",), ("results/other",)]


def test_packed_sets_are_merged_too(shell, root, merged):
    kernel_matrix.pack_results(root / "results" / "tiny", root / "results" / "tiny.kmz")
    merged.clear()
    assert asked(shell, RESULTS.replace("tiny", "tiny.kmz")) == ANSWER
    assert merged == [("results/tiny.kmz",)]


def test_an_answer_names_the_set_and_not_its_tables(shell):
    assert asked(shell, "kernel-matrix compare results/tiny results/tiny").startswith("results/tiny → results/tiny: ")


def test_a_page_is_checked_then_written_once(root, capsys):
    page = root / "page.md"
    page.write_bytes(PAGE.encode())
    assert main(["--check"], [page], root) == 1
    assert capsys.readouterr().out == f"page.md:8: the answer of `{RESULTS}` is not current\n"
    assert page.read_bytes() == PAGE.encode()
    assert main([], [page], root) == 0
    assert page.read_bytes() == PAGE.replace("what it was\n", ANSWER).encode()
    before = page.stat().st_mtime_ns
    assert (main([], [page], root), main(["--check"], [page], root)) == (0, 0)
    assert page.stat().st_mtime_ns == before


def test_a_wrong_page_is_one_error(root, capsys):
    page = root / "page.md"
    page.write_text("<!-- answer -->\n")
    assert main([], [page], root) == 2
    assert capsys.readouterr().err.startswith("page.md:1: <!-- answer --> has no block")
