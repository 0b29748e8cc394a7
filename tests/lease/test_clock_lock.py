"""Clocks locked and given back, by real processes on a simulated driver."""

import json

import pytest
from sim.nvml import A100, H200, RTX_4090, SetState

from tests.lease.settings import Program, calls

UUID = H200["uuid"]
JOURNAL = f"{UUID}.settings.json"
FORBID = {"KERNEL_MATRIX_GPU_SETTINGS": "forbid"}


def journal(board):
    """Name of the journal of its settings."""
    return f"{board.uuid}.settings.json"


def held(board, folder, **how):
    """What the holder tells inside and after."""
    program = Program(board, folder, "clocks", **how)
    return program.hears(), program.end()


def refused(board, folder, **how):
    return Program(board, folder, "clocks", policy="require", **how).end()


CPU = {"platform": "cpu", "uuid": "cpu", "name": "a CPU"}


@pytest.mark.parametrize("gpu", [None, CPU], ids=["gpu", "cpu"])
def test_policy_observe_changes_nothing(board, tmp_path, gpu):
    board.set()
    inside, after = held(board, tmp_path, gpu=gpu, policy="observe")
    assert inside == after
    assert (after["locked"], after["requested"], after["requested_memory"]) == (False, "none", "off")
    assert after["reason"] in ("policy observe: nothing was changed", "a CPU's clock is not the runner's to lock")
    assert after["reset"] == "not_needed"
    assert calls(board) == []


def test_a_cpu_has_nothing_to_lock_even_where_it_is_required(nvidia, tmp_path):
    nvidia.driver.set()
    inside, _ = held(nvidia, tmp_path, gpu=CPU, policy="require")
    assert (inside["locked"], inside["reason"]) == (False, "a CPU's clock is not the runner's to lock")


@pytest.mark.parametrize("policy", ["lock", "require"])
def test_clocks_are_locked_inside_and_given_back_after(board, tmp_path, policy):
    board.set()
    program = Program(board, tmp_path, "clocks", policy=policy, clock_target=1500)
    inside = program.hears()
    assert (inside["locked"], inside["set_sm_mhz"]) == (True, 1500)
    assert inside["reason"].startswith("SM clock locked to 1500 MHz")
    assert board.state == board.locked
    after = program.end()
    assert board.state.is_given_back
    assert (after["reset"], after["set_sm_mhz"]) == ("confirmed", 1500)
    assert f"the SM clock left 1500 MHz for {board.clock} MHz" in after["reset_reason"]
    assert list(tmp_path.glob("*.settings.*")) == []


def test_the_memory_clock_is_locked_with_the_sm_clock(nvidia, tmp_path):
    nvidia.set()
    inside, after = held(nvidia, tmp_path, clock_target=1500)
    assert inside["set_memory_mhz"] == 3201
    assert inside["reason"] == "SM clock locked to 1500 MHz; memory clock locked to 3201 MHz (asked for: max)"
    assert (
        "the memory clock was 3201 MHz before the lock, 3201 MHz before the reset, and 3201 MHz after it"
        in after["reset_reason"]
    )


def test_what_is_about_to_be_set_is_journalled_while_it_is(nvidia, tmp_path):
    nvidia.set({"clock_memory": 1593})
    board = nvidia
    program = Program(board, tmp_path, "clocks", clock_target=1500)
    program.hears()
    noted = json.loads((tmp_path / journal(board)).read_text())
    assert noted["owner"].startswith(f"{program.pid}:")
    assert [noted[key] for key in ("run_id", "cell_id", "uuid", "name")] == [
        "run-7",
        "cell-9",
        board.uuid,
        board.gpu["name"],
    ]
    assert noted["sm"] == {"target_mhz": 1500, "before_mhz": board.clock}
    assert noted["memory"] == {"target_mhz": 3201, "before_mhz": 1593}
    assert program.end()["reset"] == "confirmed"


def test_the_owner_is_whoever_the_terms_name(board, tmp_path):
    board.set()
    program = Program(board, tmp_path, "clocks", clock_target=1500, owner="1:2:3")
    program.hears()
    assert json.loads((tmp_path / journal(board)).read_text())["owner"] == "1:2:3"
    program.end()


def test_the_symbolic_clock_may_have_no_number(nvidia, tmp_path):
    nvidia.set()
    inside, after = held(nvidia, tmp_path)
    assert calls(nvidia)[0] == "SetGpuLockedClocks tdp tdp -> 0"
    assert (inside["locked"], inside["requested"], inside["set_sm_mhz"]) == (True, "base", None)
    assert inside["reason"].startswith("SM clock locked to the driver's base clock; ")
    assert after["reset"] == "confirmed"
    assert "left 1500 MHz for 1980 MHz" in after["reset_reason"]


def test_symbolic_clock_has_the_number_the_driver_gives(nvidia, tmp_path):
    nvidia.driver.set(A100)
    inside, after = held(nvidia, tmp_path, gpu=A100)
    assert (inside["requested"], inside["set_sm_mhz"], after["reset"]) == ("base", 1275, "confirmed")
    assert "base clock, 1275 MHz" in inside["reason"]
    assert calls(nvidia)[0] == "SetGpuLockedClocks tdp tdp -> 0"


def test_without_a_symbolic_clock_the_known_number_is_locked(nvidia, tmp_path):
    nvidia.driver.set({**A100, "tdp_clock": "!2"})
    inside, _ = held(nvidia, tmp_path, gpu=A100)
    assert calls(nvidia)[:2] == ["SetGpuLockedClocks tdp tdp -> 2", "SetGpuLockedClocks 1275 1275 -> 0"]
    assert (inside["locked"], inside["set_sm_mhz"]) == (True, 1275)
    assert nvidia.driver.state(A100["uuid"]) == SetState()


@pytest.mark.parametrize("code", [2, 3])
def test_without_symbolic_clock_and_number_nothing_is_locked(nvidia, tmp_path, code):
    nvidia.set({"tdp_clock": f"!{code}"})
    inside, after = held(nvidia, tmp_path)
    assert inside["locked"] is False
    assert f"NVML error {code}" in inside["reason"]
    assert after["reset"] != "failed"
    assert nvidia.driver.state(UUID) == SetState()
    assert not (tmp_path / JOURNAL).exists()


@pytest.mark.parametrize(
    ("asked", "requested", "sent"),
    [
        ("max", "max", 1980),
        (1493, "1493", 1500),
        (5000, "5000", 1980),
        ({"*a100*": 1410, "NVIDIA h200*": 1200, "*": 900}, "1200", 1200),
        ({"*4090*": "max"}, "base", "tdp"),
    ],
)
def test_the_target_is_snapped_and_may_depend_on_the_model(nvidia, tmp_path, asked, requested, sent):
    nvidia.set()
    inside, _ = held(nvidia, tmp_path, clock_target=asked)
    assert (inside["requested"], inside["set_sm_mhz"]) == (requested, None if sent == "tdp" else sent)
    assert calls(nvidia)[0] == f"SetGpuLockedClocks {sent} {sent} -> 0"
    assert f"SM clock locked to {'the driver' if sent == 'tdp' else sent}" in inside["reason"]


def test_lower_of_two_nearest_memory_clocks_is_chosen(nvidia, tmp_path):
    nvidia.set({"memory_clocks": "3201 3199", "graphics_clocks_3201": "1510 1500"})
    inside, _ = held(nvidia, tmp_path, clock_target=1505, memory_clock=3200)
    assert (inside["set_sm_mhz"], inside["set_memory_mhz"], inside["requested_memory"]) == (1500, 3199, "3200")
    assert "(asked for: 1505)" in inside["reason"]


def test_where_no_clocks_are_listed_a_number_is_sent_as_it_is(nvidia, tmp_path):
    nvidia.set({"memory_clocks": None})
    inside, _ = held(nvidia, tmp_path, clock_target=1234)
    assert (inside["set_sm_mhz"], inside["requested_memory"]) == (1234, "off")
    assert calls(nvidia)[0] == "SetGpuLockedClocks 1234 1234 -> 0"


@pytest.mark.parametrize("asked", [{"clock_target": "max"}, {"memory_clock": "max"}])
def test_where_no_clocks_are_listed_the_highest_is_not_known(nvidia, tmp_path, asked):
    nvidia.set({"memory_clocks": None})
    inside, _ = held(nvidia, tmp_path, **asked)
    assert inside["locked"] is False
    assert "clocks, so the highest is not known" in inside["reason"]
    assert calls(nvidia) == []


@pytest.mark.parametrize(
    ("gpu", "asked", "told"),
    [
        (H200, "auto", ("max", 3201)),
        (H200, "off", ("off", None)),
        (H200, {"*4090*": "max"}, ("max", 3201)),
        (H200, {"*h200": 1600}, ("1600", 1593)),
        (RTX_4090, "auto", ("off", None)),
        (RTX_4090, "max", ("max", 10501)),
        (RTX_4090, {"*rtx 4090": "max"}, ("max", 10501)),
    ],
)
def test_the_memory_clock_is_locked_where_it_makes_sense(nvidia, tmp_path, gpu, asked, told):
    nvidia.driver.set(gpu)
    inside, _ = held(nvidia, tmp_path, gpu=gpu, memory_clock=asked)
    assert inside["locked"] is True
    assert (inside["requested_memory"], inside["set_memory_mhz"]) == told
    assert any("Memory" in call for call in calls(nvidia)) is (told[1] is not None)
    assert ("memory clock left to the driver" in inside["reason"]) is (told[1] is None)


@pytest.mark.parametrize("policy", ["lock", "require"])
def test_failed_memory_lock_leaves_the_sm_clock_locked(nvidia, tmp_path, policy):
    nvidia.set({"memory_lockable": None})
    inside, after = held(nvidia, tmp_path, policy=policy, clock_target=1500)
    assert (inside["locked"], inside["set_sm_mhz"], inside["set_memory_mhz"]) == (True, 1500, None)
    assert "memory clock left to the driver: " in inside["reason"]
    assert "NVML error 3" in inside["reason"]
    assert after["reset"] == "confirmed"
    assert "ResetMemoryLockedClocks" not in " ".join(calls(nvidia))


def test_forbidden_on_this_host_no_setting_call_is_made(board, tmp_path):
    board.set()
    inside, after = held(board, tmp_path, environment=FORBID)
    assert (inside["locked"], after["reset"], inside["requested"]) == (False, "not_needed", "base")
    assert inside["reason"] == "nothing is locked: this host forbids it: KERNEL_MATRIX_GPU_SETTINGS=forbid"
    told = refused(board, tmp_path, environment=FORBID)
    assert (told["error"], told["permitted"]) == ("GpuSettingError", False)
    assert "KERNEL_MATRIX_GPU_SETTINGS=forbid" in told["what"]
    assert calls(board) == []
    assert list(tmp_path.glob("*.settings.*")) == []


def test_without_the_right_to_lock_the_policy_decides(board, tmp_path):
    board.set(unprivileged=1)
    inside, after = held(board, tmp_path, clock_target=1500)
    assert (inside["locked"], inside["set_sm_mhz"], inside["requested"]) == (False, None, "1500")
    assert inside["reason"].startswith("nothing is locked: ")
    assert f"error {board.not_permitted})" in inside["reason"]
    assert after["reset"] == "not_needed"
    (call,) = calls(board)
    assert call.endswith(f"1500 -> {board.not_permitted}")
    told = refused(board, tmp_path, clock_target=1500)
    assert (told["error"], told["permitted"]) == ("GpuSettingError", False)
    assert "as root" in told["what"]
    assert not (tmp_path / journal(board)).exists()


def test_symbolic_clock_number_is_not_tried_without_permission(nvidia, tmp_path):
    nvidia.driver.set(A100, unprivileged=1)
    inside, _ = held(nvidia, tmp_path, gpu=A100)
    assert inside["locked"] is False
    assert calls(nvidia) == ["SetGpuLockedClocks tdp tdp -> 4"]


def test_a_gpu_without_locked_clocks_degrades_or_is_refused(board, tmp_path):
    board.set({"sm_lockable": None})
    inside, after = held(board, tmp_path, clock_target=1500)
    assert (inside["locked"], after["reset"]) == (False, "not_needed")
    told = refused(board, tmp_path, clock_target=1500)
    assert (told["error"], told["permitted"]) == ("GpuSettingError", False)
    assert list(tmp_path.glob("*.settings.*")) == []


@pytest.mark.parametrize("fault", ["lock", "lock_memory"])
def test_what_is_half_set_is_undone(board, tmp_path, fault):
    if fault == "lock_memory" and board.locked.memory_locked is None:
        pytest.skip("no memory clock is locked on it")
    board.set({fault: "!999"})
    inside, after = held(board, tmp_path, clock_target=1500)
    assert (inside["locked"], inside["set_sm_mhz"], inside["set_memory_mhz"]) == (False, None, None)
    assert "error 999)" in inside["reason"]
    assert inside["reset"] == after["reset"] != "failed"
    assert board.state.is_given_back
    told = refused(board, tmp_path, clock_target=1500)
    assert (told["error"], told["permitted"]) == ("GpuSettingError", True)
    assert board.state.is_given_back
    assert not (tmp_path / journal(board)).exists()


def test_failed_undo_is_reported_with_its_cause(nvidia, tmp_path):
    nvidia.set({"lock_memory": "!999", "reset": "!4"})
    told = refused(nvidia, tmp_path, clock_target=1500)
    assert "memory clock locked to 3201 MHz" in told["what"]
    assert "undoing what was set failed too" in told["what"]
    assert (tmp_path / JOURNAL).exists()


def test_a_reset_that_fails_is_told_and_stays_in_the_journal(board, tmp_path):
    board.set({"reset": "!999"})
    _, after = held(board, tmp_path, clock_target=1500)
    assert after["reset"] == "failed"
    assert "SM clock reset: not done" in after["reset_reason"]
    if board.locked.memory_locked is not None:  # tried, though the first had failed
        assert "memory clock reset: not done" in after["reset_reason"]
    assert json.loads((tmp_path / journal(board)).read_text())["sm"]["target_mhz"] == 1500


def test_a_reset_that_fails_does_not_hide_what_the_body_raised(board, tmp_path):
    board.set({"reset": "!999"})
    program = Program(board, tmp_path, "clocks", clock_target=1500)
    program.hears()
    assert program.obey("raise")["error"] == "ValueError"
    assert program.end()["reset"] == "failed"


def test_an_exception_in_the_body_gives_the_clocks_back(board, tmp_path):
    board.set()
    program = Program(board, tmp_path, "clocks", clock_target=1500)
    program.hears()
    assert program.obey("raise")["error"] == "ValueError"
    assert program.end()["reset"] == "confirmed"
    assert board.state.is_given_back


def test_a_reset_that_is_accepted_and_ignored_is_not_confirmed(nvidia, tmp_path):
    board = nvidia
    board.set({"reset_ignored": 1})
    _, after = held(board, tmp_path, clock_target=1500)
    assert after["reset"] == "unconfirmed"
    assert (
        f"was {board.clock} MHz before the lock, 1500 MHz before the reset, and 1500 MHz after it"
        in after["reset_reason"]
    )
    assert not (tmp_path / journal(board)).exists()


def test_lock_at_the_present_clock_cannot_be_confirmed(board, tmp_path):
    board.set()
    _, after = held(board, tmp_path, clock_target="max")
    assert after["reset"] == "unconfirmed"
    assert (
        f"was {board.clock} MHz before the lock, {board.clock} MHz before the reset, and {board.clock} MHz after it"
        in after["reset_reason"]
    )
    assert board.state.is_given_back


def test_a_lock_that_was_not_obeyed_cannot_be_seen_to_leave(board, tmp_path):
    board.set({"lock_ignored": 1})
    inside, after = held(board, tmp_path, clock_target=1500)
    assert inside["locked"] is True  # what the driver says; whether it is true shows under load
    assert after["reset"] == "unconfirmed"
    assert f"was {board.clock} MHz before the reset already, not 1500 MHz" in after["reset_reason"]


def test_without_a_reading_nothing_is_confirmed(board, tmp_path):
    board.set({"clock_sm": None})
    _, after = held(board, tmp_path, clock_target=1500)
    assert after["reset"] == "unconfirmed"
    assert "does not give the SM clock" in after["reset_reason"]


def test_without_a_reading_a_symbolic_clock_is_not_confirmed(nvidia, tmp_path):
    nvidia.set({"clock_sm": None})
    _, after = held(nvidia, tmp_path)
    assert after["reset"] == "unconfirmed"
    assert "does not give" in after["reset_reason"]


def test_a_gpu_lost_meanwhile_leaves_the_journal(board, tmp_path):
    board.set()
    program = Program(board, tmp_path, "clocks", clock_target=1500)
    program.hears()
    board.driver.change(board.uuid, lost=board.lost)
    after = program.end()
    assert after["reset"] == "failed"
    assert "dmesg" in after["reset_reason"] or "error" in after["reset_reason"]
    assert (tmp_path / journal(board)).exists()


def test_a_gpu_lost_before_is_an_error(board, tmp_path):
    board.set({"lost": board.lost})
    assert Program(board, tmp_path, "clocks").end()["error"] == "GpuLostError"


def test_what_cannot_be_journalled_is_not_set(board, tmp_path):
    board.set()
    (tmp_path / f"{board.uuid}.settings.new").mkdir()
    inside, after = held(board, tmp_path, clock_target=1500)
    assert (inside["locked"], after["reset"]) == (False, "not_needed")
    assert "cannot be written" in inside["reason"]
    assert refused(board, tmp_path, clock_target=1500)["error"] == "GpuSettingError"
    assert calls(board) == []


def test_a_journal_that_cannot_be_removed_is_told(board, tmp_path):
    board.set()
    program = Program(board, tmp_path, "clocks", clock_target=1500)
    program.hears()
    (tmp_path / journal(board)).rename(tmp_path / "elsewhere")
    (tmp_path / journal(board)).mkdir()
    after = program.end()
    assert after["reset"] == "confirmed"
    assert f"{journal(board)} is not a regular file" in after["reset_reason"]
