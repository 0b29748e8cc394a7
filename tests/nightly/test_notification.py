"""The user's command, run once with what became of a night."""

from __future__ import annotations

import json
import sys

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.nightly.notification import command_of, tell

DOCUMENT = {"text": "größer", "exit_code": 5}


def python(program):
    return (sys.executable, "-c", program)


def test_it_gets_the_document_and_the_text(tmp_path):
    program = (
        f"import os, sys; open({str(tmp_path / 'told')!r}, 'a').write("
        "sys.stdin.read() + os.environ['KERNEL_MATRIX_SUMMARY'] + chr(10))"
    )
    assert not tell(python(program), DOCUMENT)
    document, text = (tmp_path / "told").read_text().splitlines()
    assert (json.loads(document), text) == (DOCUMENT, "größer")


def test_one_that_reads_nothing_is_no_failure():
    assert not tell(("true",), {**DOCUMENT, "more": "x" * 1_000_000})


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (python("import sys; sys.stderr.write('no carrier'); sys.exit(7)"), "ended with 7: no carrier"),
        (("false",), "it said nothing"),
        (("/nonexistent",), "cannot be run"),
        (python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), "ended with -9"),
    ],
)
def test_a_failure_is_a_sentence(command, words):
    assert words in tell(command, DOCUMENT)


def test_one_that_never_ends_is_killed():
    assert "took longer" in tell(python("import time; time.sleep(600)"), DOCUMENT, limit_s=0.2)


def test_words_are_split_as_a_shell_would():
    assert command_of("mail -s 'two words' me") == ("mail", "-s", "two words", "me")
    for text in ("", "  ", "'"):
        with pytest.raises(UsageError, match="--notify"):
            command_of(text)
