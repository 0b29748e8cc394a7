"""Looks at a GPU: one careful, many cheap. The sampler runs in a program while its world changes."""

import contextlib
import json
import time

import pytest
from sim.amd_smi import MI300X, RX_7900_XTX

from tests.platforms.rocm.conftest import IMPORTS

LOOKING = """
with opened():
    look = sampler(Gpu(platform="rocm", uuid={uuid!r}, name="the GPU"))
    print("ready", flush=True)
    for _ in sys.stdin:
        try:
            said = dataclasses.asdict(look())
        except InfrastructureError as error:
            said = {{"error": type(error).__name__, **vars(error)}}
        print(json.dumps(said), flush=True)
"""


@contextlib.contextmanager
def looking(driver, uuid=MI300X["uuid"]):
    """A function that makes one sampler, always the same, look again."""
    with driver.start(IMPORTS + LOOKING.format(uuid=uuid)) as program:
        assert program.stdout.readline() == "ready\n"

        def look():
            program.stdin.write("look\n")
            program.stdin.flush()
            return json.loads(program.stdout.readline())

        yield look
        program.stdin.close()
    assert program.returncode == 0


def test_snapshot_has_the_fields_units(driver, ask):
    driver.set(MI300X)
    assert ask("snapshot(gpu)") == {
        "sm_clock_mhz": 2100,
        "mem_clock_mhz": 1300,
        "power_w": 135.0,
        "temperature_c": 41,
        "memory_used_bytes": 297_795_584,
        "event_reasons": None,
        "energy_mj": 987_654_321,
    }


def test_snapshot_is_null_where_the_device_does_not_tell(driver, ask):
    driver.set({**RX_7900_XTX, "throttle_status": 1 << 36, "temperature": None})
    assert ask("snapshot(gpu)", uuid=RX_7900_XTX["uuid"]) == {
        "sm_clock_mhz": 2482,
        "mem_clock_mhz": 1249,
        "power_w": 26.0,  # the average
        "temperature_c": 40,  # at the edge
        "memory_used_bytes": 27_111_424,
        "event_reasons": 1 << 36,
        "energy_mj": None,
    }


@pytest.mark.parametrize(("world", "host"), [({"metrics": "!2"}, {}), ({}, {"version": "27 0 0"})])
def test_clocks_without_a_readable_table_are_null(driver, ask, world, host):
    driver.set({**MI300X, **world}, **host)
    assert ask("clocks(gpu)") == [None, None]


def test_clocks_are_those_of_the_snapshot_without_the_rest(driver, ask):
    driver.set({**MI300X, "energy": "!12", "memory_used": "!12"})
    assert ask("clocks(gpu)") == [2100, 1300]


def test_a_sample_has_every_field(driver):
    driver.set({**MI300X, "utilization": "97 40", "compute": "70 9", "power_average": 130_000})
    with looking(driver) as look:
        driver.change(MI300X["uuid"], counter_cycles=1_010, counter_power=4)
        before_ns = time.monotonic_ns()
        sample = look()
        assert before_ns < sample.pop("at_ns") < time.monotonic_ns()
    assert sample == {
        "sm_clock_mhz": 2100,
        "mem_clock_mhz": 1300,
        "power_w": 135.0,
        "power_average_w": 130.0,
        "energy_mj": 987_654_321,
        "temperature_c": 41,
        "utilization_percent": 97,
        "memory_used_bytes": 297_795_584,
        "reasons": ["sw_power_cap"],
        "reason_ns": {},
        "pids": [9, 70],
    }


@pytest.mark.parametrize(
    ("counter", "reason"),
    [
        ("counter_prochot", "hw_slowdown"),
        ("counter_power", "sw_power_cap"),
        ("counter_socket_thermal", "hw_thermal"),
        ("counter_vr_thermal", "hw_thermal"),
        ("counter_hbm_thermal", "hw_thermal"),
    ],
)
def test_counter_that_grew_since_last_sample_is_a_reason(driver, counter, reason):
    driver.set({**MI300X, counter: 500})
    with looking(driver) as look:
        seen = [look()["reasons"]]
        for cycles, count in ((1_010, 500), (1_020, 501), (1_020, 501), (1_030, 501)):
            driver.change(MI300X["uuid"], counter_cycles=cycles, **{counter: count})
            seen.append(look()["reasons"])
    assert seen == [None, [], [reason], [reason], []], "without a new cycle the last answer stands"


def test_counters_that_start_again_are_no_reason(driver):
    driver.set({**MI300X, "counter_power": 500})
    with looking(driver) as look:
        driver.change(MI300X["uuid"], counter_cycles=10, counter_power=3)
        assert look()["reasons"] == []


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0, []),
        (1 << 0, ["sw_power_cap"]),
        (1 << 22, ["sw_power_cap"]),
        (1 << 36, ["hw_thermal"]),
        (1 << 47, ["hw_slowdown"]),
        (1 << 57, []),
        (None, None),
    ],
)
def test_bits_are_reasons_where_there_are_no_counters(driver, bits, reasons):
    driver.set({**RX_7900_XTX, "throttle_status": bits})
    with looking(driver, RX_7900_XTX["uuid"]) as look:
        assert look()["reasons"] == reasons


def test_a_table_that_is_not_offered_leaves_the_rest_of_a_sample(driver):
    driver.set({**MI300X, "metrics": "!2", "energy": None, "compute": "42"})
    with looking(driver) as look:
        sample = look()
    assert (sample["memory_used_bytes"], sample["pids"]) == (297_795_584, [42])
    nothing = ("sm_clock_mhz", "power_w", "temperature_c", "utilization_percent", "energy_mj", "reasons")
    assert [sample[name] for name in nothing] == [None] * len(nothing)


def test_a_sensor_that_stumbles_is_null_once_and_hides_nobody(driver):
    driver.set({**MI300X, "compute": "42", "metrics": "!12", "energy": "!12"})
    with looking(driver) as look:
        first = look()
        driver.change(MI300X["uuid"], metrics=None, energy=5_000)
        second = look()
    assert (first["temperature_c"], first["energy_mj"], first["pids"]) == (None, None, [42])
    assert (second["temperature_c"], second["energy_mj"]) == (41, 5_000)
