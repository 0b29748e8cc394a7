"""Units of systemd and a line for cron, as their own programs read them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kernel_matrix.errors import UsageError
from kernel_matrix.nightly.schedules import Schedule, cron, systemd

COMMAND = ("/bin/echo", "it's", 'a "word"', "100 % $HOME", "back\\slash", "@FOLDER@")


def schedule(**changes):
    usual = {"hour": 6, "minute": 5, "folder": Path("/tmp"), "command": COMMAND, "log": Path("night ly.log")}
    return Schedule(**{**usual, **changes})


def test_a_shell_reads_the_words_of_the_cron_line_as_they_were(tmp_path):
    (line,) = [line for line in cron(schedule(folder=tmp_path)).splitlines() if not line.startswith("#")]
    when, job = line[:11], line[11:]
    assert when == "5 6 * * * c"
    # crontab(5): a backslash before a percent sign is taken away, a percent sign alone begins the job's input.
    subprocess.run(("sh", "-c", f"c{job}".replace("\\%", "%")), check=True)
    assert (tmp_path / "night ly.log").read_text() == " ".join(COMMAND[1:]) + "\n"
    assert "%" not in line.replace("\\%", "")


def test_systemd_is_given_every_word_in_quotes():
    (line,) = [line for line in systemd(schedule()).splitlines() if line.startswith("ExecStart=")]
    assert line == ('ExecStart="/bin/echo" "it\'s" "a \\"word\\"" "100 %% $$HOME" "back\\\\slash" "@FOLDER@"')
    assert "OnCalendar=*-*-* 06:05:00\n" in systemd(schedule())


def test_systemd_itself_finds_nothing_wrong(tmp_path):
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze on this machine")
    service, timer = systemd(schedule()).split("# ~/.config/systemd/user/kernel-matrix-nightly.timer\n")
    for kind, text in (("service", service), ("timer", timer)):
        (tmp_path / f"kernel-matrix-nightly.{kind}").write_text(text)
    looked = subprocess.run(
        (program, "--user", "verify", *map(str, tmp_path.iterdir())), check=False, capture_output=True, text=True
    )
    assert "kernel-matrix-nightly" not in looked.stderr


@pytest.mark.parametrize("write", [systemd, cron])
def test_a_line_break_reaches_no_schedule(write):
    with pytest.raises(UsageError, match="cannot be written into a schedule"):
        write(schedule(command=("echo", "a\n* * * * * rm")))
