"""Two runners want one GPU: never both are on it."""

from __future__ import annotations

import json

import pytest

from tests.baddays.field import RUN_LIMIT_S
from tests.pipes import read_line

ROUNDS = 100

FIGHT = f"""
import os, subprocess, sys, time
from pathlib import Path
from kernel_matrix.model.enums import ClockPolicy
from kernel_matrix.lease import LeaseTerms, hold

folder, world = Path(sys.argv[1]), World.here()
terms = LeaseTerms(wait_s=120, clocks=ClockPolicy.LOCK, clock_target=1500)

def clock():
    return get_platform(gpu.platform).clocks(gpu)[0]

seen = []
print("ready", flush=True)
sys.stdin.readline()
for _ in range({ROUNDS}):
    with hold(gpu, terms, lock_dir=folder) as lease:
        os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))  # fails when the other one is inside
        with subprocess.Popen(("sleep", "60")) as tenant:
            lease.tenants.admit(tenant.pid)
            world.occupy(gpu.uuid, tenant.pid)
            while not any(tenant.pid in look.own for look in lease.snapshots):
                time.sleep(0.002)
            on_it, locked_to = world.tenants(gpu.uuid), clock()
            tenant.kill()
        os.unlink(folder / "inside")
    seen.append([on_it == [tenant.pid], locked_to, lease.exclusive, lease.clocks.reset.value, lease.lost, lease.reason])
print(json.dumps(seen))
"""


def test_two_hundred_rounds_between_two_processes(board, tmp_path):
    board.set()
    locks = tmp_path / "locks"
    locks.mkdir()
    fighters = [board.driver.start(board.program + FIGHT, str(locks)) for _ in range(2)]
    for fighter in fighters:
        assert read_line(fighter) == "ready\n"
    for fighter in fighters:
        fighter.stdin.write("go\n")
        fighter.stdin.flush()
    seen = [json.loads(fighter.communicate(timeout=RUN_LIMIT_S)[0]) for fighter in fighters]
    assert [fighter.returncode for fighter in fighters] == [0, 0]
    assert [len(rounds) for rounds in seen] == [ROUNDS] * 2
    assert [one for rounds in seen for one in rounds if one[:5] != [True, 1500, "proven", "confirmed", ""]] == []
    assert board.state.is_given_back
    _check_turns(board)


def _check_turns(board):
    """Check that each process which locks the clocks is the one that resets them, and that both had turns."""
    functions = (board.lock_function, board.reset_function)
    lines = [words for line in board.driver.log() if (words := line.split())[1] in functions]
    turns = list(zip(lines[::2], lines[1::2], strict=True))
    assert len(turns) == 2 * ROUNDS
    for locked, reset in turns:
        assert (locked[1], reset[1]) == functions
        assert locked[0] == reset[0]
    assert len({locked[0] for locked, _ in turns}) == 2


@pytest.mark.docker
@pytest.mark.timeout(1800)  # where the CPU image is missing, it is built first
def test_two_runs_of_the_command_take_turns(docker_gpu_field):
    docker_gpu_field.write_gpu_matrix("tiny/honest", "tiny/wrong", clocks="lock", gpu_wait_s=120)
    runs = [
        docker_gpu_field.start("run", "--json", "--sandbox", "docker", "--results", name) for name in ("one", "other")
    ]
    for run in runs:
        with run:
            out, err = run.communicate(timeout=RUN_LIMIT_S)
        assert (run.returncode, err) == (0, ""), out
    records = [json.loads(path.read_text()) for path in docker_gpu_field.root.glob("*/baddays/records/*.json")]
    assert sorted(record["outcome"]["status"] for record in records) == ["incorrect_values"] * 2 + ["passed"] * 2
    assert {record["host"]["exclusive"] for record in records} == {"proven"}
    assert {record["host"]["clocks"]["reset"] for record in records} == {"confirmed"}
    assert docker_gpu_field.left_behind() == []
