"""The simulated driver itself, asked through the real nvidia-ml-py in processes of their own."""

import json
import os

import pytest
from sim.nvml import A100, GTX_1080, H200, RTX_4090, SetState

from tests.pipes import read_line

PRELUDE = """
import json
from pynvml import *
nvmlInit()

def code_of(question, *args):
    try:
        question(*args)
    except NVMLError as error:
        return error.value
    return 0

def gpu(uuid):
    return nvmlDeviceGetHandleByUUID(uuid)

def tell(*answers):
    print(json.dumps(answers), flush=True)

def clocks(handle):
    return [nvmlDeviceGetClockInfo(handle, clock) for clock in (NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM)]
"""


def ask(driver, program, uuid=H200["uuid"]):
    return driver.ask(f"{PRELUDE}\ng = gpu({uuid!r})\n{program}")


def start(driver, program, uuid=H200["uuid"]):
    """A program that has its handle and then reads its input: what is changed from now on, it meets in its middle."""
    process = driver.start(f"{PRELUDE}\ng = gpu({uuid!r})\ntell()\n{program}")
    assert read_line(process) == "[]\n"
    return process


def codes(driver, uuid, *calls):
    """What each call, given as ``(function, arguments after the handle)``, returned; one process for all."""
    tried = "; ".join(f"done.append(code_of({name}, g, {', '.join(map(str, args))}))" for name, *args in calls)
    return ask(driver, f"done = []; {tried}; tell(*done)", uuid)


SET_SM, RESET_SM = "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"
SET_MEMORY, RESET_MEMORY = "nvmlDeviceSetMemoryLockedClocks", "nvmlDeviceResetMemoryLockedClocks"
SET_MODE = "nvmlDeviceSetComputeMode"
TDP, UNLIMITED = 0xFFFFFF01, 0xFFFFFF02


def test_a_data_centre_gpu_answers_who_it_is(driver):
    driver.set(GTX_1080, H200)
    program = """
pci, temperature = nvmlDeviceGetPciInfo(g), nvmlDeviceGetTemperatureV(g, NVML_TEMPERATURE_GPU)
tell(
    nvmlSystemGetNVMLVersion(), nvmlDeviceGetName(g), nvmlDeviceGetSerial(g), nvmlDeviceGetVbiosVersion(g),
    nvmlDeviceGetMinorNumber(g), nvmlDeviceGetBrand(g), nvmlDeviceGetArchitecture(g), nvmlDeviceGetNumGpuCores(g),
    nvmlDeviceGetMemoryBusWidth(g), nvmlDeviceGetNumaNodeId(g), list(nvmlDeviceGetCpuAffinity(g, 2)),
    pci.busId, pci.busIdLegacy, pci.bus, pci.pciDeviceId, temperature,
    nvmlDeviceGetCurrPcieLinkGeneration(g), nvmlDeviceGetMaxPcieLinkWidth(g), nvmlDeviceGetPersistenceMode(g),
    nvmlDeviceGetEccMode(g), nvmlDeviceGetMigMode(g), nvmlDeviceGetComputeMode(g), nvmlDeviceGetPerformanceState(g),
    nvmlDeviceGetTotalEccErrors(g, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC),
)
"""
    assert ask(driver, program) == [
        *("13.580.159.04", "NVIDIA H200", "1650000000001", "96.00.BC.00.01"),
        *(3, 14, 9, 16896),
        *(6144, 0, [0xFFFF, 0]),
        *("00000000:3B:00.0", "0000:3B:00.0", 0x3B, 0x233510DE, 41),
        *(5, 16, 1),
        *([1, 1], [0, 0], 0, 0),
        0,
    ]


def test_power_heat_and_clock_limits(driver):
    driver.set(H200)
    program = """
limits = [nvmlDeviceGetTemperatureThreshold(g, which) for which in range(4)]
rates = nvmlDeviceGetUtilizationRates(g)
tell(
    nvmlDeviceGetPowerManagementLimit(g), nvmlDeviceGetPowerManagementDefaultLimit(g),
    nvmlDeviceGetPowerManagementLimitConstraints(g), nvmlDeviceGetEnforcedPowerLimit(g), limits,
    [rates.gpu, rates.memory], nvmlDeviceGetSupportedClocksEventReasons(g),
    nvmlDeviceGetMaxClockInfo(g, NVML_CLOCK_SM), nvmlDeviceGetMaxClockInfo(g, NVML_CLOCK_MEM),
    nvmlDeviceGetClock(g, NVML_CLOCK_SM, NVML_CLOCK_ID_APP_CLOCK_DEFAULT),
    nvmlDeviceGetClock(g, NVML_CLOCK_SM, NVML_CLOCK_ID_CURRENT),
)
"""
    driver.change(H200["uuid"], default_clock_sm=1590, utilization="87 45")
    assert ask(driver, program) == [
        *(700_000, 700_000, [200_000, 700_000], 700_000, [92, 89, 95, 87], [87, 45], 0x1FF),
        *(1980, 3201, 1590, 1980),
    ]


def test_used_memory_by_version_includes_or_excludes_reserved(driver):
    driver.set(H200, GTX_1080)
    program = """
old, new = nvmlDeviceGetMemoryInfo(g), nvmlDeviceGetMemoryInfo(g, version=nvmlMemory_v2)
whole = [old.total == old.used + old.free, new.total == new.used + new.reserved + new.free]
tell(old.used, new.used, new.reserved, *whole)
"""
    assert ask(driver, program) == [667_090_944 + 1_048_576, 1_048_576, 667_090_944, True, True]
    program = "tell(nvmlDeviceGetMemoryInfo(g).used, code_of(nvmlDeviceGetMemoryInfo, g, nvmlMemory_v2))"
    assert ask(driver, program, GTX_1080["uuid"]) == [0, 3]


def test_field_values_have_a_code_each(driver):
    driver.set({**H200, "counter_hw_thermal": 1 << 40, "counter_sw_power_cap": 77, "power_average": "!999"})
    program = """
ids = [NVML_FI_DEV_POWER_INSTANT, NVML_FI_DEV_POWER_AVERAGE, NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP,
       NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN, NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN,
       NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, NVML_FI_DEV_NVLINK_LINK_COUNT]
def value(field):
    return field.value.uiVal if field.valueType == NVML_VALUE_TYPE_UNSIGNED_INT else field.value.ullVal
tell(*[[field.nvmlReturn, value(field)] for field in nvmlDeviceGetFieldValues(g, ids)],
     nvmlDeviceGetViolationStatus(g, NVML_PERF_POLICY_POWER).violationTime)
"""
    assert ask(driver, program) == [
        *([0, 121_400], [999, 0], [0, 77], [0, 1 << 40], [0, 0], [0, 987_654_321]),
        [3, 0],
        77,
    ]


@pytest.mark.parametrize("model", [H200, A100, RTX_4090], ids=lambda model: model["name"])
def test_supported_clocks_are_told_per_memory_clock(driver, model):
    driver.set(model)
    program = """
memory = nvmlDeviceGetSupportedMemoryClocks(g)
tell(memory, nvmlDeviceGetSupportedGraphicsClocks(g, memory[0]), code_of(nvmlDeviceGetSupportedGraphicsClocks, g, 7))
"""
    memory, graphics, unknown = ask(driver, program, model["uuid"])
    assert memory == sorted(memory, reverse=True)
    assert graphics == sorted(graphics, reverse=True)
    assert (memory[0], graphics[0]) == (model["max_clock_memory"], model["max_clock_sm"])
    assert model["tdp_clock"] in graphics
    assert unknown == 6


def test_an_old_gpu_answers_not_supported_to_most(driver):
    driver.set(GTX_1080)
    questions = [
        ("nvmlDeviceGetSupportedMemoryClocks",),
        ("nvmlDeviceGetSupportedGraphicsClocks", 3201),
        ("nvmlDeviceGetPowerUsage",),
        ("nvmlDeviceGetMigMode",),
        ("nvmlDeviceGetMaxClockInfo", 1),
        (SET_SM, 1000, 1000),
        (SET_MEMORY, 1000, 1000),
        (RESET_SM,),
        (SET_MODE, 3),
    ]
    assert codes(driver, GTX_1080["uuid"], *questions) == [3] * len(questions)


def test_processes_come_and_go_while_a_program_looks(driver):
    driver.set(H200)
    program = """
while input():
    tell(*[[process.pid, process.usedGpuMemory] for process in nvmlDeviceGetComputeRunningProcesses(g)])
"""
    seen = []
    with start(driver, program) as looking:
        for compute in ("", "42:1048576 7", " ".join(map(str, range(1, 101))), ""):
            driver.change(H200["uuid"], compute=compute)
            looking.stdin.write("look\n")
            looking.stdin.flush()
            seen.append(json.loads(read_line(looking)))
        looking.communicate("\n")
    assert seen == [[], [[42, 1048576], [7, 0]], [[pid, 0] for pid in range(1, 101)], []]


def test_a_process_that_occupies_a_gpu_is_listed_until_it_ends(driver):
    driver.set({**H200, "compute": "7"})
    listed = "tell(*[process.pid for process in nvmlDeviceGetComputeRunningProcesses(g)])"
    with driver.start("input()") as tenant:
        driver.occupy(H200["uuid"], tenant.pid)
        assert ask(driver, listed) == [7, tenant.pid]
        tenant.kill()
        os.waitid(os.P_PID, tenant.pid, os.WEXITED | os.WNOWAIT)
        assert ask(driver, listed) == [7], "what has ended and is not yet buried uses no GPU"
    assert ask(driver, listed) == [7]


def test_clock_lock_applies_to_all_programs_and_outlives_setter(driver):
    driver.set(H200, A100)
    with start(driver, "input(); tell(clocks(g))") as other:
        assert codes(driver, H200["uuid"], (SET_SM, 1200, 1500), (SET_MEMORY, 1593, 1593)) == [0, 0]
        told, _ = other.communicate("\n")
    assert json.loads(told) == [[1500, 1500, 1593]]
    assert driver.state(H200["uuid"]) == SetState(sm_locked=(1200, 1500), memory_locked=(1593, 1593))
    assert driver.state(A100["uuid"]) == SetState()
    driver.change(H200["uuid"], clock_sm=345)
    assert ask(driver, "tell(clocks(g))") == [[1200, 1200, 1593]], "the range has a lower end too"
    assert codes(driver, H200["uuid"], (RESET_SM,), (RESET_MEMORY,)) == [0, 0]
    assert ask(driver, "tell(clocks(g))") == [[345, 345, 3201]]
    assert driver.state(H200["uuid"]) == SetState()


@pytest.mark.parametrize(
    ("low", "high", "code", "locked"),
    [
        (TDP, TDP, 0, (1500, 1500)),
        (UNLIMITED, TDP, 0, (0, 1500)),
        (1500, TDP, 2, None),
        (0xFFFFFF07, 0xFFFFFF07, 2, None),
        (1500, 1200, 2, None),
        (1496, 1504, 0, (1500, 1500)),
        (1, 5000, 0, (345, 1980)),
    ],
)
def test_ranges_are_symbolic_or_snapped_to_the_list(driver, low, high, code, locked):
    driver.set(H200)
    assert codes(driver, H200["uuid"], (SET_SM, low, high)) == [code]
    assert driver.state(H200["uuid"]).sm_locked == locked


def test_memory_lock_snaps_to_memory_clocks_and_rejects_symbols(driver):
    driver.set(RTX_4090)
    assert codes(driver, RTX_4090["uuid"], (SET_MEMORY, 9000, 20000), (SET_MEMORY, TDP, TDP)) == [0, 2]
    assert driver.state(RTX_4090["uuid"]).memory_locked == (10251, 10501)


def test_compute_mode_is_shared_and_kept(driver):
    driver.set(H200)
    assert codes(driver, H200["uuid"], (SET_MODE, 3), (SET_MODE, 9)) == [0, 2]
    assert ask(driver, "tell(nvmlDeviceGetComputeMode(g))") == [3]
    assert driver.state(H200["uuid"]).compute_mode == 3


def test_every_setting_call_is_logged_with_its_outcome(driver):
    driver.set(H200, GTX_1080)
    codes(driver, H200["uuid"], (SET_SM, TDP, TDP), (SET_MODE, 3), (RESET_SM,), ("nvmlDeviceSetPersistenceMode", 1))
    codes(driver, GTX_1080["uuid"], (SET_SM, 1000, 1001), ("nvmlDeviceGetClockInfo", 1))
    one, other = H200["uuid"], GTX_1080["uuid"]
    pids, calls = zip(*(line.split(" ", 1) for line in driver.log()), strict=True)
    assert list(calls) == [
        f"{SET_SM} {one} tdp tdp -> 0",
        f"{SET_MODE} {one} 3 -> 0",
        f"{RESET_SM} {one} -> 0",
        f"nvmlDeviceSetPersistenceMode {one} -> 3",
        f"{SET_SM} {other} 1000 1001 -> 3",
    ]
    assert len(set(pids)) == 2


SETTING_CALLS = [(SET_SM, 1500, 1500), (SET_MEMORY, 3201, 3201), (RESET_SM,), (RESET_MEMORY,), (SET_MODE, 3)]


@pytest.mark.parametrize(("host", "gpu"), [({"unprivileged": 1}, {}), ({}, {"unprivileged": 1})])
def test_without_privilege_nothing_can_be_set(driver, host, gpu):
    driver.set({**H200, **gpu}, **host)
    assert codes(driver, H200["uuid"], *SETTING_CALLS) == [4] * 5
    assert driver.state(H200["uuid"]) == SetState()
    assert [line.rpartition(" ")[2] for line in driver.log()] == ["4"] * 5


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({"lock": "!999"}, [999, 0, 0, 0, 0]),
        ({"lock_memory": "!27"}, [0, 27, 0, 0, 0]),
        ({"reset": "!999"}, [0, 0, 999, 999, 0]),
        ({"set_compute_mode": "!999"}, [0, 0, 0, 0, 999]),
        ({"lost": "!15"}, [15] * 5),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_refusals(driver, fault, expected):
    driver.set(H200)
    program = f"input(); tell(*[code_of(globals()[name], g, *args) for name, *args in {SETTING_CALLS!r}])"
    with start(driver, program) as running:
        driver.change(H200["uuid"], **fault)
        told, _ = running.communicate("\n")
    assert json.loads(told) == expected


def test_a_lock_that_is_not_obeyed_still_has_to_be_reset(driver):
    driver.set({**H200, "lock_ignored": 1})
    assert codes(driver, H200["uuid"], (SET_SM, 1500, 1500)) == [0]
    assert ask(driver, "tell(clocks(g))") == [[1980, 1980, 3201]]
    assert driver.state(H200["uuid"]).sm_locked == (1500, 1500)


def test_settings_that_report_success_and_do_nothing(driver):
    driver.set({**H200, "reset_ignored": 1, "compute_mode_ignored": 1})
    assert codes(driver, H200["uuid"], (SET_SM, 1500, 1500), (RESET_SM,), (SET_MODE, 3)) == [0, 0, 0]
    assert ask(driver, "tell(clocks(g), nvmlDeviceGetComputeMode(g))") == [[1500, 1500, 3201], 0]
    assert driver.state(H200["uuid"]) == SetState(sm_locked=(1500, 1500))


@pytest.mark.parametrize("code", [15, 16, 999])
def test_lost_gpu_fails_in_a_running_program_and_others_do_not(driver, code):
    driver.set(H200, A100)
    program = f"""
other = gpu({A100["uuid"]!r})
input()
tell(code_of(nvmlDeviceGetUUID, g), code_of(nvmlDeviceGetClockInfo, g, 1), code_of(nvmlDeviceGetFieldValues, g, [186]),
     code_of(nvmlDeviceGetClockInfo, other, 1))
"""
    with start(driver, program) as running:
        driver.change(H200["uuid"], lost=f"!{code}")
        told, _ = running.communicate("\n")
    assert json.loads(told) == [code, code, code, 0]


def test_a_gpu_that_is_no_longer_there_is_lost_for_who_had_it(driver):
    driver.set(A100, H200)
    with start(driver, "input(); tell(code_of(nvmlDeviceGetUUID, g))") as running:
        driver.set(A100)
        told, _ = running.communicate("\n")
    assert json.loads(told) == [15]


def test_library_and_driver_of_different_versions(driver):
    driver.set(H200, init="!18")
    assert driver.ask("import json, pynvml\ntry: pynvml.nvmlInit()\nexcept pynvml.NVMLError as e: print(e.value)") == 18


def test_ecc_errors_are_counted(driver):
    driver.set({**H200, "ecc_uncorrected": 2, "ecc_uncorrected_total": 5, "ecc_corrected": 40})
    program = """
tell(*[nvmlDeviceGetTotalEccErrors(g, kind, since) for kind in (0, 1) for since in (0, 1)],
     *[field.value.ullVal for field in nvmlDeviceGetFieldValues(g, [3, 4])])
"""
    assert ask(driver, program) == [40, 0, 2, 5, 40, 2]


def test_a_change_touches_one_gpu_alone(driver):
    driver.set(H200, A100)
    driver.change(A100["uuid"], temperature=77, power=None)
    program = "tell(nvmlDeviceGetTemperature(g, 0), code_of(nvmlDeviceGetPowerUsage, g))"
    assert ask(driver, program, A100["uuid"]) == [77, 3]
    assert ask(driver, program) == [41, 0]


def test_many_programs_set_at_once_and_nothing_is_lost(driver):
    gpus = [{**H200, "uuid": f"GPU-{number}"} for number in range(4)]
    driver.set(*gpus)
    program = """
for count in range(50):
    nvmlDeviceSetGpuLockedClocks(g, 1500, 1500)
    nvmlDeviceSetComputeMode(g, count % 4)
"""
    running = [driver.start(f"{PRELUDE}\ng = gpu({gpu['uuid']!r})\n{program}") for gpu in gpus]
    for process in running:
        process.communicate()
    assert [driver.state(gpu["uuid"]) for gpu in gpus] == [SetState(sm_locked=(1500, 1500), compute_mode=1)] * 4
    assert len(driver.log()) == 4 * 50 * 2
