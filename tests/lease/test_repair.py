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


def journal(board):
    """Name of the journal of its settings."""
    return f"{board.uuid}.settings.json"


DEFAULT, EXCLUSIVE = 0, 3


def killed_in_hard_mode(board, folder, *, verb="hard"):
    program = Program(board, folder, verb, hard_exclusive=True)
    program.hears()
    assert program.obey("engage")["engaged"] is True
    program.kill()


def repaired(board, folder, **how):
    return Program(board, folder, "repair", **how).end()


def swept(board, folder, **how):
    return Program(board, folder, "sweep", **how).end()["lines"]


def test_where_there_is_no_journal_there_is_nothing_to_repair(board, tmp_path):
    board.set()
    assert repaired(board, tmp_path, environment=FORBID) == {"lines": []}
    assert swept(board, tmp_path) == []
    assert calls(board) == []


def test_a_killed_holders_clocks_are_given_back_by_the_next(board, tmp_path):
    board.set()
    dead = killed_while_holding(board, tmp_path)
    assert board.state == board.locked
    (line,) = repaired(board, tmp_path)["lines"]
    owner = f"run run-7 whose runner (process {dead.pid}) is gone"
    assert line.startswith(f"clocks of {board.uuid} ({board.gpu['name']}), locked by {owner}, were given back: ")
    assert f"the SM clock left 1500 MHz for {board.clock} MHz" in line
    assert board.state.is_given_back
    assert not (tmp_path / journal(board)).exists()
    assert repaired(board, tmp_path) == {"lines": []}


def test_clocks_are_reset_after_a_kill_before_the_setting(board, tmp_path):
    board.set()
    Program(board, tmp_path, "clocks", clock_target=1500, die_at=board.lock_function).dies()
    assert calls(board) == []
    assert json.loads((tmp_path / journal(board)).read_text())["sm"]["target_mhz"] == 1500
    (line,) = repaired(board, tmp_path)["lines"]
    assert "but that is not confirmed" in line
    assert f"was {board.clock} MHz before the reset already" in line
    (call,) = calls(board)
    assert call.endswith("-> 0")


def test_killed_between_the_two_clocks_both_are_reset(nvidia, tmp_path):
    nvidia.set()
    Program(nvidia, tmp_path, "clocks", clock_target=1500, die_at="nvmlDeviceSetMemoryLockedClocks").dies()
    assert nvidia.state == SetState(sm_locked=(1500, 1500))
    repaired(nvidia, tmp_path)
    assert calls(nvidia)[1:] == ["ResetGpuLockedClocks -> 0", "ResetMemoryLockedClocks -> 0"]
    assert nvidia.state == SetState()


def test_journalled_memory_clock_without_lock_needs_no_reset(nvidia, tmp_path):
    nvidia.set({"memory_lockable": None})
    Program(nvidia, tmp_path, "clocks", clock_target=1500, die_at="nvmlDeviceSetMemoryLockedClocks").dies()
    (line,) = repaired(nvidia, tmp_path)["lines"]
    assert "the SM clock left 1500 MHz" in line
    assert not (tmp_path / JOURNAL).exists()


def test_killed_while_giving_back_the_rest_is_given_back(nvidia, tmp_path):
    nvidia.set()
    program = Program(nvidia, tmp_path, "clocks", die_at="nvmlDeviceResetMemoryLockedClocks")
    program.hears()
    program.dies()
    assert nvidia.state == SetState(memory_locked=(3201, 3201))
    repaired(nvidia, tmp_path)
    assert nvidia.state == SetState()


def test_a_killed_holders_hard_mode_is_ended(nvidia, tmp_path):
    nvidia.set()
    killed_in_hard_mode(nvidia, tmp_path)
    (line,) = repaired(nvidia, tmp_path)["lines"]
    assert line.startswith(f"compute mode of {UUID} (NVIDIA H200), set by run run-7 whose runner")
    assert line.endswith("is gone, was given back: the compute mode is default")
    assert nvidia.state == SetState(compute_mode=DEFAULT)
    assert not (tmp_path / JOURNAL).exists()


def test_killed_between_journal_and_hard_mode_nothing_is_set(nvidia, tmp_path):
    nvidia.set()
    program = Program(nvidia, tmp_path, "hard", hard_exclusive=True, die_at="nvmlDeviceSetComputeMode")
    program.hears()
    with pytest.raises(json.JSONDecodeError):
        program.obey("engage")
    program.dies()
    assert (tmp_path / JOURNAL).exists()
    assert repaired(nvidia, tmp_path) == {"lines": []}
    assert calls(nvidia) == []
    assert not (tmp_path / JOURNAL).exists()


def test_clocks_and_hard_mode_are_both_given_back(nvidia, tmp_path):
    nvidia.set()
    killed_in_hard_mode(nvidia, tmp_path, verb="both")
    assert [line.split()[0] for line in repaired(nvidia, tmp_path)["lines"]] == ["clocks", "compute"]
    assert nvidia.state == SetState(compute_mode=DEFAULT)


def test_forbidden_settings_refuse_the_gpu_without_a_call(board, tmp_path):
    board.set()
    killed_while_holding(board, tmp_path)
    before = calls(board)
    told = repaired(board, tmp_path, environment=FORBID)
    assert (told["error"], told["permitted"]) == ("GpuSettingError", False)
    assert "still in force: this host forbids changing it: KERNEL_MATRIX_GPU_SETTINGS=forbid" in told["what"]
    assert calls(board) == before
    assert (tmp_path / journal(board)).exists()


def test_repair_without_permission_refuses_with_manual_steps(board, tmp_path):
    board.set()
    killed_while_holding(board, tmp_path)
    board.set(unprivileged=1)
    told = repaired(board, tmp_path)
    assert (told["error"], told["permitted"]) == ("GpuSettingError", False)
    assert f"settings of {board.uuid} ({board.gpu['name']}), made by run run-7 whose runner" in told["what"]
    assert [command for command in board.by_hand if command not in told["what"]] == []
    assert f"remove {tmp_path / journal(board)}" in told["what"]
    assert (tmp_path / journal(board)).exists()
    board.set()
    assert len(repaired(board, tmp_path)["lines"]) == 1


def test_failed_reset_refuses_the_gpu_and_keeps_the_journal(nvidia, tmp_path):
    nvidia.set()
    killed_in_hard_mode(nvidia, tmp_path, verb="both")
    nvidia.driver.change(UUID, reset="!999")
    told = repaired(nvidia, tmp_path)
    assert (told["error"], told["permitted"]) == ("GpuSettingError", True)
    assert "SM clock reset: not done" in told["what"]
    noted = json.loads((tmp_path / journal(nvidia)).read_text())
    assert noted["sm"]
    assert noted["compute_mode"] is None
    assert nvidia.state.compute_mode == DEFAULT


def test_a_reset_that_is_ignored_is_not_told_as_confirmed(nvidia, tmp_path):
    nvidia.set({"reset_ignored": 1})
    killed_while_holding(nvidia, tmp_path)
    (line,) = repaired(nvidia, tmp_path)["lines"]
    assert f"were given back, but that is not confirmed: the SM clock was {nvidia.clock} MHz before the lock" in line


def test_a_lost_gpu_is_said_to_be_lost_and_stays_in_the_journal(board, tmp_path):
    board.set()
    killed_while_holding(board, tmp_path)
    board.driver.change(board.uuid, lost=board.lost)
    assert repaired(board, tmp_path)["error"] == "GpuLostError"
    assert (tmp_path / journal(board)).exists()


def test_living_owner_without_the_gpu_is_named_as_such(board, tmp_path):
    board.set()
    program = Program(board, tmp_path, "clocks", clock_target=1500)
    program.hears()
    (line,) = repaired(board, tmp_path)["lines"]
    assert f"(process {program.pid}) no longer holds the GPU, were given back" in line
    program.kill()


TWO_CELLS = """
import sys
from pathlib import Path
from kernel_matrix.model.enums import ClockPolicy
from kernel_matrix.lease.clock_lock import clocks_held
from kernel_matrix.lease.repair import repair
from kernel_matrix.lease.terms import LeaseTerms
folder = Path(sys.stdin.readline().strip())
terms = LeaseTerms(wait_s=0, cell_id="first", clocks=ClockPolicy.LOCK, clock_target=1500)
with clocks_held(gpu, terms, folder) as held:
    pass
print(held.reset.value, flush=True)
sys.stdin.readline()
print(json.dumps(repair(gpu, folder)))
"""


def test_what_an_earlier_cell_of_this_process_left_is_given_back(board, tmp_path):
    board.set({"reset": "!999"})
    with board.driver.start(board.program + TWO_CELLS) as process:
        process.stdin.write(f"{tmp_path}\n")
        process.stdin.flush()
        assert read_line(process) == "failed\n"
        board.driver.change(board.uuid, reset=None)
        (line,) = json.loads(process.communicate("\n", timeout=60)[0])
    assert line.startswith(
        f"clocks of {board.uuid} (), locked by an earlier cell (first) of this very run, were given back"
    )
    assert board.state.is_given_back


def spoil(path):
    path.write_text("{")


def give_away(path):
    if os.geteuid() != 0:
        pytest.skip("only root can make another user's file")
    os.chown(path, 65534, 65534)


@pytest.mark.parametrize(("change", "why"), [(spoil, "cannot be understood"), (give_away, "belongs to user 65534")])
def test_untrusted_journal_resets_the_clocks(board, tmp_path, change, why):
    board.set()
    killed_while_holding(board, tmp_path)
    change(tmp_path / journal(board))
    clocks, *_ = repaired(board, tmp_path)["lines"]
    assert f"locked by an unknown runner (its journal {tmp_path / journal(board)} {why}" in clocks
    assert "but that is not confirmed" in clocks
    assert board.state.is_given_back
    assert not (tmp_path / journal(board)).exists()


def test_untrusted_journal_resets_the_compute_mode(nvidia, tmp_path):
    nvidia.set()
    killed_in_hard_mode(nvidia, tmp_path, verb="both")
    spoil(tmp_path / JOURNAL)
    _, mode = repaired(nvidia, tmp_path)["lines"]
    assert mode.endswith("the compute mode is default")
    assert nvidia.state == SetState(compute_mode=DEFAULT)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's file")
def test_a_stranger_cannot_have_a_mode_of_his_choice_set(nvidia, tmp_path):
    nvidia.set()
    killed_in_hard_mode(nvidia, tmp_path)
    path = tmp_path / JOURNAL
    path.write_text(path.read_text().replace('"default"', '"prohibited"'))
    give_away(path)
    repaired(nvidia, tmp_path)
    assert nvidia.state == SetState(compute_mode=DEFAULT)


def test_spoilt_journal_of_an_unsettable_gpu_is_removed(nvidia, tmp_path):
    nvidia.driver.set(GTX_1080)
    path = tmp_path / f"{GTX_1080['uuid']}.settings.json"
    path.write_text("")
    assert repaired(nvidia, tmp_path, gpu=GTX_1080) == {"lines": []}
    assert not path.exists()


def test_a_spoilt_journal_stays_until_everything_is_given_back(board, tmp_path):
    board.set({"reset": "!999"})
    (tmp_path / journal(board)).write_text("")
    assert "SM clock reset: not done" in repaired(board, tmp_path)["what"]
    assert (tmp_path / journal(board)).read_text() == ""


def test_sweep_repairs_free_gpus_and_reports_failures(nvidia, tmp_path):
    nvidia.driver.set(H200, A100, RTX_4090)
    for gpu, target in ((H200, 1500), (A100, 1200), (RTX_4090, 2100)):
        killed_while_holding(nvidia, tmp_path, gpu=gpu, clock_target=target)
    nvidia.driver.change(A100["uuid"], reset="!999")
    (tmp_path / "GPU-gone.settings.json").write_text("{}")
    with locked(lock_file(tmp_path, RTX_4090["uuid"]), LeaseWait("", limit_s=0)):
        lines = swept(nvidia, tmp_path)
    repaired_line, failed, unknown = sorted(lines)
    assert repaired_line.startswith(f"clocks of {UUID}")
    assert unknown.startswith(f"not repaired: settings of {A100['uuid']}")
    assert failed.startswith(f"not repaired: {tmp_path / 'GPU-gone.settings.json'} names settings of a GPU")
    assert nvidia.state == SetState()
    assert nvidia.driver.state(RTX_4090["uuid"]).sm_locked == (2100, 2100)
    nvidia.driver.change(A100["uuid"], reset=None)
    assert len(swept(nvidia, tmp_path)) == 3  # the other two, and the one that is not there
    assert nvidia.driver.state(RTX_4090["uuid"]) == SetState()


def test_sweep_removes_half_written_journals_of_free_gpus(tmp_path):
    held, free = (journal_file(tmp_path, uuid).with_suffix(".new") for uuid in ("GPU-held", "GPU-free"))
    for aside in (held, free):
        aside.write_text("half")
    with locked(lock_file(tmp_path, "GPU-held"), LeaseWait("held", limit_s=0)):
        assert sweep_gpus(tmp_path) == []
        assert (held.exists(), free.exists()) == (True, False)
    assert sweep_gpus(tmp_path) == []
    assert not held.exists()


def test_sweep_with_forbidden_settings_makes_no_call(board, tmp_path):
    board.set()
    killed_while_holding(board, tmp_path)
    before = calls(board)
    (line,) = swept(board, tmp_path, environment=FORBID)
    assert line.startswith("not repaired: settings of")
    assert "this host forbids" in line
    assert calls(board) == before


def test_a_sweep_looks_in_this_hosts_lock_folder_by_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNEL_MATRIX_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setenv("KERNEL_MATRIX_GPU_SETTINGS", "allow")
    monkeypatch.setenv("KERNEL_MATRIX_HOST_FILE", str(tmp_path / "host.toml"))
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "cpu.settings.json").write_text("{}")
    assert sweep_gpus() == []
    assert list((tmp_path / "locks").glob("*.settings.json")) == []
