"""The judge's own kernels on an AMD GPU: what they compute, and that each is timed behind a busy device."""

import struct

import pytest

from kernel_matrix.inside.anchor_times import COPIES, REPEATS
from kernel_matrix.model.messages import AnchorTimes, from_json

MEASURE = """
from kernel_matrix.platforms.rocm.inside.anchor import measure_anchor
from kernel_matrix.model.messages import dumps
print(dumps(measure_anchor("before")))
"""
RUN = """
import ctypes, json
from kernel_matrix.platforms.rocm.inside.anchor import TEXT
from kernel_matrix.platforms.rocm.inside.libamdhip import opened
with opened() as device, device.module(TEXT) as module:
    with device.memory(4096) as source, device.memory(4096) as target, device.memory(64) as sums:
        ctypes.memmove(source.value, bytes(range(256)) * 16, 4096)
        module.launch("anchor_copy", 3, 256, source, target, ctypes.c_uint32(500))
        module.launch("anchor_compute", 2, 256, sums, ctypes.c_uint32(50))
        print(json.dumps([device.read(target, 4096).hex(), device.read(sums, 12).hex()]))
"""


def test_amd_anchor_kernels_compute_what_those_of_nvidia_do(hip):
    copied, sums = (bytes.fromhex(text) for text in hip.ask(RUN))
    assert copied == (bytes(range(256)) * 16)[:4000] + bytes(96), "every word, and no further"

    def fitted(value):
        return struct.unpack("f", struct.pack("f", value))[0]

    chains = [0.0, 1.0, 2.0, 3.0]
    factor = struct.unpack(">f", bytes.fromhex("BF800001"))[0]
    for _ in range(50 * 16):
        chains = [fitted(x * factor + 1.0) for x in chains]
    assert struct.unpack("3f", sums) == pytest.approx((sum(chains), sum(chains), 0.0), rel=1e-6)


def test_amd_anchors_are_medians_and_nothing_is_left(hip):
    anchor = from_json(AnchorTimes, hip.ask(MEASURE, wrong="threads=1 compute_ns=260000 memory_ns=41000"))
    assert (anchor.phase, anchor.compute_ns, anchor.memory_ns) == ("before", 260_000, 41_000)
    assert hip.left_over() == {}
    assert hip.calls()["hipModuleLaunchKernel"] == (3 + COPIES) * REPEATS


@pytest.mark.parametrize("function", ["hipEventCreateWithFlags", "hipEventSynchronize", "hipModuleLaunchKernel"])
def test_hip_runtime_that_fails_while_timing_leaves_nothing(function, hip):
    done = hip.run("-c", MEASURE, wrong=f"threads=1 {function}=719")
    assert done.stderr.strip().endswith(f"DeviceError: {function} failed with hipErrorLaunchFailure (719)")
    assert hip.left_over() == ({function: 1} if function in hip.UNDONE else {}), "what failed did nothing"
