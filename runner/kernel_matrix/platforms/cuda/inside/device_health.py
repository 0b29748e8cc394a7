"""Health check of a GPU: arithmetic with known answers on every SM, patterns in its memory, and its clock.

It is fast and works without torch. It only decides whether the next cell may run on this GPU, and is no stress test.
"""

from __future__ import annotations

import ctypes
import statistics
import time
import zlib
from array import array
from typing import Optional, Sequence

from kernel_matrix.inside.known_answers import INCREMENT, MULTIPLIER, ROUNDS, WORDS, right_answer
from kernel_matrix.inside.platform import DeviceError, DeviceHealth
from kernel_matrix.platforms.cuda.inside.clock_probe import SHORTEST_S, read_clocks
from kernel_matrix.platforms.cuda.inside.libcuda import CudaDevice, CudaModule, opened
from kernel_matrix.platforms.cuda.inside.ptx import HEADER, STRIDED

ANSWERS_CRC32 = 0xC287B4B3
"""CRC-32 of all right answers as little-endian words, so that the host need not compute them."""

_THREADS = 256
_BLOCKS_PER_SM = 8
MASKS = (0x00000000, 0xFFFFFFFF, 0x55555555, 0xAAAAAAAA)
"""Masks of the patterns: each word is its own index xor the mask, so that each bit is tested as 0 and as 1."""
PATTERN_WORDS = 1 << 26
"""256 MiB, several times the size of a cache; :func:`right_sum` needs a power of two."""

PTX = f"""{HEADER}
.visible .entry known_answers(.param .u64 answers, .param .u32 rounds)
{{
    .reg .pred %more;
    .reg .b32 %thread, %block, %width, %i, %x, %rest, %whole;
    .reg .f32 %y, %four, %three, %quarter;
    .reg .b64 %place, %offset;

    ld.param.u64 %place, [answers];
    ld.param.u32 %rest, [rounds];
    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mad.lo.u32 %i, %block, %width, %thread;
    mov.u32 %x, %i;
    and.b32 %whole, %i, 0xffff;
    cvt.rn.f32.u32 %y, %whole;
    mov.f32 %four, 0f40800000;
    mov.f32 %three, 0f40400000;
    mov.f32 %quarter, 0f3E800000;
STEP:
    mad.lo.u32 %x, %x, {MULTIPLIER}, {INCREMENT};
    fma.rn.f32 %y, %y, %four, %three;
    fma.rn.f32 %y, %y, %quarter, %quarter;
    sub.u32 %rest, %rest, 1;
    setp.ne.u32 %more, %rest, 0;
    @%more bra STEP;
    cvt.rzi.u32.f32 %whole, %y;
    add.u32 %x, %x, %whole;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %place, %place, %offset;
    st.global.u32 [%place], %x;
    ret;
}}

.visible .entry write_pattern(.param .u64 memory, .param .u32 words, .param .u32 mask)
{{
    .reg .pred %over;
    .reg .b32 %thread, %block, %width, %blocks, %i, %step, %words, %mask, %x;
    .reg .b64 %memory, %place;

    ld.param.u64 %memory, [memory];
    ld.param.u32 %words, [words];
    ld.param.u32 %mask, [mask];
{STRIDED}
WRITE:
    setp.ge.u32 %over, %i, %words;
    @%over ret;
    mul.wide.u32 %place, %i, 4;
    add.u64 %place, %place, %memory;
    xor.b32 %x, %i, %mask;
    st.global.u32 [%place], %x;
    add.u32 %i, %i, %step;
    bra WRITE;
}}

.visible .entry sum_pattern(.param .u64 memory, .param .u32 words, .param .u64 total)
{{
    .reg .pred %over;
    .reg .b32 %thread, %block, %width, %blocks, %i, %step, %words, %x;
    .reg .b64 %memory, %place, %total, %sum, %wide;

    ld.param.u64 %memory, [memory];
    ld.param.u32 %words, [words];
    ld.param.u64 %total, [total];
{STRIDED}
    mov.u64 %sum, 0;
READ:
    setp.ge.u32 %over, %i, %words;
    @%over bra DONE;
    mul.wide.u32 %place, %i, 4;
    add.u64 %place, %place, %memory;
    ld.global.u32 %x, [%place];
    cvt.u64.u32 %wide, %x;
    add.u64 %sum, %sum, %wide;
    add.u32 %i, %i, %step;
    bra READ;
DONE:
    red.global.add.u64 [%total], %sum;
    ret;
}}
"""

CANNOT_ASK = (None, 221, 222, 223)
"""Codes of errors that come from the container and not from the GPU: no driver library, or a function missing in it;
no compiler for PTX (``CUDA_ERROR_JIT_COMPILER_NOT_FOUND``), one that is too old (``UNSUPPORTED_PTX_VERSION``), or one
that is disabled (``JIT_COMPILATION_DISABLED``)."""


class WrongAnswerError(Exception):
    """The device computed or stored a wrong value."""


def check_gpu(seconds: float) -> DeviceHealth:
    """Check the only visible GPU, with its clock measured over ``seconds``; a broken GPU is a result, not an error."""
    started = time.monotonic()
    passed: Optional[bool] = True
    sm_mhz, reason = None, ""
    try:
        with opened() as device:
            with device.module(PTX) as module:
                _check_answers(device, module)
                _check_memory(device, module)
            clocks = read_clocks(device, max(seconds, SHORTEST_S)).mhz
            sm_mhz = statistics.median(clocks) if clocks else None
    except WrongAnswerError as error:
        passed, reason = False, str(error)
    except DeviceError as error:
        passed, reason = None if error.code in CANNOT_ASK else False, str(error)
    return DeviceHealth(passed, reason, sm_mhz, time.monotonic() - started)


def _check_answers(device: CudaDevice, module: CudaModule) -> None:
    """Compute all known answers on the device.

    Raises:
        WrongAnswerError: if one is wrong; the message names the first one.
    """
    with device.memory(WORDS * 4) as memory:
        module.launch("known_answers", WORDS // _THREADS, _THREADS, memory, ctypes.c_uint32(ROUNDS))
        answers = device.read(memory, WORDS * 4)
    if zlib.crc32(answers) != ANSWERS_CRC32:
        raise WrongAnswerError(_first_wrong(array("I", answers)))


def _first_wrong(answers: Sequence[int]) -> str:
    wrong = [index for index, answer in enumerate(answers) if answer != right_answer(index)]
    first = wrong[0]
    return (
        f"known answers: {len(wrong)} of {len(answers)} are wrong; number {first} is {answers[first]:#010x}, "
        f"not {right_answer(first):#010x}"
    )


def _check_memory(device: CudaDevice, module: CudaModule) -> None:
    """Write patterns to device memory and read them back.

    Raises:
        WrongAnswerError: if a pattern has changed; the message names it.
    """
    words = pattern_words(device.free_bytes())
    blocks = device.multiprocessors() * _BLOCKS_PER_SM
    count = ctypes.c_uint32(words)
    with device.memory(words * 4) as memory, device.memory(8) as total:
        for mask in MASKS:
            device.clear(total, 8)
            module.launch("write_pattern", blocks, _THREADS, memory, count, ctypes.c_uint32(mask))
            module.launch("sum_pattern", blocks, _THREADS, memory, count, total)
            found = int.from_bytes(device.read(total, 8), "little")
            if found != right_sum(words, mask):
                raise WrongAnswerError(
                    f"device memory: pattern {mask:#010x} over {words} words sums to {found}, "
                    f"not {right_sum(words, mask)}"
                )


def pattern_words(free_bytes: int) -> int:
    """Return the number of words to test: :data:`PATTERN_WORDS`, or a power of two within half the free memory."""
    return min(PATTERN_WORDS, 1 << max(10, (free_bytes // 8).bit_length() - 1))


def right_sum(words: int, mask: int) -> int:
    """Return the sum of ``index ^ mask`` over ``words`` indices, a power of two.

    The mask's low bits only permute the indices, so that they do not change the sum.
    """
    return words * (words - 1) // 2 + words * (mask & ~(words - 1))
