"""Several simulated GPUs held together, one for each rank of a problem."""

from __future__ import annotations

import json

import pytest

from tests.baddays.field import RUN_LIMIT_S
from tests.pipes import read_line

ROUNDS = 100

GROUP = """
import os, sys
from pathlib import Path
from kernel_matrix.errors import KernelMatrixError
from kernel_matrix.lease import LeaseTerms, hold
from kernel_matrix.model.enums import ClockPolicy
from kernel_matrix.platforms import group_of

locks, uuids = Path(sys.argv[1]), sys.argv[2].split(",")
group = group_of(Gpu(platform=gpu.platform, uuid=uuid, name="", index=n) for n, uuid in enumerate(uuids))
"""

FIGHT = (
    GROUP
    + f"""
terms = LeaseTerms(wait_s=300, clocks=ClockPolicy.LOCK, clock_target=1500)
print("ready", flush=True)
sys.stdin.readline()
seen = []
for _ in range({ROUNDS}):
    with hold(group, terms, lock_dir=locks) as lease:
        for uuid in uuids:
            os.close(os.open(locks / f"inside-{{uuid}}", os.O_CREAT | os.O_EXCL))  # fails if another one holds it
        states = [World.here().state(uuid).is_given_back for uuid in uuids]
        for uuid in uuids:
            os.unlink(locks / f"inside-{{uuid}}")
    seen.append([states, lease.exclusive])
print(json.dumps(seen))
"""
)

HOLD = (
    GROUP
    + """
terms = LeaseTerms(wait_s=0.2, clocks=ClockPolicy.OBSERVE)
try:
    with hold(group, terms, lock_dir=locks) as lease:
        lease.admit(int(sys.argv[3]))
        World.here().occupy(uuids[-1], int(sys.argv[3]))
        World.here().occupy(uuids[-1], int(sys.argv[4]))
        while not lease.foreign_pids:
            pass
        own = sorted({pid for one in lease.snapshots for pid in one.own})
    told = {"exclusive": lease.exclusive, "foreign": lease.foreign_pids, "own": own}
except KernelMatrixError as error:
    told = {"error": type(error).__name__, "text": str(error)}
print(json.dumps(told))
"""
)


KEPT = (
    GROUP
    + """
import fcntl, subprocess
from kernel_matrix.lease import KeptProcesses
terms = LeaseTerms(wait_s=10, clocks=ClockPolicy.OBSERVE)
TRY = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"
with hold(group, terms, lock_dir=locks, kept=KeptProcesses()):
    tries = [subprocess.run([sys.executable, "-c", TRY, file], capture_output=True) for file in locks.glob("*.lock")]
print(json.dumps([b"BlockingIOError" in one.stderr for one in tries]))
"""
)


def uuids_of(board, count: int) -> list[str]:
    """Put so many GPUs into the world; return their UUIDs, descending."""
    uuids = [f"{board.uuid[:-1]}{number}" for number in range(count)]
    board.driver.set(*({**board.gpu, "uuid": uuid} for uuid in uuids))
    return uuids[::-1]


def test_overlapping_pairs_are_held_in_turn_without_a_deadlock(board, tmp_path):
    high, middle, low = uuids_of(board, 3)
    locks = tmp_path / "locks"
    locks.mkdir()
    pairs = [(high, middle), (middle, low)]
    fighters = [board.driver.start(board.program + FIGHT, str(locks), ",".join(pair)) for pair in pairs]
    for fighter in fighters:
        assert read_line(fighter) == "ready\n"
    for fighter in fighters:
        fighter.stdin.write("go\n")
        fighter.stdin.flush()
    seen = [json.loads(fighter.communicate(timeout=RUN_LIMIT_S)[0]) for fighter in fighters]
    assert seen == [[[[False, False], "proven"]] * ROUNDS] * 2
    assert all(board.driver.state(uuid).is_given_back for uuid in (high, middle, low))


def test_group_of_a_lane_that_keeps_processes_has_the_locks_of_all(board, tmp_path):
    pair = uuids_of(board, 2)
    holder = board.driver.start(board.program + KEPT, str(tmp_path), ",".join(pair))
    assert json.loads(holder.communicate(timeout=RUN_LIMIT_S)[0]) == [True, True]


def test_group_sees_own_and_foreign_processes_on_each_device(board, tmp_path, tenant):
    pair = uuids_of(board, 2)
    own, foreign = tenant().pid, tenant().pid
    holder = board.driver.start(board.program + HOLD, str(tmp_path), ",".join(pair), str(own), str(foreign))
    told = json.loads(holder.communicate(timeout=RUN_LIMIT_S)[0])
    assert told == {"exclusive": "unproven", "foreign": [foreign], "own": [own]}


@pytest.mark.parametrize("place", [0, 1])
def test_group_with_one_device_in_use_is_busy(board, tmp_path, tenant, place):
    pair = uuids_of(board, 2)
    board.driver.occupy(pair[place], tenant().pid)
    holder = board.driver.start(board.program + HOLD, str(tmp_path), ",".join(pair), "0", "0")
    told = json.loads(holder.communicate(timeout=RUN_LIMIT_S)[0])
    assert told["error"] == "GpuBusyError"
    assert pair[place] in told["text"]


@pytest.mark.parametrize("place", [0, 1])
def test_group_with_one_divided_device_is_refused(board, tmp_path, place):
    pair = uuids_of(board, 2)
    gpus = [{**board.gpu, "uuid": uuid, **(board.divided if n == place else {})} for n, uuid in enumerate(pair)]
    board.driver.set(*gpus)
    holder = board.driver.start(board.program + HOLD, str(tmp_path), ",".join(pair), "0", "0")
    told = json.loads(holder.communicate(timeout=RUN_LIMIT_S)[0])
    assert told["error"] == "GpuRefusedError"
    assert pair[place] in told["text"]
