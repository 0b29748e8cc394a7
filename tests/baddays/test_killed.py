"""The runner is killed or told to stop in the middle of a cell."""

from __future__ import annotations

import signal
import time
from collections import Counter

import pytest

from tests.baddays.field import RUN_LIMIT_S, events
from tests.baddays.living import MODULES, alive, await_event, await_roles, containers, is_frozen, processes, until

pytestmark = pytest.mark.timeout(1800)  # where the CPU image is missing, it is built first


@pytest.mark.alone("docker")  # any other run would remove the containers of the killed one
def test_second_run_after_kill_9_loses_and_repeats_nothing(world, sandbox):
    world.write_matrix("tiny/honest", "tiny/wrong")
    with world.start("run", "--json", "--sandbox", sandbox) as runner:
        await_event(runner, "cell_started", times=2)  # the first has its record by now
        family = await_roles(world, sandbox, runner)
        runner.kill()
    killed = world.runs()[0]
    assert len(world.records()) == 1
    assert (killed["ended_at"], killed["counts"]) == (None, {})
    until(lambda: not alive(family))
    if sandbox == "docker":
        until(lambda: all(map(is_frozen, containers(killed["run_id"], running=True))))
        assert len(containers(killed["run_id"])) == len(MODULES), "Docker keeps what has ended"

    again = world.run("--sandbox", sandbox)
    assert (again.returncode, again.stderr) == (0, "")
    swept = [event["text"] for event in events(again.stdout) if event["event"] == "message"]
    assert any("whose runner is gone" in text for text in swept)
    if sandbox == "docker":
        assert containers(killed["run_id"]) == []
    assert processes(world) == []
    assert world.leftovers() == []
    assert world.unfinished_files() == []
    finished = Counter((record["cell"]["candidate"], record["attempt"]) for record in world.records())
    assert finished == {("tiny/honest", 1): 1, ("tiny/wrong", 1): 1}


@pytest.mark.parametrize(
    "numbers",
    [(signal.SIGINT,), (signal.SIGTERM,), (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)],
    ids=lambda numbers: "+".join(number.name for number in numbers),
)
def test_signals_stop_a_run_cleanly_and_say_what_is_left(numbers, world, sandbox):
    world.write_matrix("tiny/honest", "tiny/wrong")
    with world.start("run", "--json", "--sandbox", sandbox) as runner:
        await_event(runner, "cell_started")
        family = await_roles(world, sandbox, runner)
        for number in numbers:
            runner.send_signal(number)
            time.sleep(0.2)
        out, err = runner.communicate(timeout=RUN_LIMIT_S)
    assert runner.returncode == 128 + numbers[0]
    *answers, last = err.splitlines()
    assert last == f"stopped by {numbers[0].name}"
    assert all(answer.startswith("still stopping: ") for answer in answers)
    assert events(out)[-1]["text"] == "stopped: 2 of 2 cells are left; run again to go on"
    assert alive(family) == set()
    assert processes(world) == []
    (run,) = world.runs()
    assert (run["interrupted"], run["planned"], run["counts"]) == (True, 2, {})
    assert run["ended_at"] is not None
    if sandbox == "docker":
        assert containers(run["run_id"]) == []
    assert world.records() == []
    assert world.unfinished_files() == []
    assert world.leftovers() == []
