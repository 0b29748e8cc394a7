"""A GPU's bad days, on a simulated driver: locks that do not hold, resets that fail, company, loss.

The cells are real ones, in processes confined by the real sandbox, run by the real command;
:mod:`tests.sim.launch_forked` says what is not. In containers the same is seen in ``test_gpu_killed``.
"""

from __future__ import annotations

import os
import time

import pytest

from tests.baddays.field import RUN_LIMIT_S, events
from tests.baddays.gpu_field import go_on, of_one_vendor
from tests.baddays.living import await_event, until

pytestmark = pytest.mark.torch

PROCESSES = ("--sandbox", "process")
FORBID = {"KERNEL_MATRIX_GPU_SETTINGS": "forbid"}
LONG = {
    "min_samples": 60,
    "max_samples": 80,
    "budget_s": 30,
    "call_timeout_s": 120,
    "first_call_timeout_s": 120,
    "load_timeout_s": 120,
    "session_timeout_s": 200,
}
"""Enough calls to pause among, and time enough for a pause."""
LONG_ENOUGH_S = 0.5
"""A runner that does not wait has gone on by then."""
A_FEW_LOOKS = 6
"""One that had begun before, and whole ones after it, however many questions a look has."""
LOCK = ("lock", 0, "passed")
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may lock clocks: nothing is tried")
REQUIRE = pytest.param("require", 4, "clocks_not_held", marks=only_root)


def visit(field):
    """Have a stranger come onto the GPU and leave it, both seen by the watch; returns its PID."""
    with field.stranger() as pid:
        await_looks(field)
    await_looks(field)
    return pid


def await_looks(field):
    """Wait until the watch has looked at the GPU as it is now."""
    before = field.driver.looks()
    until(lambda: field.driver.looks() >= before + A_FEW_LOOKS)


def test_a_good_day_locks_verifies_and_gives_back(gpu_field):
    board = gpu_field.board
    gpu_field.write_gpu_matrix("tiny/honest", clocks="lock", hard_exclusive=bool(board.alone), **LONG)
    gpu_field.write_pausing("time")  # so that the watch is sure to see all processes at work
    with gpu_field.start("run", "--json", *PROCESSES) as runner:
        folder = gpu_field.await_pause()
        if board.alone:
            until(lambda: board.state.compute_mode == 3)
        go_on(folder)
        _, err = runner.communicate(timeout=RUN_LIMIT_S)
    assert (runner.returncode, err) == (0, "")
    (record,) = gpu_field.records()
    host = record["host"]
    assert (record["outcome"]["status"], host["exclusive"], host["clock_state"]) == ("passed", "proven", "locked")
    assert (host["clocks"]["driver_sm_mhz"], host["clocks"]["kernel_sm_mhz"]) == (1500, 1500)
    assert (host["clocks"]["reset"], host["health"]["probe"], host["warnings"]) == ("confirmed", "passed", [])
    assert (host["telemetry"]["joined"], len(host["telemetry"]["own_pids"]) >= 3) == ("yes", True)
    assert gpu_field.settings() == [*board.locking, *board.alone, *board.resetting]
    assert gpu_field.left_behind() == []


@pytest.mark.parametrize("policy", ["observe", "lock"])
def test_where_settings_are_forbidden_none_is_ever_called(gpu_field, policy):
    gpu_field.write_gpu_matrix("tiny/honest", "tiny/wrong", clocks=policy, hard_exclusive=True)
    assert gpu_field.run(*PROCESSES, **FORBID).returncode == 0
    assert gpu_field.call("sweep", **FORBID).returncode == 0
    assert gpu_field.driver.log() == []
    hosts = [record["host"] for record in gpu_field.records()]
    assert [(host["clock_state"], host["clocks"]["reset"]) for host in hosts] == [("unlocked", "not_needed")] * 2
    assert all(("KERNEL_MATRIX_GPU_SETTINGS=forbid" in host["clock_reason"]) == (policy == "lock") for host in hosts)


@of_one_vendor
def test_the_hosts_own_file_forbids_as_well(gpu_field):
    (gpu_field.root / "host.toml").write_text('gpu_settings = "forbid"\n')
    gpu_field.write_gpu_matrix("tiny/honest", clocks="lock")
    assert gpu_field.run(*PROCESSES).returncode == 0
    assert gpu_field.driver.log() == []
    (record,) = gpu_field.records()
    assert "host.toml says gpu_settings = 'forbid'" in record["host"]["clock_reason"]


def test_required_locks_with_forbidden_settings_are_not_tried(gpu_field):
    gpu_field.write_gpu_matrix("tiny/honest", clocks="require")
    ran = gpu_field.run(*PROCESSES, **FORBID)
    assert ran.returncode == 3
    assert "KERNEL_MATRIX_GPU_SETTINGS=forbid" in ran.stderr
    assert (gpu_field.driver.log(), gpu_field.records()) == ([], [])


@of_one_vendor
@pytest.mark.parametrize(("policy", "code", "status"), [LOCK, REQUIRE])
def test_without_the_right_to_lock(gpu_field, policy, code, status):
    gpu_field.change(unprivileged=1)
    gpu_field.write_gpu_matrix("tiny/honest", clocks=policy, infra_retries=0)
    assert gpu_field.run(*PROCESSES).returncode == code
    (record,) = gpu_field.records()
    assert record["outcome"]["status"] == status
    assert record["host"]["clock_state"] != "locked"
    refused = gpu_field.board.locking[0].replace("-> 0", f"-> {gpu_field.board.not_permitted}")
    assert gpu_field.settings() == [refused], "refused: nothing to give back"
    assert gpu_field.left_behind() == []


@of_one_vendor
@pytest.mark.parametrize(("policy", "code", "status"), [LOCK, REQUIRE])
def test_a_lock_that_is_not_obeyed(gpu_field, policy, code, status):
    gpu_field.change(lock_ignored=1)
    gpu_field.write_gpu_matrix("tiny/honest", clocks=policy, clock_target=1500, infra_retries=0)
    assert gpu_field.run(*PROCESSES).returncode == code
    (record,) = gpu_field.records()
    assert (record["outcome"]["status"], record["host"]["clock_state"]) == (status, "unlocked")
    assert (
        f"locked to 1500 MHz according to the driver, but {gpu_field.board.clock} MHz" in record["host"]["clock_reason"]
    )
    assert gpu_field.left_behind() == []


def test_failed_reset_is_an_error_and_a_later_sweep_repairs_it(gpu_field):
    gpu_field.change(reset="!999")
    gpu_field.write_gpu_matrix("tiny/honest", "tiny/wrong", clocks="lock")
    ran = gpu_field.run(*PROCESSES)
    assert ran.returncode == 4
    told = events(ran.stdout)
    assert [event["lane"] for event in told if event["event"] == "gpu_quarantined"] == [gpu_field.board.uuid]
    assert told[-1]["left"] == 1, "nothing more runs on that GPU"
    (record,) = gpu_field.records()
    assert (record["host"]["clocks"]["reset"], record["host"]["health"]["quarantined"]) == ("failed", True)
    assert "its clocks could not be given back" in record["host"]["health"]["reason"]

    swept = gpu_field.call("sweep")
    assert swept.returncode == 4
    assert f"settings of {gpu_field.board.uuid}" in swept.stderr
    assert gpu_field.board.state == gpu_field.board.locked

    gpu_field.change(reset=None)
    swept = gpu_field.call("sweep")
    assert swept.returncode == 0
    assert f"clocks of {gpu_field.board.uuid}" in swept.stdout
    assert gpu_field.left_behind() == []
    assert gpu_field.run(*PROCESSES).returncode == 0
    assert len(gpu_field.records()) == 2


def test_reset_that_falsely_reports_success_is_not_confirmed(gpu_field):
    gpu_field.change(reset_ignored=1)
    gpu_field.write_gpu_matrix("tiny/honest", clocks="lock")
    gpu_field.run(*PROCESSES)
    (record,) = gpu_field.records()
    assert record["host"]["clocks"]["reset"] != "confirmed"
    assert gpu_field.board.not_reset in record["host"]["clocks"]["reset_reason"]


@of_one_vendor
def test_a_process_that_is_there_before_is_waited_for(gpu_field):
    gpu_field.write_gpu_matrix("tiny/honest")
    with gpu_field.stranger():
        runner = gpu_field.start("run", "--json", *PROCESSES)
        await_event(runner, "cell_started")
        until(lambda: not gpu_field.lock_is_free())
        time.sleep(LONG_ENOUGH_S)  # a runner that does not wait has started its processes by then
        assert gpu_field.roles() == []
    with runner:
        runner.communicate(timeout=RUN_LIMIT_S)
    assert runner.returncode == 0
    (record,) = gpu_field.records()
    assert (record["outcome"]["status"], record["host"]["exclusive"]) == ("passed", "proven")
    assert record["host"]["phases_s"]["lease_wait"] >= LONG_ENOUGH_S


@of_one_vendor
def test_a_process_that_stays_makes_the_gpu_busy(gpu_field):
    gpu_field.write_gpu_matrix("tiny/honest", gpu_wait_s=0.3, infra_retries=0, clocks="lock")
    with gpu_field.stranger() as pid:
        ran = gpu_field.run(*PROCESSES)
    assert ran.returncode == 75
    (record,) = gpu_field.records()
    assert (record["outcome"]["status"], record["outcome"]["stage"]) == ("gpu_busy", "lease")
    assert f"{pid} (sleep)" in record["outcome"]["evidence"]["message"]
    assert gpu_field.driver.log() == [], "what is not ours alone is left as it is"
    assert gpu_field.run(*PROCESSES).returncode == 0
    assert gpu_field.outcomes() == [(1, "gpu_busy"), (2, "passed")]


@of_one_vendor
@pytest.mark.parametrize("phase", ["load", "verify", "time"])
def test_foreign_process_in_any_phase_spoils_only_that_attempt(gpu_field, phase):
    gpu_field.write_gpu_matrix("tiny/honest", clocks="lock", **LONG)
    gpu_field.write_pausing(phase)
    with gpu_field.start("run", "--json", *PROCESSES) as runner:
        folder = gpu_field.await_pause()
        pid = visit(gpu_field)
        go_on(folder)
        await_event(runner, "cell_retried")
        go_on(gpu_field.await_pause())
        runner.communicate(timeout=RUN_LIMIT_S)
    assert runner.returncode == 0
    assert gpu_field.outcomes() == [(1, "contended"), (2, "passed")]
    spoiled, good = (record["host"] for record in gpu_field.records())
    assert (spoiled["foreign_pids"], spoiled["exclusive"]) == ([pid], "unproven")
    assert (list(spoiled["telemetry"]["discarded"]) == [f"contended: pid {pid}"]) == (phase == "time")
    assert (good["foreign_pids"], good["exclusive"], good["telemetry"]["discarded"]) == ([], "proven", {})
    assert gpu_field.left_behind() == []


@of_one_vendor
def test_samples_beside_a_stranger_are_marked_one_by_one(gpu_field):
    gpu_field.write_gpu_matrix("tiny/honest", **LONG, infra_retries=0)
    gpu_field.write_pausing("time", call_s=0.05)  # so that it is timed for long after the stranger has left
    with gpu_field.start("run", "--json", *PROCESSES) as runner:
        folder = gpu_field.await_pause()
        pid = visit(gpu_field)
        go_on(folder)
        runner.communicate(timeout=RUN_LIMIT_S)
    (record,) = gpu_field.records()
    blocks = [block for workload in record["sessions"][0]["workloads"] for block in workload["blocks"]]
    causes = [{cause for _, cause in block["discarded"]} for block in blocks]
    assert {f"contended: pid {pid}"} in causes
    assert set() in causes, "what was timed without company stays"
    assert record["host"]["telemetry"]["discarded"] == {
        f"contended: pid {pid}": sum(len(block["discarded"]) for block in blocks)
    }


@of_one_vendor
def test_foreign_process_in_each_attempt_makes_cell_contended(gpu_field):
    gpu_field.write_gpu_matrix("tiny/honest", **LONG)
    gpu_field.write_pausing("verify")
    with gpu_field.start("run", "--json", *PROCESSES) as runner:
        for _ in range(2):
            folder = gpu_field.await_pause()
            visit(gpu_field)
            go_on(folder)
        runner.communicate(timeout=RUN_LIMIT_S)
    assert runner.returncode == 4
    assert gpu_field.outcomes() == [(1, "contended"), (2, "contended")]


@pytest.mark.parametrize(
    ("board", "code"),
    [("nvidia", ""), ("nvidia", "!999"), ("amd", "")],
    ids=["nvidia lost", "nvidia off the bus", "amd lost"],
    indirect=["board"],
)
def test_gpu_lost_while_timing_is_quarantined_and_returns_clean(gpu_field, code):
    gpu_field.write_gpu_matrix("tiny/honest", "tiny/wrong", clocks="lock", **LONG)
    gpu_field.write_pausing("time")
    with gpu_field.start("run", "--json", *PROCESSES) as runner:
        gpu_field.await_pause()
        gpu_field.change(lost=code or gpu_field.board.lost)
        out, _ = runner.communicate(timeout=RUN_LIMIT_S)
    assert runner.returncode == 4
    told = events(out)
    assert [event["lane"] for event in told if event["event"] == "gpu_quarantined"] == [gpu_field.board.uuid]
    assert told[-1]["left"] == 1, "nothing more runs on that GPU"
    (record,) = gpu_field.records()
    assert (record["outcome"]["status"], record["outcome"]["fault"]) == ("gpu_lost", "infra")
    assert (record["host"]["clocks"]["reset"], record["host"]["health"]["quarantined"]) == ("failed", True)
    assert gpu_field.roles() == []
    assert gpu_field.lock_is_free()

    gpu_field.change(lost=None)  # as after a restart that kept its settings
    with gpu_field.start("run", "--json", *PROCESSES) as again:
        go_on(gpu_field.await_pause())
        out, _ = again.communicate(timeout=RUN_LIMIT_S)
    assert again.returncode == 0
    assert any("given back" in str(event.get("text")) for event in events(out))
    assert sorted(gpu_field.outcomes()) == [(1, "gpu_lost"), (1, "incorrect_values"), (2, "passed")]
    assert gpu_field.left_behind() == []
