"""The judge's own measurements of a GPU, on the simulated driver."""

import pytest

from kernel_matrix.inside.judge.device_readings import DeviceReadings

PROGRAM = """
import json
from kernel_matrix.model.messages import to_json
from kernel_matrix.inside.judge.device_readings import DeviceReadings

readings = DeviceReadings("cuda")
for _workload in range(2):
    readings.before()
    readings.after()
probes, anchors = to_json(readings.clock_probes), to_json(readings.anchors)
print(json.dumps({"probes": probes, "anchors": anchors, "labels": readings.labels}))
"""


def test_a_processor_has_nothing_to_read():
    readings = DeviceReadings("cpu")
    readings.before()
    readings.after()
    assert (readings.clock_probes, readings.anchors, readings.labels) == ((), (), [])


def test_gpu_is_read_before_first_and_after_last_workload(cuda):
    told = cuda.ask(PROGRAM, wrong="mhz=1980")
    for kind in ("probes", "anchors"):
        before, after = told[kind]
        assert (before["phase"], after["phase"]) == ("before", "after")
        assert before["started_ns"] < after["started_ns"]
    assert [probe["sm_mhz"] for probe in told["probes"]] == [1978.5, 1978.5]
    assert told["labels"] == []
    assert cuda.left_over() == {}


@pytest.mark.parametrize("wrong", ["cuLaunchKernel=719", "cuModuleLoadData=222"])
def test_what_cannot_be_read_is_said_each_time_and_ends_nothing(wrong, cuda):
    told = cuda.ask(PROGRAM, wrong=wrong)
    assert (told["probes"], told["anchors"]) == ([], [])
    assert told["labels"] == ["no_clock_probe", "no_anchor"] * 3
