"""Every check has no finding in clean tables, and finds the fault that is planted for it."""

import re
from dataclasses import replace
from datetime import timedelta

import polars as pl
import pytest

from kernel_matrix.analysis.audit import CHECKS, FINDINGS, Severity, audit, chosen, objections, write_objections
from kernel_matrix.analysis.outcomes import outcomes
from kernel_matrix.analysis.tables import open_tables
from kernel_matrix.errors import NothingSelectedError, UsageError
from tests.analysis.audit.planted import CALLS, clean, heard, tables_of, with_samples
from tests.analysis.made import cell, cells, frame, tables, write

NAMES = list(CHECKS.built_in)


def changed(where=None, **columns):
    """Clean rows; those that match ``where`` get these columns."""
    rows = clean()
    for row in rows:
        if where is None or where(row):
            row.update({name: value(row) if callable(value) else value for name, value in columns.items()})
    return rows


def times(row, factor):
    """The columns of a row that took ``factor`` times as long."""
    ours, theirs = row["candidate_median_ns"] * factor, row["baseline_median_ns"] * factor
    return {"candidate_median_ns": ours, "baseline_median_ns": theirs, "speedup": theirs / ours}


def first(row):
    return row["gpu"] == "h200" and row["problem"] == "problem0" and row["candidate"].endswith("fast")


def large(row):
    """Rows whose work fits in no cache."""
    return row["gpu"] == "h200" and row["problem"] == "problem7" and row["candidate"].endswith("fast")


def stated(where, **rates):
    """Rows of a file that states rates, and no work."""
    return changed(where, bytes=None, flops=None, **rates)


def built_for_another_gpu(row):
    return row["gpu"] == "t4" and row["problem"] < "problem5"


NO_IMAGE = "RuntimeError: CUDA error: no kernel image is available for execution on the device\nCompile with …"


def other_version():
    """Three of eight problems are larger on one GPU."""
    return slower(20.0, lambda row: row["gpu"] == "t4" and row["problem"] < "problem3")


def never_ran(steps, *, tick=1024.0, rows=12):
    """A file of one method's times, each of them the baseline's or ``steps`` timer steps more, around 20 to 30 µs."""
    return [
        cell(
            gpu="a100", candidate="method", problem=f"p{number}", source="file", candidate_sha256=None,
            baseline_median_ns=tick * (20 + number), candidate_median_ns=tick * (20 + number + steps * (number % 2)),
        )
        for number in range(rows)
    ]  # fmt: skip


def copied():
    rows = clean()
    there = {(r["problem"], r["candidate"], r["session"]): r for r in rows if r["gpu"] == "l40s"}
    for row in rows:
        if row["gpu"] == "t4" and row["problem"] > "problem1":
            row.update(times(there[row["problem"], row["candidate"], row["session"]], 1.0))
    return rows


def copied_block():
    """Two of sixteen candidates copied, with the five workloads that each has."""
    rows = []
    for row in clean():
        for number in range(5):
            new = {**row, "workload": f"w{number}", **times(row, 1 + 0.3 * number)}
            rows.append(new)
    there = {(r["candidate"], r["workload"], r["session"]): r for r in rows if r["gpu"] == "l40s"}
    for row in rows:
        if row["gpu"] == "t4" and row["candidate"] == "problem3/fast":
            row.update(times(there[row["candidate"], row["workload"], row["session"]], 1.0))
    return rows


def flipped(status="incorrect_values", runs=("later",)):
    rows = clean()
    untimed = dict.fromkeys(("candidate_median_ns", "baseline_median_ns", "speedup"))
    failed = {**rows[0], **untimed, "status": status, "fault": "candidate", "message": "12 µs are unexplained"}
    return [*rows, *({**failed, "run_id": run, "attempt": attempt} for attempt, run in enumerate(runs, 1))]


def slower(factor, where):
    rows = clean()
    for row in rows:
        if where(row):
            row.update(times(row, factor))
    return rows


def more_boards(*factors):
    """Clean rows, and those of further H200s, whose times are the first one's times these factors."""
    rows = clean()
    rows += [{**row, "dtype": "fp16"} for row in rows if row["gpu"] == "h200"]
    here = [row for row in rows if row["gpu"] == "h200"]
    further = {"host_id": "host-more", "hostname": "node-more"}
    for number, factor in enumerate(factors):
        rows += [{**row, **times(row, factor), "gpu_uuid": f"GPU-more-{number}", **further} for row in here]
    return rows


def sized():
    """A candidate that takes the same for a workload a hundred times as large."""
    rows = clean()
    row = rows[0]
    large = row["baseline_median_ns"] * 100
    rows.append(
        {
            **row,
            "workload": "large",
            "baseline_median_ns": large,
            "speedup": large / row["candidate_median_ns"],
            "verdict_sessions": 1,
        }
    )
    return rows


def retried():
    rows = clean()
    rows.append({**rows[0], "attempt": 2, "started_at": rows[0]["started_at"] - timedelta(seconds=30)})
    return rows


START = clean()[0]["started_at"]
PLANTED = {
    "impossible_time": (slower(0.2, large), r"the candidate took .*, but its work takes at least .* at peak rate"),
    "impossible_rate": (
        stated(large, bytes_per_s=5.4e12),
        r"5400 GB/s are stated over .*, for \d+ MiB; with 60 MiB in its cache and 4800 GB/s from memory that takes",
    ),
    "implausible_speedup": (
        stated(large, candidate_median_ns=lambda row: row["baseline_median_ns"] / 40, speedup=None),
        "40× faster than the baseline; the best other candidate of the problem has 1.19×; the median of 16 cells is",
    ),
    "harness_fault": (
        changed(built_for_another_gpu, status="runtime_error", fault="candidate", message=NO_IMAGE),
        (
            r"10 of 10 failures \(100 %\), of 10 candidates, are the harness's: it was built for another architecture; "
            r'they say "no kernel image is available for execution on the device"'
        ),
    ),
    "mixed_problems": (other_version(), r"3 of 8 problems are at least 6× off, 100 % of these slower, .* version"),
    "no_number": (changed(first, candidate_median_ns=float("nan")), "candidate_median_ns is NaN"),
    "wrong_board": (
        changed(lambda row: row["gpu"] == "l40s", gpu_name="NVIDIA L4"),
        "16 rows|32 rows were measured on NVIDIA L4; the name means NVIDIA L40S",
    ),
    "two_boards": (
        changed(lambda row: row["gpu"] == "t4" and row["problem"] == "problem7", gpu_name="NVIDIA T4"),
        "2 boards under one name: 28 rows on Tesla T4, 4 rows on NVIDIA T4",
    ),
    "copied_times": (copied(), r"12 of 16 common times .* under l40s and t4"),
    "verdict_flip": (flipped(), "1 attempts passed and 1 ended as incorrect_values"),
    "accused_once": (flipped("timing_mismatch"), "1 attempts at identical code passed, 1 did not: 12 µs"),
    "never_ran": (changed(first, own_kernel_share=0.0), r"none of the kernels that ran were its own \(2 sessions\)"),
    "summary_against_rows": (changed(first, speedup=9.0), "speed-up is given as 9, but the medians' ratio is"),
    "time_order": (changed(first, ended_at=START - timedelta(hours=1)), "ended at .*, started at"),
    "twice": ([*clean(), clean()[0]], "has 2 rows of this workload"),
    "copied_code": (changed(first, code_sha256="t4 problem1/fast"), "is equal on GPUs h200, t4"),
    "one_board_two_names": (
        changed(lambda row: row["gpu"] == "t4", gpu_uuid="GPU-h200"),
        "GPU-h200 has rows under 2 names: h200, t4",
    ),
    "host_of_another_board": (changed(first, hostname="rack1-l40s-03"), "host rack1-l40s-03 has NVIDIA H200: 2 rows"),
    "like_the_baseline": (changed(first, candidate_sha256="of problem0"), "content is that of the problem"),
    "same_for_any_size": (sized(), "over 2 workloads its times differ 1×.*, the baseline's 101×"),
    "odd_gpu": (slower(4.0, lambda row: row["gpu"] == "t4"), "slower than its data sheet says relative to 3 other"),
    "odd_cell": (slower(8.0, first), r"8.*× slower than its times on 3 other GPUs and this GPU's other cells imply"),
    "slow_unit": (
        more_boards(1.0, 1.06),
        r"^GPU-more-1 is 6 % slower than 2 other NVIDIA H200 \(.* %\) by the baseline's times in 16 cells$",
    ),
    "units_apart": (
        more_boards(1.06),
        r"^GPU-more-0 is 6 % slower than GPU-h200 \(.*\) by the .* in 16 cells; which of the two is odd is open$",
    ),
    "baselines_apart": (
        changed(first, baseline_median_ns=lambda row: row["baseline_median_ns"] * 1.5),
        "the same baseline took .* beside problem0/fast: 1.5",
    ),
    "mixed_units": (
        changed(lambda row: first(row) and row["session"], driver="590.7"),
        r"2 drivers \(580.1 … 590.7\) in one cell",
    ),
    "mixed_versions": (
        changed(first, measurement_version="other"),
        "126 of 128 rows are of version 0.1.0, measurement version core",
    ),
    "not_alone": (changed(first, exclusive="unproven", exclusive_reason="no list"), r"unproven \(no list\)"),
    "drift": (changed(first, machine_drift=0.031), "machine_drift 3.1 %; 2 % is the limit"),
    "few_samples": (changed(first, candidate_samples=3), "as few as 3 timed calls in 2 sessions"),
    "coarse_timer": (
        changed(candidate_median_ns=lambda row: 1024.0 * round(row["candidate_median_ns"] / 10240)),
        "100 % of 32 times are whole multiples of 1024 ns",
    ),
    "no_partner": (changed(first, baseline_median_ns=None), "of 2 timed rows 2 have a candidate's time without"),
    "nothing_passed": (
        changed(lambda row: row["gpu"] == "t4", status="crashed", fault="candidate"),
        "none of 32 rows passed; most ended as crashed",
    ),
    "hole": ([row for row in clean() if not first(row)], "1 cells .* missing, for example problem0/fast fp32 cu130"),
    "no_bound": (changed(first, gpu_name="NVIDIA Unheard Of"), "NVIDIA Unheard Of has no peak"),
    "no_board": (changed(first, gpu="my box"), "no board .* 2 rows are of NVIDIA H200"),
}  # fmt: skip


def test_clean_tables_are_silent():
    said = {check.name: found.to_dicts() for check, found in audit(tables_of(clean()))}
    assert {name: found for name, found in said.items() if found} == {}
    assert list(said) == NAMES


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_told(name):
    rows, wanted = PLANTED[name]
    found = heard(name, tables_of(rows))
    assert found
    assert re.search(wanted, found[0]["evidence"]), found[0]["evidence"]
    assert all(row["check"] == name and row["evidence"] and row["count"] > 0 for row in found)


def test_rows_that_were_only_compiled_are_of_no_board():
    def compiled(row):
        return row["gpu"] == "t4" and row["problem"] == "problem7"

    columns = {"session": None, "exclusive": "not_applicable", "driver": None, "gpu_name": "NVIDIA L4*"}
    compiled_only = tables_of(changed(compiled, **columns))
    assert heard("two_boards", compiled_only) == []
    assert heard("wrong_board", compiled_only)  # its name means another board than the matrix asks for
    for column, value in (("session", 0), ("exclusive", None), ("driver", "580.1")):
        assert heard("two_boards", tables_of(changed(compiled, **{**columns, column: value})))


def test_every_check_has_a_test():
    by_calls = {"copied_samples", "summary_against_calls", "orphan", "few_values", "scattered"}
    assert {*PLANTED, *by_calls} == set(NAMES)


def edited(where, **columns):
    """The clean tables with these columns in the calls that match ``where``."""
    whole = tables_of(clean())
    calls = whole.samples.collect().to_dicts()
    for call in calls:
        if where(call):
            call.update({name: value(call) if callable(value) else value for name, value in columns.items()})
    return with_samples(whole, calls)


def of_first(call):
    return call["record"] == 0 and call["session"] == 0 and call["contestant"] == "candidate"


@pytest.mark.parametrize(
    ("name", "columns", "wanted"),
    [
        ("summary_against_calls", {"device_ns": lambda call: call["device_ns"] + 16000}, "0 are below that and 25"),
        ("few_values", {"device_ns": lambda call: 4096 + 1024 * (call["index"] % 2)}, "25 calls of candidate have 2"),
        ("no_number", {"device_ns": -1}, "25 timed calls took no time; the least is -1 ns"),
        ("time_order", {"block_ended_ns": 999}, "25 calls lie in blocks that ended before they started"),
        ("orphan", {"record": 4_000_000}, "25 timed calls of 1 sessions belong to no row of cells"),
    ],
)  # fmt: skip
def test_a_fault_in_calls_is_told(name, columns, wanted):
    found = heard(name, edited(of_first, **columns))
    assert [row["count"] for row in found] == [CALLS]
    assert wanted in found[0]["evidence"]


def test_calls_far_from_median_are_found_late_first_calls_not():
    def late(every):
        return {"device_ns": lambda call: call["device_ns"] * (1 if call["index"] % every else 4)}

    found = heard("scattered", edited(of_first, **late(4)))
    assert [row["count"] for row in found] == [1]
    assert "7 of 25 calls of candidate are at least 1.5× off their median" in found[0]["evidence"]
    assert heard("scattered", edited(of_first, **late(8))) == []


def test_calls_that_are_missing_are_told():
    whole = tables_of(clean())
    calls = [call for call in whole.samples.collect().to_dicts() if not (of_first(call) and call["index"] in (3, 4))]
    found = heard("summary_against_calls", with_samples(whole, calls))
    assert any("25 calls of candidate are given as counted, but there are 23" in row["evidence"] for row in found)


def test_discarded_calls_do_not_count():
    extra = {**tables_of(clean()).samples.head(1).collect().to_dicts()[0], "index": 99, "device_ns": -5}
    whole = tables_of(clean())
    calls = [*whole.samples.collect().to_dicts(), {**extra, "discarded": "throttled: sw_power_cap"}]
    discarded = with_samples(whole, calls)
    assert heard("summary_against_calls", discarded) == heard("no_number", discarded) == []


def test_the_same_calls_under_two_records_are_told():
    whole = tables_of(clean())
    calls = whole.samples.collect().to_dicts()
    there = [call for call in calls if of_first(call)]
    others = whole.cells.filter(pl.col("gpu") == "t4").collect()["record"]
    again = [{**call, "record": others[0]} for call in there]
    found = heard("copied_samples", with_samples(whole, [*calls, *again]))
    assert len(found) == 1
    assert "25 calls are equal in 2 places, of 2 records (GPUs h200 and t4)" in found[0]["evidence"]
    shuffled = [{**call, "index": CALLS - 1 - call["index"]} for call in again]
    assert heard("copied_samples", with_samples(whole, [*calls, *shuffled])) == []


def test_a_copied_block_of_one_candidate_is_told():
    found = heard("copied_times", tables_of(copied_block(), samples=[]))
    assert [(row["candidate"], row["problem"]) for row in found] == [("problem3/fast", None), (None, "problem3")]
    assert "5 of 5 common times" in found[0]["evidence"]


def test_times_that_agree_by_chance_are_no_copy():
    """Times of few timer steps: two boards of one kind agree half of the time."""
    rows = changed(candidate_median_ns=lambda row: 2000.0 + 32 * (hash(row["problem"]) % 3), baseline_median_ns=4000.0)
    assert heard("copied_times", tables_of(rows, samples=[])) == []


@pytest.mark.parametrize(("bound", "odd"), [("link", []), ("memory", ["g0"])])
def test_times_bound_by_the_link_are_scaled_by_its_rate(bound, odd):
    links = {"g0": 50e9, "g1": 400e9, "g2": 410e9, "g3": 420e9, "g4": 430e9}
    rows = [
        cell(
            gpu=gpu,
            gpu_name=f"board {gpu}",
            problem=f"all_reduce_{number}",
            bound=bound,
            candidate_median_ns=1e15 * (number + 1) / rate,
            link_bytes_per_s=rate,
            peak_bytes_per_s=3e12,
        )
        for gpu, rate in links.items()
        for number in range(5)
    ]
    assert [row["gpu"] for row in heard("odd_gpu", tables(rows))] == odd


def test_orphan_kernel_and_host_are_found():
    whole = tables_of(clean())
    kernels = frame("kernels", [{"record": 999, "origin": "built", "name": "k"}]).lazy()
    found = heard("orphan", replace(whole, kernels=kernels, hosts=whole.hosts.head(3)))
    assert [row["evidence"] for row in found if "host" not in row["evidence"]] == [
        "1 kernels belong to no row of cells, first in record 999"
    ]
    assert len(found) == 2


def test_no_kernel_seen_and_calls_that_took_no_time_are_told():
    assert "no kernel was seen" in heard("never_ran", tables_of(changed(first, kernels_seen=0)))[0]["evidence"]
    empty = changed(first, wall_overhead_ns=300, candidate_wall_median_ns=310.0, candidate_median_ns=9000.0)
    assert "claims 9 µs on the device" in heard("never_ran", tables_of(empty))[0]["evidence"]


def test_a_candidate_in_torch_needs_no_kernel_of_its_own():
    assert heard("never_ran", tables_of(changed(first, own_kernel_share=0.0, language="torch"))) == []


def test_an_attempt_that_began_before_the_one_it_repeats_is_told():
    found = heard("time_order", tables_of(retried(), samples=[]))
    assert [row["evidence"] for row in found] == ["1 of 2 attempts started before the attempt they repeat"]


def test_a_changed_judge_or_image_is_no_flip():
    for column in ("measurement_version", "image_id", "problem_sha256", "candidate_sha256"):
        rows = flipped()
        rows[-1][column] = "another"
        assert heard("verdict_flip", tables_of(rows)) == []


def test_failures_that_are_not_the_candidates_are_no_flip():
    rows = flipped()
    rows[-1] |= {"status": "infra_error", "fault": "infra"}
    assert heard("verdict_flip", tables_of(rows)) == []


def test_repeated_timing_mismatch_is_a_verdict_flip():
    by_chance = tables_of(flipped("timing_mismatch", runs=("first", "second")))
    assert heard("verdict_flip", by_chance) == []
    assert [row["count"] for row in heard("accused_once", by_chance)] == [2]
    repeated = tables_of(flipped("timing_mismatch", runs=("later", "later")))
    assert heard("accused_once", repeated) == []
    assert [row["evidence"] for row in heard("verdict_flip", repeated)] == [
        "identical code: 1 attempts passed and 2 ended as timing_mismatch"
    ]


def test_contradictory_verdict_is_found():
    outside = changed(first, verdict_speedup=3.0, verdict_low=1.0, verdict_high=2.0)
    assert (
        heard("summary_against_rows", tables_of(outside))[0]["evidence"]
        == "verdict 3 lies outside its own interval 1 … 2"
    )
    more = changed(first, verdict_sessions=5)
    assert "for 5 sessions, but 2 were timed" in heard("summary_against_rows", tables_of(more))[0]["evidence"]


def test_a_candidate_as_long_as_the_baseline_to_the_tick_is_told():
    rows = changed(first, baseline_median_ns=lambda row: row["candidate_median_ns"] + 32, speedup=None)
    assert heard("like_the_baseline", tables_of(rows)) == []  # two rows are too few
    more = [{**row, "session": 2 + row["session"]} for row in rows if first(row)]
    found = heard("like_the_baseline", tables_of([*rows, *more]))
    assert "in all 4 rows the two times differ by at most 32 ns" in found[0]["evidence"]


@pytest.mark.parametrize("steps", [0, 1])
def test_like_baseline_within_a_coarse_step_is_found(steps):
    found = heard("like_the_baseline", tables(never_ran(steps)))
    assert [(row["gpu"], row["candidate"], row["problem"], row["count"]) for row in found] == [
        ("a100", "method", None, 12)
    ]
    assert f"differ by at most {1024 * steps} ns" in found[0]["evidence"]
    assert found[0]["evidence"].endswith("the timer's step is 1024 ns")


def test_like_baseline_more_steps_or_few_rows_is_silent():
    assert heard("like_the_baseline", tables(never_ran(2))) == []
    few = never_ran(1, rows=5)
    elsewhere = [{**row, "candidate": "other", "candidate_median_ns": 51200.0} for row in never_ran(0)]
    assert heard("like_the_baseline", tables([*few, *elsewhere])) == []


def test_impossible_time_within_the_cache_is_silent():
    assert heard("impossible_time", tables_of(slower(0.2, first))) == []
    assert heard("impossible_time", tables_of(slower(0.005, first)))


def test_impossible_time_below_the_floor_is_found():
    """The judge knows that its outputs alone fit the cache."""
    found = heard("impossible_time", tables_of(changed(first, floor_ns=10**6)))
    assert found
    assert "its work takes at least 1000 µs" in found[0]["evidence"]


def test_impossible_rate_of_a_typed_name_uses_its_fastest_board():
    def rates(rate):
        return tables_of(stated(large, gpu_name=None, gpu="A100_cloud", bytes_per_s=rate))

    assert "2039 GB/s from memory" in heard("impossible_rate", rates(2.4e12))[0]["evidence"]
    assert heard("impossible_rate", rates(2.1e12)) == []
    assert heard("no_bound", rates(2.1e12)) == []


def test_impossible_rate_of_arithmetic_is_found_at_any_dtype():
    fast = stated(large, flops_per_s=5e15, dtype=None)
    assert "5000 TFLOP/s are stated" in heard("impossible_rate", tables_of(fast))[0]["evidence"]
    assert heard("impossible_rate", tables_of(stated(large, flops_per_s=1.5e15, dtype=None))) == []
    assert heard("impossible_rate", tables_of(stated(large, flops_per_s=1.5e15, dtype="fp64")))


def test_implausible_speedup_against_the_roofline_is_found():
    rows = changed(first, candidate_median_ns=lambda row: row["baseline_median_ns"] / 40, speedup=None)
    assert "its work takes" in heard("implausible_speedup", tables_of(rows))[0]["evidence"]


def test_implausible_speedup_backed_by_others_is_silent():
    rows = stated(
        lambda row: row["gpu"] == "h200" and row["problem"] == "problem7",
        candidate_median_ns=lambda row: row["candidate_median_ns"] / 40, speedup=None,
    )  # fmt: skip
    assert heard("implausible_speedup", tables_of(rows)) == []


def test_implausible_speedup_backed_by_the_roofline_is_silent():
    rows = changed(large, baseline_median_ns=lambda row: row["baseline_median_ns"] * 40, speedup=None)
    assert heard("implausible_speedup", tables_of(rows)) == []


def test_implausible_speedup_of_one_cell_says_set_too_small():
    found = heard("implausible_speedup", tables([cell(baseline_median_ns=9e6, candidate_median_ns=9e4)]))
    assert [row["evidence"] for row in found] == [
        "100× faster than the baseline; no other candidate of the problem; the set is too small to compare"
    ]


def test_harness_fault_of_few_or_ambiguous_texts_is_silent():
    def texts(message, where=built_for_another_gpu):
        return tables_of(changed(where, status="runtime_error", fault="candidate", message=message))

    assert heard("harness_fault", texts(NO_IMAGE, lambda row: row["candidate"] == "problem1/fast")) == []
    assert heard("harness_fault", texts("ValueError: this shape is not supported")) == []
    assert heard("harness_fault", texts("torch.OutOfMemoryError: CUDA out of memory")) == []
    assert heard("harness_fault", texts("ImportError: k.so: undefined symbol: _Z7forwardv"))
    mixed = changed(
        built_for_another_gpu, status="load_error", fault="candidate",
        message=lambda row: "undefined symbol: f" if row["problem"] < "problem2" else "output 0: wrong",
    )  # fmt: skip
    assert heard("harness_fault", tables_of(mixed)) == []


def test_harness_fault_of_memory_before_the_first_call_is_found():
    early = changed(built_for_another_gpu, status="load_error", fault="candidate", message="CUDA out of memory.")
    assert "memory was taken before" in heard("harness_fault", tables_of(early))[0]["evidence"]


def test_mixed_problems_by_content_is_found():
    rows = changed(lambda row: row["gpu"] == "t4" and row["problem"] < "problem2", problem_sha256="other")
    assert [(row["gpu"], row["evidence"]) for row in heard("mixed_problems", tables_of(rows))] == [
        ("t4", "2 of 8 problems have another content than on 3 other GPUs, for example problem0")
    ]


def test_odd_cell_of_another_content_or_two_gpus_is_silent():
    rows = slower(8.0, first)
    for row in rows:
        if first(row):
            row["problem_sha256"] = "other"
    assert heard("odd_cell", tables_of(rows)) == []
    two = [row for row in slower(8.0, first) if row["gpu"] in {"h200", "t4"}]
    assert heard("odd_cell", tables_of(two)) == []


def test_odd_cell_needs_no_data_sheet():
    rows = [{**row, "gpu_name": None} for row in slower(30.0, first)]
    assert {row["gpu"] for row in heard("odd_cell", tables_of(rows))} == {"h200"}


def test_objections_name_rows_and_checks():
    rows = slower(8.0, first)
    for row in rows:
        if row["gpu"] == "t4":
            row["gpu_name"] = "NVIDIA L4"
    made = tables_of(rows)
    found = {(one["record"], one["workload"]): one["checks"] for one in objections(made).to_dicts()}
    cells_ = made.cells.unique(("record", "workload")).collect()
    odd = {(row["record"], row["workload"]) for row in cells_.to_dicts() if first(row)}
    other_board = {(row["record"], row["workload"]) for row in cells_.to_dicts() if row["gpu"] == "t4"}
    assert found == {**{row: ["odd_cell"] for row in odd}, **{row: ["wrong_board"] for row in other_board}}


def test_written_objections_withhold_verdicts(tmp_path):
    rows = [{**row, "verdict": "faster"} for row in slower(8.0, first)]
    folder = write(tmp_path / "tables", rows)
    write_objections(folder)
    found = outcomes(open_tables([folder]).cells).collect()
    withheld = found.filter(pl.col("verdict") == "inconclusive")
    assert withheld["verdict_reason"].unique().to_list() == ["audit_objects"]
    assert 0 < withheld.height == objections(open_tables([folder])).height < found.height
    write_objections(write(folder, [{**row, "verdict": "faster"} for row in clean()]))
    assert outcomes(open_tables([folder]).cells).collect()["verdict"].unique().to_list() == ["faster"]


def test_objections_of_clean_tables_are_none():
    found = objections(tables_of(clean()))
    assert found.is_empty()
    assert found.columns == ["record", "workload", "checks"]


def test_a_candidate_that_a_gpu_has_nothing_of_is_one_hole():
    rows = [cell(gpu=gpu, problem=f"p{n}", candidate="torch") for gpu in ("a", "b") for n in range(9)]
    rows += [cell(gpu="a", problem=f"p{n}", candidate="compile") for n in range(9)]
    found = heard("hole", tables(rows))
    assert [(row["gpu"], row["candidate"], row["problem"], row["count"]) for row in found] == [
        ("b", "compile", None, 9)
    ]


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 0.0, -3.0])
def test_times_that_are_none_break_no_check(value):
    rows = changed(first, candidate_median_ns=value, baseline_median_ns=value, speedup=value)
    said = {check.name: found.height for check, found in audit(tables_of(rows, samples=[]))}
    assert said["no_number"] == 2


@pytest.mark.parametrize(
    "rows",
    [
        [cell()],
        [cell(status="infra_error", fault="infra", session=None, workload=None)],
        [cell(gpu="ядро", candidate="問題/速い", baseline_median_ns=5000.0, candidate_median_ns=3333.0)],
        [
            {
                **cell(candidate_median_ns=3333.0),
                **dict.fromkeys(("gpu_name", "gpu_uuid", "host_id", "toolchain", "driver")),
            }
        ],
    ],
    ids=["one", "failed", "not ASCII", "bare"],
)
def test_small_and_bare_tables_break_no_check(rows):
    for _check, found in audit(tables(rows)):
        assert dict(found.schema) == FINDINGS
        assert found["evidence"].null_count() == 0


def test_no_rows_are_said_to_be_none():
    with pytest.raises(NothingSelectedError, match="no rows"):
        list(audit(tables([])))


def test_a_check_that_is_none_names_those_there_are():
    with pytest.raises(UsageError, match="unknown check 'copies'") as caught:
        chosen(["copies"])
    assert "copied_times" in str(caught.value)


def test_audit_order_is_by_severity_and_independent_of_rows(tmp_path):
    order = list(Severity)
    severities = [order.index(check.severity) for check in chosen(NAMES)]
    assert severities == sorted(severities)
    rows = slower(6.0, first)
    folders = [write(tmp_path / "a", rows), write(tmp_path / "b", rows[::-1])]
    one, other = ([found.to_dicts() for _, found in audit(open_tables([folder]))] for folder in folders)
    assert one == other


def test_cell_without_numbers_is_no_evidence_of_a_bound():
    assert heard("impossible_time", tables_of(changed(first, bytes=None, flops=None))) == []
    assert cells([]).collect().is_empty()


def test_rows_without_a_gpu_are_told_and_stop_no_check():
    """Rows as imported from files that name no device."""
    rows = tables_of(changed(first, gpu=None))
    assert "2 rows are of NVIDIA H200" in heard("no_board", rows)[0]["evidence"]
    assert heard("wrong_board", rows) == []
    assert [check.name for check, _found in audit(rows)] == NAMES


def test_objections_of_no_rows_or_named_checks():
    assert objections(tables([])).is_empty()
    made = tables_of(slower(8.0, first))
    assert objections(made, ["odd_gpu"]).is_empty()
    assert objections(made, ["odd_cell"]).height == 1
