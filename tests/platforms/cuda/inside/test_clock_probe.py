"""The SM clock from inside: the kernel's own arithmetic over timers that move in steps, and what is made of it."""

import json
from dataclasses import asdict
from types import SimpleNamespace

import pytest

from kernel_matrix.inside.core_clock import clocks_of
from kernel_matrix.model.messages import ClockProbeReading, from_json
from kernel_matrix.platforms.cuda.inside.clock_probe import PTX, measure_clock
from tests.inside.ptx import Kernel

US, MS = 1_000, 1_000_000
MEASURE = """
import json
from kernel_matrix.platforms.cuda.inside.clock_probe import measure_clock
from kernel_matrix.model.messages import dumps
print(dumps(measure_clock("before", 0.03)))
"""


def timers(mhz, step_ns, look_ns=200):
    """Special registers of a GPU whose ``globaltimer`` moves every ``step_ns``; each look at it takes ``look_ns``."""
    now = SimpleNamespace(ns=123_456_789)

    def globaltimer():
        now.ns += look_ns
        return now.ns // step_ns * step_ns

    return {"globaltimer": globaltimer, "clock64": lambda: now.ns * mhz // 1000}


def read_block(special, *, lead_ns, window_ns, thread=0, block=0, before=3, after=3):
    """What one block leaves, as words."""
    sms = iter((before, after))
    memory = {}
    special = {**special, "tid.x": thread, "ctaid.x": block, "smid": lambda: next(sms)}
    Kernel(PTX, "read_clocks").run((1 << 20, lead_ns, window_ns, 10 * window_ns), special, memory)
    return {address - (1 << 20): value for address, value in memory.items()}


@pytest.mark.parametrize("step_ns", [32, 1024, 50 * US], ids=["32 ns", "1 us", "50 us"])
def test_the_kernel_reads_the_clock_whatever_the_timers_step(step_ns):
    window_ns, look_ns = 200 * US, 200
    words = read_block(timers(1980, step_ns, look_ns), lead_ns=10 * US, window_ns=window_ns)
    assert list(words) == [0, 8, 16, 24, 32, 40, 48]
    t0, c0, t1, c1 = (words[place] for place in (0, 8, 16, 24))
    assert window_ns <= t1 - t0 < window_ns + max(step_ns, look_ns) + look_ns
    error = 2 * max(look_ns, 32) / (t1 - t0)
    assert (c1 - c0) / (t1 - t0) * 1000 == pytest.approx(1980, rel=error)


def test_probe_words_are_of_first_thread_and_each_block_apart():
    assert read_block(timers(1000, 32), lead_ns=US, window_ns=2 * US, thread=1) == {}
    assert min(read_block(timers(1000, 32), lead_ns=US, window_ns=2 * US, block=2)) == 2 * 56


def test_the_kernel_works_before_the_window_opens():
    early, late = (read_block(timers(1000, 32), lead_ns=lead, window_ns=20 * US)[0] for lead in (US, 50 * US))
    assert late - early == pytest.approx(49 * US, abs=US)


def test_the_kernel_ends_where_the_timer_stands_still():
    ticks = iter(range(0, 10**9, 500))
    words = read_block({"globaltimer": 7, "clock64": lambda: next(ticks)}, lead_ns=US, window_ns=2 * US)
    assert words[16] == words[0]
    assert words[24] - words[8] <= 10 * 2 * US + 500


def test_the_work_neither_overflows_nor_vanishes():
    words = read_block(timers(1000, 32, look_ns=100), lead_ns=US, window_ns=100 * US)
    assert 0 < abs(words[48]) < 1e6


def test_a_reading_has_the_median_and_the_extremes_over_all_sms(cuda):
    probe = from_json(ClockProbeReading, cuda.ask(MEASURE, wrong="mhz=1980"))
    assert (probe.sms, probe.low_mhz, probe.sm_mhz, probe.high_mhz) == (4, 1977, 1978.5, 1980)
    assert probe.phase == "before"
    assert 0 < probe.started_ns <= probe.ended_ns
    assert cuda.left_over() == {}


def test_a_block_that_was_moved_between_sms_says_nothing(cuda):
    probe = from_json(ClockProbeReading, cuda.ask(MEASURE, wrong="moved=0"))
    assert (probe.sms, probe.high_mhz) == (3, 999)


def test_timers_that_stand_still_are_an_error(cuda):
    done = cuda.run("-c", MEASURE, wrong="still=1")
    assert done.stderr.strip().endswith("no multiprocessor gave a usable reading of clock64 and globaltimer")
    assert cuda.left_over() == {}


def test_two_blocks_on_one_sm_are_one_reading():
    block = (0, 0, 30 * MS, 30 * MS, 5, 5, 0)
    assert clocks_of((*block, *block), 30 * MS) == (1000.0,)


def test_a_window_too_short_for_the_timer_is_refused(cuda):
    done = cuda.run("-c", MEASURE.replace("0.03", "0.024"))
    assert "ValueError: a window of 0.024 s is too short" in done.stderr
    assert cuda.left_over() == {}


@pytest.mark.gpu
def test_a_real_gpu_has_a_clock_that_is_the_same_on_every_sm():
    probe = measure_clock("before")
    assert 100 < probe.low_mhz <= probe.sm_mhz <= probe.high_mhz < 5000
    assert probe.high_mhz / probe.low_mhz < 1.01
    assert json.loads(json.dumps(asdict(probe)))["sms"] > 0
