"""What killed runners left set on a simulated GPU is given back by another process."""

import json
import os

import pytest
from sim.nvml import A100, GTX_1080, H200, RTX_4090, SetState

from kernel_matrix.lease.journal import journal_file
from kernel_matrix.lease.locks import LeaseWait, lock_file, locked
from kernel_matrix.lease.repair import sweep_gpus
from tests.lease.settings import Program, calls, killed_while_holding
from tests.pipes import read_line

UUID = H200["uuid"]
JOURNAL = f"{UUID}.settings.json"
FORBID = {"KERNEL_MATRIX_GPU_SETTINGS": "forbid"}
DEFAULT, EXCLUSIVE = 0, 3


def killed_in_hard_mode(driver, folder, *, verb="hard"):
    program = Program(driver, folder, verb, gpu=H200, hard_exclusive=True)
    program.hears()
    assert program.obey("engage")["engaged"] is True
    program.kill()


def repaired(driver, folder, *, gpu=H200, **how):
    return Program(driver, folder, "repair", gpu=gpu, **how).end()


def swept(driver, folder, **how):
    return Program(driver, folder, "sweep", gpu=H200, **how).end()["lines"]


def test_where_there_is_no_journal_there_is_nothing_to_repair(driver, tmp_path):
    driver.set(H200)
    assert repaired(driver, tmp_path, environment=FORBID) == {"lines": []}
    assert swept(driver, tmp_path) == []
    assert calls(driver) == []


def test_a_killed_holders_clocks_are_given_back_by_the_next(driver, tmp_path):
    driver.set(H200)
    dead = killed_while_holding(driver, tmp_path)
    assert driver.state(UUID) == SetState(sm_locked=(1500, 1500), memory_locked=(3201, 3201))
    (line,) = repaired(driver, tmp_path)["lines"]
    assert line.startswith(
        f"clocks of {UUID} (NVIDIA H200), locked by run run-7 whose runner (process {dead.pid}) is gone, were given "
        "back: the SM clock left 1500 MHz for 1980 MHz"
    )
    assert driver.state(UUID) == SetState()
    assert not (tmp_path / JOURNAL).exists()
    assert repaired(driver, tmp_path) == {"lines": []}


def test_clocks_are_reset_after_a_kill_before_the_setting(driver, tmp_path):
    driver.set(H200)
    Program(driver, tmp_path, "clocks", gpu=H200, clock_target=1500, die_at="nvmlDeviceSetGpuLockedClocks").dies()
    assert calls(driver) == []
    assert json.loads((tmp_path / JOURNAL).read_text())["sm"]["target_mhz"] == 1500
    (line,) = repaired(driver, tmp_path)["lines"]
    assert "but that is not confirmed" in line
    assert "was 1980 MHz before the reset already" in line
    assert calls(driver) == ["ResetGpuLockedClocks -> 0"]


def test_killed_between_the_two_clocks_both_are_reset(driver, tmp_path):
    driver.set(H200)
    Program(driver, tmp_path, "clocks", gpu=H200, clock_target=1500, die_at="nvmlDeviceSetMemoryLockedClocks").dies()
    assert driver.state(UUID) == SetState(sm_locked=(1500, 1500))
    repaired(driver, tmp_path)
    assert calls(driver)[1:] == ["ResetGpuLockedClocks -> 0", "ResetMemoryLockedClocks -> 0"]
    assert driver.state(UUID) == SetState()


def test_journalled_memory_clock_without_lock_needs_no_reset(driver, tmp_path):
    driver.set({**H200, "memory_lockable": None})
    Program(driver, tmp_path, "clocks", gpu=H200, clock_target=1500, die_at="nvmlDeviceSetMemoryLockedClocks").dies()
    (line,) = repaired(driver, tmp_path)["lines"]
    assert "the SM clock left 1500 MHz" in line
    assert not (tmp_path / JOURNAL).exists()


def test_killed_while_giving_back_the_rest_is_given_back(driver, tmp_path):
    driver.set(H200)
    program = Program(driver, tmp_path, "clocks", gpu=H200, die_at="nvmlDeviceResetMemoryLockedClocks")
    program.hears()
    program.dies()
    assert driver.state(UUID) == SetState(memory_locked=(3201, 3201))
    repaired(driver, tmp_path)
    assert driver.state(UUID) == SetState()


def test_a_killed_holders_hard_mode_is_ended(driver, tmp_path):
    driver.set(H200)
    killed_in_hard_mode(driver, tmp_path)
    (line,) = repaired(driver, tmp_path)["lines"]
    assert line.startswith(f"compute mode of {UUID} (NVIDIA H200), set by run run-7 whose runner")
    assert line.endswith("is gone, was given back: the compute mode is default")
    assert driver.state(UUID) == SetState(compute_mode=DEFAULT)
    assert not (tmp_path / JOURNAL).exists()


def test_killed_between_journal_and_hard_mode_nothing_is_set(driver, tmp_path):
    driver.set(H200)
    program = Program(driver, tmp_path, "hard", gpu=H200, hard_exclusive=True, die_at="nvmlDeviceSetComputeMode")
    program.hears()
    with pytest.raises(json.JSONDecodeError):
        program.obey("engage")
    program.dies()
    assert (tmp_path / JOURNAL).exists()
    assert repaired(driver, tmp_path) == {"lines": []}
    assert calls(driver) == []
    assert not (tmp_path / JOURNAL).exists()


def test_clocks_and_hard_mode_are_both_given_back(driver, tmp_path):
    driver.set(H200)
    killed_in_hard_mode(driver, tmp_path, verb="both")
    assert [line.split()[0] for line in repaired(driver, tmp_path)["lines"]] == ["clocks", "compute"]
    assert driver.state(UUID) == SetState(compute_mode=DEFAULT)


def test_forbidden_settings_refuse_the_gpu_without_a_call(driver, tmp_path):
    driver.set(H200)
    killed_while_holding(driver, tmp_path)
    before = calls(driver)
    told = repaired(driver, tmp_path, environment=FORBID)
    assert (told["error"], told["permitted"]) == ("GpuSettingError", False)
    assert "still in force: this host forbids changing it: KERNEL_MATRIX_GPU_SETTINGS=forbid" in told["what"]
    assert calls(driver) == before
    assert (tmp_path / JOURNAL).exists()


def test_repair_without_permission_refuses_with_manual_steps(driver, tmp_path):
    driver.set(H200)
    killed_while_holding(driver, tmp_path)
    driver.set(H200, unprivileged=1)
    told = repaired(driver, tmp_path)
    assert (told["error"], told["permitted"]) == ("GpuSettingError", False)
    assert f"settings of {UUID} (NVIDIA H200), made by run run-7 whose runner" in told["what"]
    for option in ("-rgc", "-rmc", "-c 0"):
        assert f"`nvidia-smi -i {UUID} {option}`" in told["what"]
    assert f"remove {tmp_path / JOURNAL}" in told["what"]
    assert (tmp_path / JOURNAL).exists()
    driver.set(H200)
    assert len(repaired(driver, tmp_path)["lines"]) == 1


def test_failed_reset_refuses_the_gpu_and_keeps_the_journal(driver, tmp_path):
    driver.set(H200)
    killed_in_hard_mode(driver, tmp_path, verb="both")
    driver.change(UUID, reset="!999")
    told = repaired(driver, tmp_path)
    assert (told["error"], told["permitted"]) == ("GpuSettingError", True)
    assert "SM clock reset: not done" in told["what"]
    noted = json.loads((tmp_path / JOURNAL).read_text())
    assert noted["sm"]
    assert noted["compute_mode"] is None
    assert driver.state(UUID).compute_mode == DEFAULT


def test_a_reset_that_is_ignored_is_not_told_as_confirmed(driver, tmp_path):
    driver.set({**H200, "reset_ignored": 1})
    killed_while_holding(driver, tmp_path)
    (line,) = repaired(driver, tmp_path)["lines"]
    assert "were given back, but that is not confirmed: the SM clock was 1980 MHz before the lock" in line


def test_a_lost_gpu_is_said_to_be_lost_and_stays_in_the_journal(driver, tmp_path):
    driver.set(H200)
    killed_while_holding(driver, tmp_path)
    driver.change(UUID, lost="!15")
    assert repaired(driver, tmp_path)["error"] == "GpuLostError"
    assert (tmp_path / JOURNAL).exists()


def test_living_owner_without_the_gpu_is_named_as_such(driver, tmp_path):
    driver.set(H200)
    program = Program(driver, tmp_path, "clocks", gpu=H200, clock_target=1500)
    program.hears()
    (line,) = repaired(driver, tmp_path)["lines"]
    assert f"(process {program.pid}) no longer holds the GPU, were given back" in line
    program.kill()


TWO_CELLS = """
import json, sys
from pathlib import Path
from kernel_matrix.model.enums import ClockPolicy
from kernel_matrix.platforms import Gpu
from kernel_matrix.lease.clock_lock import clocks_held
from kernel_matrix.lease.repair import repair
from kernel_matrix.lease.terms import LeaseTerms
folder, gpu = Path(sys.stdin.readline().strip()), Gpu(platform="cuda", uuid=sys.stdin.readline().strip(), name="one")
with clocks_held(gpu, LeaseTerms(wait_s=0, cell_id="first", clocks=ClockPolicy.LOCK), folder) as held:
    pass
print(held.reset.value, flush=True)
sys.stdin.readline()
print(json.dumps(repair(gpu, folder)))
"""


def test_what_an_earlier_cell_of_this_process_left_is_given_back(driver, tmp_path):
    driver.set({**H200, "reset": "!999"})
    with driver.start(TWO_CELLS) as process:
        process.stdin.write(f"{tmp_path}\n{UUID}\n")
        process.stdin.flush()
        assert read_line(process) == "failed\n"
        driver.change(UUID, reset=None)
        (line,) = json.loads(process.communicate("\n", timeout=60)[0])
    assert line.startswith(
        f"clocks of {UUID} (one), locked by an earlier cell (first) of this very run, were given back"
    )
    assert driver.state(UUID) == SetState()


def spoil(path):
    path.write_text("{")


def give_away(path):
    if os.geteuid() != 0:
        pytest.skip("only root can make another user's file")
    os.chown(path, 65534, 65534)


@pytest.mark.parametrize(("change", "why"), [(spoil, "cannot be understood"), (give_away, "belongs to user 65534")])
def test_untrusted_journal_resets_everything(driver, tmp_path, change, why):
    driver.set(H200)
    killed_in_hard_mode(driver, tmp_path, verb="both")
    change(tmp_path / JOURNAL)
    clocks, mode = repaired(driver, tmp_path)["lines"]
    assert (
        f"clocks of {UUID} (NVIDIA H200), locked by an unknown runner (its journal {tmp_path / JOURNAL} {why}" in clocks
    )
    assert "but that is not confirmed" in clocks
    assert mode.endswith("the compute mode is default")
    assert driver.state(UUID) == SetState(compute_mode=DEFAULT)
    assert not (tmp_path / JOURNAL).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_a_stranger_cannot_have_a_mode_of_his_choice_set(driver, tmp_path):
    driver.set(H200)
    killed_in_hard_mode(driver, tmp_path)
    path = tmp_path / JOURNAL
    path.write_text(path.read_text().replace('"default"', '"prohibited"'))
    give_away(path)
    repaired(driver, tmp_path)
    assert driver.state(UUID) == SetState(compute_mode=DEFAULT)


def test_spoilt_journal_of_an_unsettable_gpu_is_removed(driver, tmp_path):
    driver.set(GTX_1080)
    path = tmp_path / f"{GTX_1080['uuid']}.settings.json"
    path.write_text("")
    assert repaired(driver, tmp_path, gpu=GTX_1080) == {"lines": []}
    assert not path.exists()


def test_a_spoilt_journal_stays_until_everything_is_given_back(driver, tmp_path):
    driver.set({**H200, "reset": "!999"})
    (tmp_path / JOURNAL).write_text("")
    assert "SM clock reset: not done" in repaired(driver, tmp_path)["what"]
    assert (tmp_path / JOURNAL).read_text() == ""


def test_sweep_repairs_free_gpus_and_reports_failures(driver, tmp_path):
    driver.set(H200, A100, RTX_4090)
    for gpu, target in ((H200, 1500), (A100, 1200), (RTX_4090, 2100)):
        killed_while_holding(driver, tmp_path, gpu=gpu, clock_target=target)
    driver.change(A100["uuid"], reset="!999")
    (tmp_path / "GPU-gone.settings.json").write_text("{}")
    with locked(lock_file(tmp_path, RTX_4090["uuid"]), LeaseWait("", limit_s=0)):
        lines = swept(driver, tmp_path)
    repaired_line, failed, unknown = sorted(lines)
    assert repaired_line.startswith(f"clocks of {UUID}")
    assert unknown.startswith(f"not repaired: settings of {A100['uuid']}")
    assert failed.startswith(f"not repaired: {tmp_path / 'GPU-gone.settings.json'} names settings of a GPU")
    assert driver.state(UUID) == SetState()
    assert driver.state(RTX_4090["uuid"]).sm_locked == (2100, 2100)
    driver.change(A100["uuid"], reset=None)
    assert len(swept(driver, tmp_path)) == 3  # the other two, and the one that is not there
    assert driver.state(RTX_4090["uuid"]) == SetState()


def test_sweep_removes_half_written_journals_of_free_gpus(tmp_path):
    held, free = (journal_file(tmp_path, uuid).with_suffix(".new") for uuid in ("GPU-held", "GPU-free"))
    for aside in (held, free):
        aside.write_text("half")
    with locked(lock_file(tmp_path, "GPU-held"), LeaseWait("held", limit_s=0)):
        assert sweep_gpus(tmp_path) == []
        assert (held.exists(), free.exists()) == (True, False)
    assert sweep_gpus(tmp_path) == []
    assert not held.exists()


def test_sweep_with_forbidden_settings_makes_no_call(driver, tmp_path):
    driver.set(H200)
    killed_while_holding(driver, tmp_path)
    before = calls(driver)
    (line,) = swept(driver, tmp_path, environment=FORBID)
    assert line.startswith("not repaired: settings of")
    assert "this host forbids" in line
    assert calls(driver) == before


def test_a_sweep_looks_in_this_hosts_lock_folder_by_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNEL_MATRIX_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setenv("KERNEL_MATRIX_GPU_SETTINGS", "allow")
    monkeypatch.setenv("KERNEL_MATRIX_HOST_FILE", str(tmp_path / "host.toml"))
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "cpu.settings.json").write_text("{}")
    assert sweep_gpus() == []
    assert list((tmp_path / "locks").glob("*.settings.json")) == []
