"""Hard mode engaged and given back, by real processes on a simulated driver."""

import json
import threading

import pytest
from sim.nvml import GTX_1080, H200, SetState

from kernel_matrix.lease.exclusive_mode import refusing_others
from kernel_matrix.lease.terms import LeaseTerms
from kernel_matrix.platforms import Gpu
from tests.lease.settings import Program, calls

UUID = H200["uuid"]
JOURNAL = f"{UUID}.settings.json"
FORBID = {"KERNEL_MATRIX_GPU_SETTINGS": "forbid"}
UNPRIVILEGED = {"unprivileged": 1}
DEFAULT, PROHIBITED, EXCLUSIVE = 0, 2, 3


def entered(board, folder, *, verb="hard", **how):
    program = Program(board, folder, verb, **{"gpu": H200, "hard_exclusive": True, **how})
    assert program.hears() == {"engaged": False, "trouble": "", "restored": "not_needed"}
    return program


def test_the_mode_is_set_when_engaged_and_put_back_at_the_end(nvidia, tmp_path):
    nvidia.set()
    program = entered(nvidia, tmp_path)
    assert calls(nvidia) == []
    assert program.obey("engage") == {"engaged": True, "trouble": "", "restored": "not_needed"}
    assert nvidia.driver.state(UUID) == SetState(compute_mode=EXCLUSIVE)
    assert json.loads((tmp_path / JOURNAL).read_text())["compute_mode"] == "default"
    program.obey("engage")
    assert program.end() == {"engaged": True, "trouble": "", "restored": "confirmed"}
    assert calls(nvidia) == ["SetComputeMode 3 -> 0", "SetComputeMode 0 -> 0"]
    assert not (tmp_path / JOURNAL).exists()


def test_never_engaged_nothing_is_set(nvidia, tmp_path):
    nvidia.set()
    assert entered(nvidia, tmp_path).end()["restored"] == "not_needed"
    assert calls(nvidia) == []


def test_not_asked_for_nothing_is_set(nvidia, tmp_path):
    nvidia.set()
    program = entered(nvidia, tmp_path, hard_exclusive=False)
    assert program.obey("engage") == {"engaged": False, "trouble": "", "restored": "not_needed"}
    program.end()
    assert calls(nvidia) == []


def test_an_exception_inside_puts_the_mode_back(nvidia, tmp_path):
    nvidia.set()
    program = entered(nvidia, tmp_path)
    program.obey("engage")
    assert program.obey("raise")["error"] == "ValueError"
    assert program.end()["restored"] == "confirmed"


def test_clocks_and_mode_share_a_journal_and_reset_separately(nvidia, tmp_path):
    nvidia.set()
    program = entered(nvidia, tmp_path, verb="both")
    program.obey("engage")
    noted = json.loads((tmp_path / JOURNAL).read_text())
    assert noted["sm"]
    assert noted["compute_mode"] == "default"
    assert program.end()["restored"] == "confirmed"
    assert not (tmp_path / JOURNAL).exists()
    assert nvidia.driver.state(UUID) == SetState(compute_mode=DEFAULT)


@pytest.mark.parametrize(
    ("gpu", "host", "trouble"),
    [
        (H200, FORBID, "this host forbids it: KERNEL_MATRIX_GPU_SETTINGS=forbid"),
        (H200, UNPRIVILEGED, "(NVML error 4)"),
        ({**H200, "compute_mode": PROHIBITED}, {}, "is prohibited, and is left so"),
        (GTX_1080, {}, "is unknown, and is left so"),
    ],
)
def test_what_may_not_be_engaged_is_told_and_tried_once(nvidia, tmp_path, gpu, host, trouble):
    nvidia.driver.set(gpu, **(host if host is UNPRIVILEGED else {}))
    program = entered(nvidia, tmp_path, gpu=gpu, environment=FORBID if host is FORBID else {})
    told = program.obey("engage")
    assert told["engaged"] is False
    assert told["trouble"].endswith(trouble)
    assert told["trouble"].startswith(("this host", "GPU-", "the compute mode of GPU-"))
    assert program.obey("engage") == told
    assert program.end() == told
    assert calls(nvidia) == (["SetComputeMode 3 -> 4"] if host is UNPRIVILEGED else [])
    assert list(tmp_path.glob("*.settings.*")) == []


def test_a_gpu_that_refuses_newcomers_already_is_left_so(nvidia, tmp_path):
    nvidia.set({"compute_mode": EXCLUSIVE})
    program = entered(nvidia, tmp_path)
    assert program.obey("engage")["engaged"] is True
    assert program.end()["restored"] == "not_needed"
    assert calls(nvidia) == []


def test_a_mode_that_somebody_else_set_meanwhile_is_left(nvidia, tmp_path):
    nvidia.set()
    program = entered(nvidia, tmp_path)
    program.obey("engage")
    state = tmp_path / "world.state"
    state.write_text(f"{UUID} compute_mode {PROHIBITED}\n")
    assert program.end()["restored"] == "not_needed"
    assert nvidia.driver.state(UUID).compute_mode == PROHIBITED
    assert not (tmp_path / JOURNAL).exists()


@pytest.mark.parametrize(
    ("fault", "trouble"),
    [
        ({"set_compute_mode": "!999"}, "could not be put back: "),
        ({"compute_mode_ignored": 1}, "the compute mode is exclusive_process"),
        ({"lost": "!15"}, "NVML error 15"),
    ],
)
def test_mode_without_reset_is_reported_and_stays_journalled(nvidia, tmp_path, fault, trouble):
    nvidia.set()
    program = entered(nvidia, tmp_path)
    program.obey("engage")
    nvidia.driver.change(UUID, **fault)
    told = program.end()
    assert told["restored"] == "failed"
    assert trouble in told["trouble"]
    assert json.loads((tmp_path / JOURNAL).read_text())["compute_mode"] == "default"


def test_a_setting_that_failed_is_looked_after(nvidia, tmp_path):
    nvidia.set({"set_compute_mode": "!999"})
    program = entered(nvidia, tmp_path)
    assert "NVML error 999" in program.obey("engage")["trouble"]
    assert program.end()["restored"] == "not_needed"  # looked at, and found as it was
    assert not (tmp_path / JOURNAL).exists()


def test_once_it_is_over_a_late_thread_engages_nothing(tmp_path):
    gpu = Gpu(platform="cpu", uuid="cpu", name="a CPU")
    with refusing_others(gpu, LeaseTerms(wait_s=0, hard_exclusive=True), tmp_path) as mode:
        pass
    late = threading.Thread(target=mode.engage)
    late.start()
    late.join()
    assert (mode.engaged, mode.trouble) == (False, "")


def test_a_device_without_settings_says_so(tmp_path):
    gpu = Gpu(platform="cpu", uuid="cpu", name="a CPU")
    with refusing_others(gpu, LeaseTerms(wait_s=0, hard_exclusive=True), tmp_path) as mode:
        mode.engage()
    assert mode.trouble == "nothing can be set on devices of this kind"
