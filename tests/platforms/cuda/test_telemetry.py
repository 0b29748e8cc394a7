"""Looks at a GPU: one careful, many cheap. The sampler runs in a program while its world changes."""

import contextlib
import json
import time

from sim.nvml import GTX_1080, H200

from kernel_matrix.platforms.cuda.telemetry import _SlowQuery

LOOKING = """
import dataclasses, json, sys
from kernel_matrix.errors import InfrastructureError
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform
nvidia = get_platform("cuda")
with nvidia.opened():
    look = nvidia.sampler(Gpu(platform="cuda", uuid={uuid!r}, name="the GPU"))
    for _ in sys.stdin:
        try:
            said = dataclasses.asdict(look())
        except InfrastructureError as error:
            said = {{"error": type(error).__name__, **vars(error)}}
        print(json.dumps(said), flush=True)
"""


@contextlib.contextmanager
def looking(driver, uuid=H200["uuid"]):
    """A function that makes one sampler, always the same, look again."""
    with driver.start(LOOKING.format(uuid=uuid)) as program:

        def look():
            program.stdin.write("look\n")
            program.stdin.flush()
            return json.loads(program.stdout.readline())

        yield look
        program.stdin.close()
    assert program.returncode == 0


def test_snapshot_has_the_fields_units(driver, ask):
    driver.set({**H200, "event_reasons": 4})
    assert ask("nvidia.snapshot(gpu)") == {
        "sm_clock_mhz": 1980,
        "mem_clock_mhz": 3201,
        "power_w": 118.25,
        "temperature_c": 41,
        "memory_used_bytes": 1_048_576,
        "event_reasons": 4,
        "energy_mj": 987_654_321,
    }


def test_snapshot_is_null_where_the_device_does_not_tell(driver, ask):
    driver.set({**GTX_1080, "throttle_reasons": 1})  # an old driver: the reasons under their old name
    assert ask("nvidia.snapshot(gpu)", uuid=GTX_1080["uuid"]) == {
        "sm_clock_mhz": 139,
        "mem_clock_mhz": None,
        "power_w": None,
        "temperature_c": None,
        "memory_used_bytes": 0,
        "event_reasons": 1,
        "energy_mj": None,
    }


def test_clocks_are_those_of_the_snapshot_without_the_rest(driver, ask):
    driver.set({**H200, "power": "!999", "energy": "!999"}, GTX_1080)
    assert ask("nvidia.clocks(gpu)") == [1980, 3201]
    assert ask("nvidia.clocks(gpu)", uuid=GTX_1080["uuid"]) == [139, None]


def test_snapshot_field_with_other_failure_is_not_unsupported(driver, ask):
    driver.set({**H200, "power": "!999"})
    said = ask("nvidia.snapshot(gpu)")
    assert said["error"] == "InfrastructureError"
    assert "NVML error 999" in said["what"]


def test_a_sample_has_every_field(driver):
    driver.set({**H200, "event_reasons": 0x24, "utilization": "97 40", "compute": "70 9", "counter_hw_thermal": 5_000})
    with looking(driver) as look:
        before_ns = time.monotonic_ns()
        sample = look()
        assert before_ns < sample.pop("at_ns") < time.monotonic_ns()
    assert sample == {
        "sm_clock_mhz": 1980,
        "mem_clock_mhz": 3201,
        "power_w": 121.4,
        "power_average_w": 118.25,
        "energy_mj": 987_654_321,
        "temperature_c": 41,
        "utilization_percent": 97,
        "memory_used_bytes": 1_048_576,
        "reasons": ["sw_power_cap", "sw_thermal"],
        "reason_ns": {"sw_power_cap": 0, "sync_boost": 0, "sw_thermal": 0, "hw_thermal": 5_000, "power_brake": 0},
        "pids": [9, 70],
    }


def test_samples_follow_the_world(driver):
    driver.set(H200)
    with looking(driver) as look:
        first = look()
        driver.change(H200["uuid"], clock_sm=1200, power_instant=700_000, counter_sw_power_cap=8_000, compute="42")
        second = look()
    assert (first["sm_clock_mhz"], first["power_w"], first["pids"]) == (1980, 121.4, [])
    assert (second["sm_clock_mhz"], second["power_w"], second["pids"]) == (1200, 700.0, [42])
    assert second["reason_ns"]["sw_power_cap"] - first["reason_ns"]["sw_power_cap"] == 8_000
    assert second["at_ns"] > first["at_ns"]


def test_each_bit_is_a_reason(driver):
    driver.set({**H200, "event_reasons": 0x1FF})
    with looking(driver) as look:
        assert look()["reasons"] == [
            "idle",
            "applications_clocks",
            "sw_power_cap",
            "hw_slowdown",
            "sync_boost",
            "sw_thermal",
            "hw_thermal",
            "power_brake",
            "display_clock",
        ]


def test_a_device_that_tells_little_gives_a_sample_of_little(driver):
    driver.set({**GTX_1080, "throttle_reasons": 1, "power": 40_000})
    with looking(driver, GTX_1080["uuid"]) as look:
        for sample in (look(), look()):
            del sample["at_ns"]
            assert sample == {
                "sm_clock_mhz": 139,
                "mem_clock_mhz": None,
                "power_w": 40.0,  # the old question, where the driver has no field for it
                "power_average_w": None,
                "energy_mj": None,
                "temperature_c": None,
                "utilization_percent": None,
                "memory_used_bytes": 0,  # the old question too
                "reasons": ["idle"],
                "reason_ns": {},
                "pids": [],
            }


def test_a_device_without_reasons_is_not_said_to_run_freely(driver):
    driver.set(GTX_1080)
    with looking(driver, GTX_1080["uuid"]) as look:
        assert look()["reasons"] is None


def test_memory_that_the_driver_keeps_for_itself_is_not_in_use(driver):
    driver.set({**H200, "memory_used": 0, "memory_reserved": 600_000_000})
    with looking(driver) as look:
        assert look()["memory_used_bytes"] == 0


def test_counters_of_other_meaning_on_old_driver_are_not_read(driver):
    driver.set({**H200, "counter_sw_thermal": 123}, driver="575.51.03")
    with looking(driver) as look:
        assert look()["reason_ns"] == {"sw_power_cap": 0, "sync_boost": 0}


def test_without_counters_the_violation_times_count(driver):
    without = {key: value for key, value in H200.items() if not key.startswith("counter_")}
    driver.set({**without, "counter_thermal": 77})
    with looking(driver) as look:
        assert look()["reason_ns"] == {"sw_thermal": 77}
        driver.change(H200["uuid"], counter_thermal=99)
        assert look()["reason_ns"] == {"sw_thermal": 99}


def test_failing_counters_are_not_replaced_by_violation_times(driver):
    stumbling = {key: "!10" for key in H200 if key.startswith("counter_")}
    driver.set({**H200, **stumbling, "counter_thermal": 77})
    with looking(driver) as look:
        assert look()["reason_ns"] == {}


def test_what_is_not_supported_is_not_asked_again(driver):
    answered = {
        "temperature": 50,
        "power_average": 90_000,
        "utilization": "9 9",
        "graphics": "31",
        "counter_sw_thermal": 1,
    }
    driver.set({key: value for key, value in H200.items() if key not in answered})
    with looking(driver) as look:
        first = look()
        driver.change(H200["uuid"], **answered)
        second = look()
    assert (first["temperature_c"], first["power_average_w"], first["utilization_percent"]) == (None, None, None)
    of_the_moment = {"at_ns": 0, "energy_mj": 0}
    assert {**second, **of_the_moment} == {**first, **of_the_moment}


def test_energy_is_asked_once_a_second_because_it_is_dear():
    asked = []
    energy = _SlowQuery(lambda: asked.append("energy") or 7)
    seen = [energy(millisecond * 1_000_000) for millisecond in range(0, 2_500, 50)]
    assert len(asked) == 3
    assert [index for index, value in enumerate(seen) if value == 7] == [0, 20, 40]


def test_a_sensor_that_stumbles_is_null_once_and_hides_nobody(driver):
    driver.set({**H200, "compute": "42", "temperature": "!999", "power_instant": "!10", "counter_sw_power_cap": "!10"})
    with looking(driver) as look:
        first = look()
        driver.change(H200["uuid"], temperature=50, power_instant=80_000, counter_sw_power_cap=3)
        second = look()
    assert (first["temperature_c"], first["pids"]) == (None, [42])
    assert first["power_w"] == 118.25  # the old question stands in
    assert "sw_power_cap" not in first["reason_ns"]
    assert (second["temperature_c"], second["power_w"], second["reason_ns"]["sw_power_cap"]) == (50, 80.0, 3)


def test_a_gpu_that_only_a_field_value_knows_to_be_lost_is_lost(driver):
    driver.set({**H200, "power_average": "!15"})
    with looking(driver) as look:
        assert look()["error"] == "GpuLostError"
