"""The judge's own kernels: what they compute, that each is timed behind a busy device, and that all is undone."""

import struct
from collections import Counter

import pytest

from kernel_matrix.inside.anchor_times import COPIES, REPEATS, ROUNDS
from kernel_matrix.model.messages import AnchorTimes, from_json
from kernel_matrix.platforms.cuda.inside.anchor import COPY_BYTES, PTX, measure_anchor
from tests.inside.ptx import Kernel

MEASURE = """
from kernel_matrix.platforms.cuda.inside.anchor import measure_anchor
from kernel_matrix.model.messages import dumps
print(dumps(measure_anchor("before")))
"""
BASE = 1 << 20


def thread(kernel, arguments, *, number, block=0, memory=None):
    """Run one thread of ``kernel``, of two blocks of four threads each, and return the memory after it."""
    memory = {} if memory is None else memory
    special = {"tid.x": number, "ctaid.x": block, "ntid.x": 4, "nctaid.x": 2}
    Kernel(PTX, kernel).run(arguments, special, memory)
    return memory


def test_the_copy_goes_over_every_word_once_and_no_further():
    words = 21
    source, target = {BASE + 8 * word: word + 7 for word in range(words)}, 2 * BASE
    copies, written = {}, Counter()
    for block in range(2):
        for number in range(4):
            memory = thread("anchor_copy", (BASE, target, words), number=number, block=block, memory=dict(source))
            copied = {address: value for address, value in memory.items() if address not in source}
            copies.update(copied)
            written.update(copied.keys())
    assert copies == {target + 8 * word: word + 7 for word in range(words)}
    assert set(written.values()) == {1}


@pytest.mark.parametrize("rounds", [1, 2, 50])
def test_the_arithmetic_is_gone_through_as_often_as_asked(rounds):
    memory = thread("anchor_compute", (BASE, rounds), number=0, block=3)
    assert list(memory) == [BASE + 3 * 4], "every block has a place of its own"

    def fitted(value):
        return struct.unpack("f", struct.pack("f", value))[0]

    chains = [0.0, 1.0, 2.0, 3.0]
    factor = struct.unpack(">f", bytes.fromhex("BF800001"))[0]
    for _ in range(rounds * 16):
        chains = [fitted(x * factor + 1.0) for x in chains]
    assert memory[BASE + 12] == pytest.approx(sum(chains), rel=1e-6)


def test_anchor_result_is_written_by_first_thread_of_block_only():
    assert thread("anchor_compute", (BASE, 1), number=1) == {}


def test_the_medians_of_both_kernels_and_nothing_is_left(cuda):
    anchor = from_json(AnchorTimes, cuda.ask(MEASURE, wrong="compute_ns=260000 memory_ns=41000"))
    assert (anchor.phase, anchor.compute_ns, anchor.memory_ns) == ("before", 260_000, 41_000)
    assert anchor.started_ns > 0
    assert cuda.left_over() == {}
    assert cuda.calls()["cuLaunchKernel"] == (3 + COPIES) * REPEATS, "each is timed behind a kernel that is not"
    assert cuda.calls()["cuEventRecord"] == 2 * 2 * REPEATS


@pytest.mark.parametrize(
    "function", ["cuEventCreate", "cuEventRecord", "cuEventSynchronize", "cuEventElapsedTime", "cuLaunchKernel"]
)
def test_a_driver_that_fails_is_an_error_and_leaves_nothing(function, cuda):
    done = cuda.run("-c", MEASURE, wrong=f"{function}=719")
    assert done.stderr.strip().endswith(f"DeviceError: {function} failed with CUDA_ERROR_LAUNCH_FAILED (719)")
    assert cuda.left_over() == ({function: 1} if function == "cuEventCreate" else {}), "what failed did nothing"


@pytest.mark.gpu
def test_a_real_gpu_is_quick_about_it_and_says_the_same_twice():
    measure_anchor("before")
    one, other = measure_anchor("before"), measure_anchor("after")
    assert one.compute_ns == pytest.approx(other.compute_ns, rel=0.05)
    assert one.memory_ns == pytest.approx(other.memory_ns, rel=0.1)
    assert COPY_BYTES / one.memory_ns < 20_000, "no memory moves 20 TB/s"
    assert ROUNDS * 128 / one.compute_ns < 20, "no SM clock is above 20 GHz"
