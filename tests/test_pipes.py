"""Programs that tests start must not outlive a test that fails."""

from __future__ import annotations

import os
import signal

import pytest

from tests.pipes import Program


def test_program_in_a_with_that_fails_is_killed_with_its_group():
    reading, writing = os.pipe()
    program = Program(("sh", "-c", "sleep 600 & wait"), pass_fds=(writing,))
    os.close(writing)
    with pytest.raises(ZeroDivisionError), program:
        _ = 1 / 0
    assert program.returncode == -signal.SIGKILL
    assert os.read(reading, 1) == b"", "shell and child have ended"
    os.close(reading)
