"""Known answers: right in closed form, step by step and as the kernels compute them; each kind of fault is told."""

import zlib
from array import array

import pytest

from kernel_matrix.inside.gpu_health import ANSWERS_CRC32, MASKS, PATTERN_WORDS, pattern_words, right_sum
from kernel_matrix.inside.known_answers import ROUNDS, WORDS, right_answer, worked_out
from kernel_matrix.platforms.cpu import inside as cpu_inside
from kernel_matrix.platforms.cuda.inside.device_health import PTX, check_gpus
from tests.inside.ptx import Kernel

SOME = (0, 1, 2, 255, 256, 65535, 65536, 65537, 999_999, WORDS - 1)
CHECK = """
from kernel_matrix.platforms.cuda.inside.device_health import check_gpus
from kernel_matrix.model.messages import dumps
print(dumps(check_gpus(0.03, 1)))
"""
CHECK_TWO = CHECK.replace("0.03, 1", "0.03, 2")


def test_the_checksum_is_that_of_all_right_answers():
    assert zlib.crc32(array("I", map(right_answer, range(WORDS)))) == ANSWERS_CRC32


@pytest.mark.parametrize("index", SOME)
def test_the_kernel_works_out_the_right_answer(index):
    special = {"tid.x": index % 256, "ctaid.x": index // 256, "ntid.x": 256}
    memory = {}
    Kernel(PTX, "known_answers").run((1 << 30, ROUNDS), special, memory)
    assert memory == {(1 << 30) + 4 * index: right_answer(index)}
    assert worked_out(index) == right_answer(index)


def on_all_threads(name, arguments, memory, *, blocks=3, width=5):
    for thread in range(blocks * width):
        special = {"tid.x": thread % width, "ctaid.x": thread // width, "ntid.x": width, "nctaid.x": blocks}
        Kernel(PTX, name).run(arguments, special, memory)


@pytest.mark.parametrize("mask", MASKS)
def test_a_pattern_covers_every_word_and_sums_to_what_it_should(mask):
    place, total, words = 1 << 30, 8, 64
    memory = {total: 0}
    on_all_threads("write_pattern", (place, words, mask), memory)
    assert memory == {total: 0, **{place + 4 * index: index ^ mask for index in range(words)}}
    on_all_threads("sum_pattern", (place, words, total), memory)
    assert memory[total] == right_sum(words, mask) == sum(index ^ mask for index in range(words))


def test_every_bit_of_every_word_is_tried_both_ways():
    for index in (0, 1, PATTERN_WORDS - 1):
        seen = [index ^ mask for mask in MASKS]
        assert all({word >> bit & 1 for word in seen} == {0, 1} for bit in range(32))


@pytest.mark.parametrize(
    ("free", "words"), [(141 << 30, PATTERN_WORDS), (100 << 20, 1 << 23), (1 << 20, 1 << 17), (0, 1 << 10)]
)
def test_a_pattern_takes_no_more_than_half_of_what_is_free(free, words):
    assert pattern_words(free) == words
    assert words * 4 <= free // 2 or words == 1 << 10


def test_a_gpu_that_answers_rightly_is_well(cuda):
    found = cuda.ask(CHECK, wrong="mhz=1500")
    assert (found["passed"], found["reason"], found["sm_mhz"]) == (True, "", 1498.5)
    assert found["seconds"] > 0
    assert cuda.left_over() == {}


UNWELL = {
    "a wrong answer": ("flip=17", "known answers: 1 of 1048576 are wrong; number 17 is 0x2666aa23, not 0x2666aa22"),
    "a bit that is always set": ("stuck=5", "device memory: pattern 0x00000000 over 131072 words sums to 8589869088"),
    "a bit that is always set where indices set it": ("stuck=31", "device memory: pattern 0x00000000"),
    "a kernel that fails": ("cuLaunchKernel=719", "cuLaunchKernel failed with CUDA_ERROR_LAUNCH_FAILED (719)"),
    "no device": ("cuInit=100", "cuInit failed with CUDA_ERROR_NO_DEVICE (100)"),
    "a device that is gone at the wait": ("cuStreamSynchronize=719", "cuStreamSynchronize failed"),
}


@pytest.mark.parametrize("name", UNWELL)
def test_a_gpu_that_is_not_well_says_why(name, cuda):
    wrong, reason = UNWELL[name]
    found = cuda.ask(CHECK, wrong=wrong)
    assert found["passed"] is False
    assert found["reason"].startswith(reason)
    assert found["sm_mhz"] is None
    assert cuda.left_over() == {}


@pytest.mark.parametrize("code", [221, 222, 223])
def test_container_without_ptx_compiler_leaves_health_unknown(code, cuda):
    found = cuda.ask(CHECK, wrong=f"cuModuleLoadData={code}")
    assert found["passed"] is None
    assert found["reason"].startswith("cuModuleLoadData failed with")


TWO = {
    "both are well": ("devices=2", True, ""),
    "the second is gone": ("devices=1", False, "device 1: cuDeviceGet failed with"),
    "both are wrong": ("devices=2 flip=17", False, "device 0: known answers: 1 of 1048576 are wrong"),
}


@pytest.mark.parametrize("name", TWO)
def test_each_gpu_of_a_group_is_checked(name, cuda):
    wrong, passed, reason = TWO[name]
    found = cuda.ask(CHECK_TWO, wrong=wrong)
    assert found["passed"] is passed
    assert found["reason"].startswith(reason) if reason else not found["reason"]


def test_a_clock_that_cannot_be_read_is_no_illness(cuda):
    found = cuda.ask(CHECK, wrong="still=1")
    assert (found["passed"], found["sm_mhz"]) == (True, None)


def test_a_processor_works_out_a_few_answers_itself(monkeypatch):
    assert cpu_inside.check_health(0.0, 1).passed
    monkeypatch.setattr(cpu_inside, "worked_out", lambda index: right_answer(index) ^ (index == 0))
    found = cpu_inside.check_health(0.0, 1)
    assert (found.passed, found.reason) == (False, "known answers: 1 are wrong, the first is number 0")


@pytest.mark.gpu
def test_a_real_gpu_is_well():
    found = check_gpus(0.03, 1)
    assert (found.passed, found.reason) == (True, "")
    assert found.sm_mhz > 100
