"""The entry point: errors that every verb may meet, as a message and an exit code."""

from __future__ import annotations

import pytest

from tests.cli.terminal import piped

LONG = "r" * 300


@pytest.mark.parametrize("verb", ["merge", "results"])
def test_main_with_a_name_too_long_is_exit_2_and_one_line(verb, tmp_path):
    ended = piped(tmp_path, verb, LONG)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"error: {LONG}")
    assert ended.stderr.endswith("longer than this file system allows\n")
    assert ended.stderr.count("\n") == 1


@pytest.mark.torch
def test_run_into_a_name_too_long_is_exit_2_before_any_cell(field):
    ran = field.run("--sandbox", "process", "--results", LONG)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "longer than this file system allows" in ran.stderr
