"""One attempt at a cell on a simulated GPU: telemetry joined to blocks, verdicts, health, quarantine."""

from __future__ import annotations

import os

import pytest
from sim.nvml import H200, SetState

from kernel_matrix.results.reading import check_consistency
from kernel_matrix.results.record import record_from_json
from kernel_matrix.results.store import RecordStore
from tests.attempt.gpu_stage import OTHER, UUID, on_driver

HOT, CAP = 0x40, 0x4


@pytest.fixture
def ran(driver, tmp_path):
    """Runs one cell, whose judge and policy are Python source, and returns its result."""
    driver.set(H200)
    left = {"allowed": True}

    def performed(judge="times()", policy="", *, settings_left=False, **environment):
        left["allowed"] = settings_left
        program = f"tell(attempt(stage, cell(stage, {judge}, {policy})), stage)"
        told = on_driver(driver, tmp_path, program, **environment)
        check_consistency(told["record"])
        record_from_json(told["record"])
        assert (told["alive"], told["scratch"]) == (0, [])
        return told

    yield performed
    assert left["allowed"] or driver.state(UUID) == SetState()


def outcome(told):
    said = told["record"]["outcome"]
    return said["status"], said["stage"], said["evidence"]["message"]


def blocks(told):
    return told["record"]["sessions"][0]["workloads"][0]["blocks"]


def causes(told):
    return ["".join({cause for _, cause in block["discarded"]}) for block in blocks(told)]


def test_a_quiet_gpu_is_told_whole(ran, driver):
    told = ran()
    host = told["record"]["host"]
    assert outcome(told)[0] == "passed"
    assert (host["exclusive"], host["foreign_pids"], told["quarantine"]) == ("proven", [], "")
    assert (host["clock_state"], host["clock_reason"]) == ("unlocked", "policy observe: nothing was changed")
    assert (host["clocks"]["driver_sm_mhz"], host["clocks"]["kernel_sm_mhz"]) == (1980, 1500)
    assert host["clocks"]["reset"] == "not_needed"
    assert [(block["sm_clock_mhz"], block["temperature_c"]) for block in blocks(told)] == [(1980, 41)] * 4
    assert (host["telemetry"]["joined"], host["telemetry"]["discarded"]) == ("yes", {})
    assert len(host["telemetry"]["own_pids"]) == 1
    assert host["telemetry"]["trace"] == f"{told['record']['cell_id']}.1.json.gz"
    assert told["trace"] > host["telemetry"]["samples"] > 4
    assert host["health"] == {
        "processes_gone": True,
        "memory_back": True,
        "probe": "passed",
        "reason": host["health"]["reason"],
        "quarantined": False,
    }
    assert host["peak"]["source"] == "table"
    assert host["device_details"]["missing"] == {} or all(host["device_details"]["missing"].values())
    assert told["launched"][-1] == "probe"
    assert {"probe", "aftermath"} <= host["phases_s"].keys()
    assert driver.log() == []


def test_judge_gets_its_gpu_and_probe_sees_no_candidate(driver, tmp_path):
    driver.set(H200)
    program = """
seen = {}
def notes(spec):
    seen[spec.role.value] = [sorted(mount.target for mount in spec.mounts), spec.gpu.uuid, spec.uid, list(spec.args)]
    if spec.role is Role.JUDGE:
        job = next(mount.source for mount in spec.mounts if mount.target == "/judge") / "job.json"
        seen["gpu_uuid"] = json.loads(job.read_text())["gpu_uuid"]
    return (times() if spec.role is Role.JUDGE else answers())(spec)
attempt(stage, cell(stage, notes, probe=notes))
print(json.dumps(seen))
"""
    seen = on_driver(driver, tmp_path, program)
    assert seen["gpu_uuid"] == UUID
    targets, uuid, uid, args = seen["probe"]
    assert (targets, uuid) == (["/out"], UUID)
    assert args == ["health", "--out", "/out", "--device", "cuda", "--devices", "1"]
    assert uid == seen["judge"][2]


# ---- Foreign processes


FOREIGN = "times({2: (changes(compute=f'{os.getpid()} " + str(os.getpid()) + "'), changes(compute=os.getpid()))})"
"""Make a judge in whose third block this test's own process uses the GPU for a moment."""


def test_foreign_process_discards_blocks_and_cell_repeats(ran):
    told = ran(FOREIGN)
    status, stage, message = outcome(told)
    assert (status, stage) == ("contended", "time")
    assert f"{os.getpid()} (" in message
    assert causes(told) == ["", "", f"contended: pid {os.getpid()}", ""]
    host = told["record"]["host"]
    assert (host["exclusive"], host["foreign_pids"]) == ("unproven", [os.getpid()])
    assert host["telemetry"]["discarded"] == {f"contended: pid {os.getpid()}": 10}
    assert told["quarantine"] == ""


def test_company_that_is_allowed_takes_no_sample(ran):
    told = ran(FOREIGN, "exclusive=False")
    assert outcome(told)[0] == "passed"
    assert causes(told) == ["", "", "", ""]
    assert told["record"]["host"]["exclusive"] == "unproven"


# ---- Throttling


def slow(reasons, *indices):
    """Make a judge in some of whose blocks the GPU slows down."""
    steps = ", ".join(f"{n}: (changes(event_reasons={reasons}), changes(event_reasons=0))" for n in indices)
    return f"times({{{steps}}})"


def test_a_few_throttled_samples_go(ran):
    told = ran(slow(HOT, 0))
    assert outcome(told)[0] == "passed"
    assert causes(told) == ["throttled: hw_thermal", "", "", ""]
    assert told["record"]["host"]["clock_state"] == "unlocked"
    assert 0 < told["record"]["host"]["telemetry"]["reasons"]["hw_thermal"] < 1


def test_too_many_make_the_cell_throttled(ran):
    told = ran(slow(HOT, 1, 2))
    status, _, message = outcome(told)
    assert (status, causes(told)) == ("throttled", ["", "", "", ""])
    assert "hw_thermal" in message
    assert told["record"]["host"]["clock_state"] == "throttled"


def test_a_kernel_at_the_power_limit_passes_and_says_so(ran, driver):
    driver.change(UUID, event_reasons=CAP)
    told = ran()
    assert (outcome(told)[0], causes(told)) == ("passed", ["", "", "", ""])
    assert told["record"]["host"]["clock_state"] == "throttled"


# ---- Clocks


def test_locked_clocks_are_verified_and_given_back(ran):
    told = ran(policy="clocks=ClockPolicy.REQUIRE")
    host = told["record"]["host"]
    assert outcome(told)[0] == "passed"
    assert (host["clock_policy"], host["clock_state"]) == ("require", "locked")
    clocks = host["clocks"]
    assert (clocks["requested"], clocks["driver_sm_mhz"], clocks["kernel_sm_mhz"]) == ("base", 1500, 1500)
    assert clocks["reset"] == "confirmed"


@pytest.mark.parametrize(("policy", "status"), [("LOCK", "passed"), ("REQUIRE", "clocks_not_held")])
def test_a_lock_that_is_not_obeyed_is_found_out(policy, status, ran, driver):
    driver.change(UUID, lock_ignored=1, clock_sm=1755)
    told = ran(policy=f"clocks=ClockPolicy.{policy}")
    host = told["record"]["host"]
    assert outcome(told)[0] == status
    assert host["clock_state"] == "unlocked"
    assert "according to the driver, but 1755 MHz" in host["clock_reason"]


def test_a_lock_that_no_kernel_confirms_is_not_verified(ran):
    told = ran("times(probes=())", policy="clocks=ClockPolicy.LOCK")
    assert outcome(told)[0] == "passed"
    assert told["record"]["host"]["clock_state"] == "unlocked"
    assert "not verified inside a kernel" in told["record"]["host"]["clock_reason"]


def test_required_clocks_on_a_host_that_forbids_them(ran, driver):
    told = ran(policy="clocks=ClockPolicy.REQUIRE", KERNEL_MATRIX_GPU_SETTINGS="forbid")
    status, stage, message = outcome(told)
    assert (status, stage) == ("clocks_not_held", "lease")
    assert "KERNEL_MATRIX_GPU_SETTINGS=forbid" in message
    assert (told["launched"], told["quarantine"], driver.log()) == ([], "", [])


# ---- Health


def test_clocks_that_cannot_be_given_back_quarantine_the_gpu(ran, driver):
    driver.change(UUID, reset="!999")
    told = ran(policy="clocks=ClockPolicy.LOCK", settings_left=True)
    host = told["record"]["host"]
    assert outcome(told)[0] == "passed"
    assert host["clocks"]["reset"] == "failed"
    assert host["health"]["quarantined"]
    assert told["quarantine"] == host["health"]["reason"]
    assert "could not be given back" in told["quarantine"]


def test_a_gpu_that_is_lost_ends_the_session_at_once(driver, tmp_path):
    driver.set(H200)
    program = """
made = cell(stage, loses())
stage.plays[Role.CANDIDATE, made.id] = [hangs]
tell(attempt(stage, made), stage)
"""
    told = on_driver(driver, tmp_path, program)
    status, stage, message = outcome(told)
    assert (status, stage) == ("gpu_lost", "time")
    assert "lost" in message
    assert told["record"]["host"]["health"]["probe"] == "not_run"
    assert "probe" not in told["launched"]
    assert "the GPU is lost" in told["quarantine"]
    assert told["record"]["host"]["phases_s"]["total"] < 20  # left alone, both would have stayed for longer
    assert (told["alive"], told["scratch"]) == (0, [])


def test_a_gpu_that_is_lost_before_is_quarantined_too(driver, tmp_path):
    driver.set(H200)
    program = """
made, here = cell(stage, times()), gpus()
World.here().change(UUID, lost="!15")
bench = RunContext(run_id="r", sandbox=stage, sandbox_status=stage.status(), owner=owner_token(), scratch=stage.scratch)
tell(run_cell(Assignment(cell=made, gpu=here[0]), bench), stage)
"""
    told = on_driver(driver, tmp_path, program)
    assert outcome(told)[:2] == ("gpu_lost", "lease")
    assert told["record"]["host"]["health"]["quarantined"]
    assert told["quarantine"]
    assert told["launched"] == []


def test_a_gpu_that_answers_wrong_is_quarantined(ran):
    told = ran(policy="probe=answers(passed=False, reason='17 of 1048576 answers are wrong')")
    health = told["record"]["host"]["health"]
    assert outcome(told)[0] == "passed"
    assert (health["probe"], health["quarantined"]) == ("failed", True)
    assert told["quarantine"] == health["reason"] == "the health probe failed: 17 of 1048576 answers are wrong"


def test_a_probe_that_cannot_be_started_says_nothing_of_the_gpu(ran):
    told = ran(policy="probe=cannot_start")
    health = told["record"]["host"]["health"]
    assert (health["probe"], health["quarantined"], told["quarantine"]) == ("not_run", False, "")
    assert "could not be started" in health["reason"]


def test_where_the_judge_has_asked_the_gpu_no_probe_is_started(ran):
    told = ran("times(health=WELL)")
    health = told["record"]["host"]["health"]
    assert (health["probe"], health["quarantined"]) == ("passed", False)
    assert "asked by the judge" in health["reason"]
    assert "probe" not in told["launched"]


ILL = "HealthReport(passed=False, reason='wrong')"
UNASKED = "HealthReport(passed=None, reason='no answer')"


@pytest.mark.parametrize(
    "judges",
    [
        f"times(health={ILL})",
        f"times(health={UNASKED})",
        "times(health=WELL), times()",
        "times(health=WELL), says(Status.CRASHED)",
        "times(health=WELL), vanishes",
    ],
)
def test_where_a_session_leaves_a_doubt_the_gpu_is_probed(judges, ran):
    told = ran(judges, "protocol=Protocol(sessions=2)" if ", " in judges.partition(")")[2] else "")
    assert told["launched"][-1] == "probe"


def test_where_no_probe_is_wanted_none_runs(ran):
    told = ran(policy="health_probe=False")
    assert told["record"]["host"]["health"]["probe"] == "not_run"
    assert "probe" not in told["launched"]


def test_memory_that_does_not_come_back_quarantines_the_gpu(driver, tmp_path):
    driver.set(H200)
    program = """
import kernel_matrix.lease.release_check
kernel_matrix.lease.release_check._LIMIT_S = 0.2
tell(attempt(stage, cell(stage, times({3: (changes(memory_used=9 << 30), changes())}))), stage)
"""
    told = on_driver(driver, tmp_path, program)
    assert told["record"]["host"]["health"]["memory_back"] is False
    assert "MiB in use" in told["quarantine"]


# ---- What is refused


def test_a_gpu_in_mig_mode_is_refused_with_the_reason(ran, driver):
    driver.change(UUID, mig="1 1")
    status, stage, message = outcome(ran())
    assert (status, stage) == ("infra_error", "lease")
    assert "MIG" in message


def test_record_and_trace_are_stored_together(driver, tmp_path):
    driver.set(H200)
    program = f"""
from kernel_matrix.results.store import RecordStore
ran = attempt(stage, cell(stage, times()))
path = RecordStore(Path({str(tmp_path / "results")!r})).save(ran.record, ran.trace)
print(json.dumps(str(path)))
"""
    on_driver(driver, tmp_path, program)
    store = RecordStore(tmp_path / "results")
    (path,) = store.records.iterdir()
    assert store.load(path).host.telemetry.trace == next(store.traces.iterdir()).name


# ---- A judge that serves several cells


def test_gpu_cells_share_a_judge_and_both_are_proven(driver, tmp_path):
    driver.set(H200)
    told = on_driver(driver, tmp_path, "tell_shared(stage)")
    first, second = told["records"]
    assert [record["outcome"]["status"] for record in (first, second)] == ["passed", "passed"]
    assert [record["host"]["exclusive"] for record in (first, second)] == ["proven", "proven"]
    assert [record["host"]["health"]["processes_gone"] for record in (first, second)] == [True, True]
    assert [record["host"]["health"]["memory_back"] for record in (first, second)] == [None, None]
    assert told["launched"].count("judge") == told["launched"].count("baseline") == 1
    assert told["locked"] == [True, True, False]
    assert (told["alive"], told["scratch"]) == (0, [])


def test_record_of_a_group_has_the_link_of_its_devices(driver, tmp_path):
    addresses = {"pci_bus_id": "00000000:1B:00.0", "links": "0:nvlink:4"}
    driver.set({**H200, "links": "1:nvlink:4"}, {**OTHER, **addresses})
    program = "from kernel_matrix.platforms import group_of\n"
    program += "tell(attempt(stage, cell(stage, vanishes), group_of(gpus())), stage)"
    host = on_driver(driver, tmp_path, program)["record"]["host"]
    assert len(host["devices"]) == 2
    assert host["link"] == {"kind": "nvlink", "lanes": 4, "bytes_per_s": 4 * 26_562e6, "peer": True}
    assert "links" not in host["device"]


def test_record_of_one_device_has_no_link(ran):
    assert ran()["record"]["host"]["link"] is None
