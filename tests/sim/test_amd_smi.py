"""The simulated AMD driver itself, asked through the bindings in processes of their own."""

import ctypes
import json
import os

import pytest
from sim.amd_smi import MI300X, PERF_DETERMINISM, PERF_MANUAL, PERF_STABLE_STD, RX_7900_XTX, SetState

from kernel_matrix.platforms.rocm.inside import smi_structs
from tests.pipes import read_line

PRELUDE = """
import json
from ctypes import *
from kernel_matrix.platforms.rocm.inside.smi_library import *
from kernel_matrix.platforms.rocm.inside.smi_structs import *
init()

def code_of(question, *args):
    try:
        question(*args)
    except SmiError as error:
        return error.code
    return 0

def gpu(wanted):
    return next(handle for handle in devices() if uuid(handle) == wanted)

def clocks(handle):
    return [structure("amdsmi_get_clock_info", ClockInfo, handle, clock).clk for clock in (0, 4)]

def level(handle):
    return number("amdsmi_get_gpu_perf_level", c_uint32, handle)

def tell(*answers):
    print(json.dumps(answers), flush=True)
"""

SET_LEVEL = ("amdsmi_set_gpu_perf_level", "c_uint32({})")
LIMIT_SM = ("amdsmi_set_gpu_perf_determinism_mode", "c_uint64({})")
LIMIT_MEMORY = ("amdsmi_set_gpu_clk_limit", "4, 1, c_uint64({})")


@pytest.fixture
def driver(amd_driver):
    """The simulated AMD driver."""
    return amd_driver


def ask(driver, program, uuid=MI300X["uuid"]):
    return driver.ask(f"{PRELUDE}\ng = gpu({uuid!r})\n{program}")


def start(driver, program, uuid=MI300X["uuid"]):
    """A program that has its handle and then reads its input: what is changed from now on, it meets in its middle."""
    process = driver.start(f"{PRELUDE}\ng = gpu({uuid!r})\ntell()\n{program}")
    assert read_line(process) == "[]\n"
    return process


def codes(driver, uuid, *calls):
    """What each setting, given as ``(setting, value)``, returned; one process for all."""
    tried = "; ".join(f"done.append(code_of(call, {name!r}, g, {form.format(value)}))" for (name, form), value in calls)
    return ask(driver, f"done = []; {tried}; tell(*done)", uuid)


def test_structures_of_the_bindings_hold_those_of_the_library(driver):
    program = """
class Size(Structure):
    _fields_ = (("name", c_char_p), ("size", c_uint64))

sizes = (Size * 9).in_dll(CDLL("libamd_smi.so"), "simulated_sizes")
tell({one.name.decode(): one.size for one in sizes if one.name})
"""
    driver.set(MI300X)
    (of_library,) = ask(driver, program)
    of_bindings = {
        name: ctypes.sizeof(kind)
        for name, kind in vars(smi_structs).items()
        if isinstance(kind, type) and issubclass(kind, ctypes.Structure) and kind is not ctypes.Structure
    }
    assert of_library.keys() == of_bindings.keys()
    assert of_library.pop("ProcessInfo") == of_bindings.pop("ProcessInfo"), "an array of them is filled"
    assert all(of_bindings[name] >= size for name, size in of_library.items())


def test_a_data_centre_gpu_answers_who_it_is(driver):
    driver.set(RX_7900_XTX, MI300X)
    program = """
asic = structure("amdsmi_get_gpu_asic_info", AsicInfo, g)
cap = structure("amdsmi_get_power_cap_info", PowerCap, g, 0)
tell(version(), asic.market_name.decode(), asic.target_graphics_version, asic.num_of_compute_units,
     structure("amdsmi_get_gpu_driver_info", DriverInfo, g).driver_version.decode(),
     structure("amdsmi_get_gpu_enumeration_info", EnumerationInfo, g).drm_render,
     [cap.power_cap, cap.min_power_cap, cap.max_power_cap],
     text("amdsmi_get_gpu_compute_partition", g), text("amdsmi_get_gpu_memory_partition", g))
"""
    assert ask(driver, program) == [
        *([26, 0, 2], "AMD Instinct MI300X", 0x942, 304, "6.12.12", 129),
        [750_000_000, 0, 750_000_000],
        *("SPX", "NPS1"),
    ]


def test_every_member_of_the_metrics_is_where_it_is_read(driver):
    names = {
        "temperature": "temperature_hotspot",
        "temperature_edge": "temperature_edge",
        "clock_sm": "current_gfxclk",
        "clock_memory": "current_uclk",
        "throttle_status": "indep_throttle_status",
        "counter_cycles": "accumulation_counter",
        "counter_prochot": "prochot_residency_acc",
        "counter_power": "ppt_residency_acc",
        "counter_socket_thermal": "socket_thm_residency_acc",
        "counter_vr_thermal": "vr_thm_residency_acc",
        "counter_hbm_thermal": "hbm_thm_residency_acc",
    }
    told = {key: 1000 + index for index, key in enumerate(names)}
    driver.set({**MI300X, **told, "power_instant": 301_000, "power_average": 302_000, "utilization": "87 45"})
    read = [*names.values(), "current_socket_power", "average_socket_power", "average_gfx_activity"]
    program = (
        f"m = structure('amdsmi_get_gpu_metrics_info', GpuMetrics, g); tell(*[member(m, name) for name in {read}])"
    )
    assert ask(driver, program) == [*told.values(), 301, 302, 87]
    driver.set({"uuid": MI300X["uuid"]})
    assert ask(driver, program) == [None] * len(read)


def test_processes_come_and_go_while_a_program_looks(driver):
    driver.set(MI300X)
    seen = []
    with start(driver, "while input():\n    tell(*process_ids(g))") as looking:
        for compute in ("", "42:1048576 7", " ".join(map(str, range(1, 101))), ""):
            driver.change(MI300X["uuid"], compute=compute)
            looking.stdin.write("look\n")
            looking.stdin.flush()
            seen.append(json.loads(read_line(looking)))
        looking.communicate("\n")
    assert seen == [[], [42, 7], list(range(1, 101)), []]
    assert driver.looks() == 5, "the long list is asked for twice"


def test_a_process_that_occupies_a_gpu_is_listed_until_it_ends(driver):
    driver.set({**MI300X, "compute": "7"})
    with driver.start("input()") as tenant:
        driver.occupy(MI300X["uuid"], tenant.pid)
        assert ask(driver, "tell(*process_ids(g))") == driver.tenants(MI300X["uuid"]) == [7, tenant.pid]
        tenant.kill()
        os.waitid(os.P_PID, tenant.pid, os.WEXITED | os.WNOWAIT)
        assert ask(driver, "tell(*process_ids(g))") == driver.tenants(MI300X["uuid"]) == [7]


def test_clock_limit_applies_to_all_programs_and_outlives_setter(driver):
    driver.set(MI300X, RX_7900_XTX)
    with start(driver, "input(); tell(clocks(g), level(g))") as other:
        assert codes(driver, MI300X["uuid"], (LIMIT_SM, 1500)) == [0]
        told, _ = other.communicate("\n")
    assert json.loads(told) == [[1500, 1300], PERF_DETERMINISM]
    assert driver.state(MI300X["uuid"]) == SetState(sm_locked=(0, 1500), perf_level=PERF_DETERMINISM)
    assert driver.state(RX_7900_XTX["uuid"]) == SetState()
    driver.change(MI300X["uuid"], clock_sm=132)
    assert ask(driver, "tell(clocks(g))") == [[132, 1300]], "it is a highest clock, not a fixed one"
    assert codes(driver, MI300X["uuid"], (SET_LEVEL, 0)) == [0]
    assert driver.state(MI300X["uuid"]).is_given_back


def test_each_level_ends_the_limits_of_the_one_before(driver):
    driver.set({**MI300X, "stable_clock": 1300})
    seen = []
    for setting in ((LIMIT_SM, 1500), (LIMIT_MEMORY, 900), (SET_LEVEL, PERF_STABLE_STD), (SET_LEVEL, 0)):
        assert codes(driver, MI300X["uuid"], setting) == [0]
        seen.append(driver.state(MI300X["uuid"]))
    assert seen == [
        SetState(sm_locked=(0, 1500), perf_level=PERF_DETERMINISM),
        SetState(memory_locked=(0, 900), perf_level=PERF_MANUAL),
        SetState(sm_locked=(1300, 1300), perf_level=PERF_STABLE_STD),
        SetState(),
    ]


def test_every_setting_call_is_logged_with_its_outcome(driver):
    driver.set(MI300X, RX_7900_XTX)
    codes(driver, MI300X["uuid"], (LIMIT_SM, 1500), (LIMIT_SM, 9000), (SET_LEVEL, 4), (SET_LEVEL, 0))
    codes(driver, RX_7900_XTX["uuid"], (LIMIT_MEMORY, 1000))
    one, other = MI300X["uuid"], RX_7900_XTX["uuid"]
    pids, calls = zip(*(line.split(" ", 1) for line in driver.log()), strict=True)
    assert list(calls) == [
        f"{LIMIT_SM[0]} {one} 1500 -> 0",
        f"{LIMIT_SM[0]} {one} 9000 -> 1",
        f"{SET_LEVEL[0]} {one} 4 -> 2",
        f"{SET_LEVEL[0]} {one} 0 -> 0",
        f"{LIMIT_MEMORY[0]} {other} 4 1 1000 -> 2",
    ]
    assert len(set(pids)) == 2


SETTING_CALLS = [(LIMIT_SM, 1500), (LIMIT_MEMORY, 1300), (SET_LEVEL, 0)]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"unprivileged": 1}, [10, 10, 10]),
        ({"lock": "!12"}, [12, 0, 0]),
        ({"lock_memory": "!12"}, [0, 12, 0]),
        ({"reset": "!12"}, [0, 0, 12]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_refusals(driver, fault, expected):
    driver.set({**MI300X, **fault})
    assert codes(driver, MI300X["uuid"], *SETTING_CALLS) == expected


def test_settings_that_report_success_and_do_nothing(driver):
    driver.set({**MI300X, "reset_ignored": 1})
    assert codes(driver, MI300X["uuid"], (LIMIT_SM, 1500), (SET_LEVEL, 0)) == [0, 0]
    assert ask(driver, "tell(clocks(g), level(g))") == [[1500, 1300], PERF_DETERMINISM]
    driver.change(MI300X["uuid"], level_ignored=1)
    assert codes(driver, MI300X["uuid"], (LIMIT_MEMORY, 900)) == [0]
    assert driver.state(MI300X["uuid"]) == SetState(sm_locked=(0, 1500), perf_level=PERF_DETERMINISM)


@pytest.mark.parametrize("code", [12, 31, 0xFFFFFFFF])
def test_lost_gpu_fails_in_a_running_program_and_others_do_not(driver, code):
    driver.set(RX_7900_XTX, MI300X)  # in this order: the other one is looked for when this one may be lost already
    program = f"""
other = gpu({RX_7900_XTX["uuid"]!r})
input()
tell(*[code_of(question, *args) for question, *args in (
    (uuid, g), (level, g), (clocks, g), (process_ids, g), (structure, "amdsmi_get_gpu_metrics_info", GpuMetrics, g),
    (structure, "amdsmi_get_gpu_driver_info", DriverInfo, g), (uuid, other))])
"""
    with start(driver, program) as running:
        driver.change(MI300X["uuid"], lost=f"!{code}")
        told, _ = running.communicate("\n")
    assert json.loads(told) == [*[code] * 6, 0]


def test_a_gpu_that_is_no_longer_there_is_not_found(driver):
    driver.set(RX_7900_XTX, MI300X)
    with start(driver, "input(); tell(code_of(uuid, g), len(devices()))") as running:
        driver.set(RX_7900_XTX)
        told, _ = running.communicate("\n")
    assert json.loads(told) == [31, 1]


def test_many_programs_set_at_once_and_nothing_is_lost(driver):
    gpus = [{**MI300X, "uuid": f"uuid-{number}"} for number in range(4)]
    driver.set(*gpus)
    program = f"for _ in range(50): call({LIMIT_SM[0]!r}, g, c_uint64(1500)); call({SET_LEVEL[0]!r}, g, c_uint32(0))"
    running = [driver.start(f"{PRELUDE}\ng = gpu({gpu['uuid']!r})\n{program}") for gpu in gpus]
    for process in running:
        process.communicate()
    assert all(driver.state(gpu["uuid"]).is_given_back for gpu in gpus)
    assert len(driver.log()) == 4 * 50 * 2
