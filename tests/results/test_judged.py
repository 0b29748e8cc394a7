"""What is derived from the sessions of a record: verdicts, grades, kernels and builds as columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernel_matrix.model.enums import CollectiveKind, Grade, Implementation, Role, Status, Verdict
from kernel_matrix.model.messages import AnchorTimes, CollectiveSize, TracedKernel
from kernel_matrix.results.judged import judge, times_of
from kernel_matrix.results.kernel_rows import kernel_rows
from kernel_matrix.results.record import LinkInfo, Record, record_to_json
from kernel_matrix.results.rows import Row, cell_rows, host_row
from tests.measure.test_timed import batches
from tests.results.factory import (
    ANCHORS,
    BUILD,
    CELL_KEY,
    HOST,
    block,
    failed_record,
    full_record,
    make_record,
    outcome,
    session,
    workload,
)


def timed(number: int, candidate: int, eager: int, **changes: Any) -> Any:
    blocks = (
        *(block(Role.CANDIDATE, 0, (candidate,) * 5), block(Role.BASELINE, 1, (eager,) * 5)),
        *(block(Role.BASELINE, 2, (eager,) * 5), block(Role.CANDIDATE, 3, (candidate,) * 5)),
    )
    return replace(session(number, workloads=(workload(blocks=blocks),)), **changes)


def record(*sessions: Any, **changes: Any) -> Record:
    return make_record(sessions=sessions, **changes)


def judged(one: Record) -> dict[str, Any]:
    document = record_to_json(one)
    return judge(document, times_of(document))


def rows(one: Record) -> list[Row]:
    document = record_to_json(one)
    return list(cell_rows(document, times_of(document), key=0, host=host_row(document), run=None))


def test_sessions_are_judged_together() -> None:
    found = judged(record(timed(0, 10_000, 20_000), timed(1, 10_010, 20_030), timed(2, 9_990, 20_010)))["default"]
    assert found.comparison is not None
    assert (found.comparison.verdict, found.comparison.sessions) == (Verdict.FASTER, 3)
    assert (found.candidate_ns, found.eager_ns) == (10_000, 20_010)
    assert (found.graded.grade, found.graded.reason) == (Grade.A, "")
    assert found.machine_drift == pytest.approx(0.002)
    assert found.code_drift == pytest.approx(20 / 9_990)


def in_batches(number: int, candidate: int) -> Any:
    """A session with batches, whose candidate claims twice this time."""
    (its_workload,) = timed(number, 2 * candidate, 20_000).workloads
    sides = batches({"candidate": candidate, "eager": 20_000})
    return replace(session(number), workloads=(replace(its_workload, batches=sides),))


def test_sessions_timed_otherwise_than_most_do_not_count() -> None:
    one = record(in_batches(0, 10_000), timed(1, 20_000, 20_000), in_batches(2, 10_020))
    found = judged(one)["default"]
    assert found.comparison is not None
    assert (found.candidate_ns, found.comparison.sessions) == (10_010, 2)
    assert sorted(found.alone) == [0, 2]
    told = rows(one)
    assert [row["candidate_median_ns"] for row in told] == [10_000, None, 10_020]
    assert [row["speedup"] for row in told] == [2.0, None, pytest.approx(20_000 / 10_020)]
    assert [row["candidate_samples"] for row in told] == [10, 10, 10]
    most_claim = judged(record(in_batches(0, 10_000), timed(1, 20_000, 20_000), timed(2, 20_020, 20_000)))["default"]
    assert (most_claim.candidate_ns, sorted(most_claim.alone)) == (20_010, [1, 2])


def test_every_row_says_what_all_sessions_say() -> None:
    told = rows(record(timed(0, 10_000, 20_000), timed(1, 10_000, 21_000), timed(2, 10_000, 20_500)))
    assert {(row["verdict"], row["grade"], row["verdict_sessions"]) for row in told} == {("faster", "A", 3)}
    assert len({(row["verdict_low"], row["verdict_high"]) for row in told}) == 1
    assert [row["speedup"] for row in told] == [2.0, 2.1, 2.05]
    assert told[0]["verdict_low"] < 2.05 < told[0]["verdict_high"]


def test_one_session_has_a_verdict_and_no_interval() -> None:
    (row,) = rows(record(timed(0, 10_000, 20_000)))
    assert (row["verdict"], row["verdict_speedup"], row["grade"], row["grade_reason"]) == (
        *("faster", 2.0, "C", "one session"),
    )
    assert "verdict_low" not in row


def test_each_session_has_a_verdict_of_its_own() -> None:
    told = rows(record(timed(0, 10_000, 20_000), timed(1, 10_000, 10_200), timed(2, 10_000, 8_000)))
    assert [(row["session_verdict"], row["session_verdict_reason"]) for row in told] == [
        *(("faster", "beyond_floor"), ("inconclusive", "one_session"), ("slower", "beyond_floor")),
    ]
    assert {row["verdict"] for row in told} == {"inconclusive"}


def test_session_without_baseline_has_no_verdict() -> None:
    alone = (workload(blocks=(block(Role.CANDIDATE, 0, (10_000,) * 10),)),)
    told = rows(record(timed(0, 10_000, 20_000), session(1, workloads=alone), timed(2, 10_000, 20_000)))
    assert [row.get("session_verdict") for row in told] == ["faster", None, "faster"]
    assert {row["verdict_sessions"] for row in told} == {2}


def test_clocks_that_nothing_held_cost_the_best_grade() -> None:
    unlocked = replace(HOST, clock_state="unlocked")
    found = judged(record(timed(0, 10_000, 20_000), timed(1, 10_000, 20_000), host=unlocked))["default"]
    assert (found.graded.grade, found.graded.reason) == (Grade.B, "clocks not locked")


def test_judge_caps_the_grade_of_an_unproven_platform() -> None:
    sessions = (timed(0, 10_000, 20_000), timed(1, 10_000, 20_000))
    found = judged(record(*sessions, host=replace(HOST, platform_proven=False)))["default"]
    assert (found.graded.grade, found.graded.reason) == (Grade.C, "the platform was not proven on real devices")
    document = record_to_json(record(*sessions))
    del document["host"]["platform_proven"]
    assert judge(document, times_of(document))["default"].graded.grade is Grade.A


def test_machine_drift_costs_a_grade_and_is_not_code_drift() -> None:
    slower = (AnchorTimes(phase="before", started_ns=0, compute_ns=60_060, memory_ns=31_000),)
    found = judged(record(timed(0, 10_000, 20_000), timed(1, 12_000, 24_000, anchors=slower)))["default"]
    assert found.machine_drift == pytest.approx(0.2012)
    assert found.code_drift == pytest.approx(0, abs=1e-3)
    assert found.graded.grade is Grade.C
    steady = judged(record(timed(0, 10_000, 20_000), timed(1, 12_000, 24_000)))["default"]
    assert steady.code_drift == pytest.approx(0.2)


@pytest.mark.parametrize(
    "one",
    [
        record(timed(0, 10, 20, labels=("interpreted",))),
        record(timed(0, 10, 20), outcome=outcome(Status.INCORRECT_VALUES)),
        failed_record(),
        failed_record(status=Status.COMPILED, cell=CELL_KEY),
    ],
    ids=["interpreted", "failed", "never timed", "only compiled"],
)
def test_speeds_that_say_nothing_are_not_judged(one: Record) -> None:
    assert judged(one) == {}
    assert all(not {"verdict", "session_verdict", "grade"} & set(row) for row in rows(one))


def test_judge_without_baseline_gives_a_grade_and_no_verdict() -> None:
    alone = (workload(blocks=(block(Role.CANDIDATE, 0, (10, 10, 10, 10)),)),)
    (row,) = rows(record(session(0, workloads=alone)))
    assert (row["grade"], row.get("verdict"), row["speedup"]) == ("C", None, None)


def test_rivals_and_regimes_have_columns_of_their_own() -> None:
    row, _second = rows(full_record())
    assert (row["candidate_claimed_ns"], row["baseline_claimed_ns"]) == (100, 200)
    assert (row["candidate_median_ns"], row["baseline_median_ns"], row["speedup"]) == (100, 300, 3.0), "in batches"
    for one in Implementation:
        if one is not Implementation.EAGER:
            column = one.value.replace("-", "_")
            assert (row[f"{column}_median_ns"], row[f"speedup_over_{column}"]) == (155, 1.55)
    assert (row["warm_candidate_median_ns"], row["burst_baseline_median_ns"]) == (90.5, 90.5)
    assert row["candidate_samples"] == 5


def test_rates_name_what_they_are_bound_by() -> None:
    row, _second = rows(full_record())
    assert (row["bound"], row["intensity"]) == ("memory", 2)
    assert row["share_of_peak"] == row["bytes_share_of_peak"] > row["flops_share_of_peak"]


def of_ranks(ranks: int = 4, link_bytes_per_s: float | None = 450e9, size: float = 3e6) -> Row:
    """A row of an all_reduce of ``size`` bytes in 10 µs."""
    (told,) = timed(0, 10_000, 20_000).workloads
    told = replace(told, collective=CollectiveSize(CollectiveKind.ALL_REDUCE, size))
    link = LinkInfo(kind="nvlink", bytes_per_s=link_bytes_per_s)
    cell = replace(CELL_KEY, ranks=ranks)
    (row,) = rows(record(session(0, workloads=(told,)), cell=cell, host=replace(HOST, link=link)))
    return row


def test_collective_has_both_bandwidths_and_a_share() -> None:
    row = of_ranks()
    assert (row["collective_kind"], row["collective_bytes"]) == ("all_reduce", 3e6)
    figures = [row[name] for name in ("algorithm_bytes_per_s", "bus_bytes_per_s", "link_share_of_peak")]
    assert figures == pytest.approx([300e9, 450e9, 1.0])
    assert row["bound"] == "link"
    assert row["share_of_peak"] == max(row["flops_share_of_peak"], row["bytes_share_of_peak"]), "as without a link"
    assert of_ranks(ranks=2)["bus_bytes_per_s"] == pytest.approx(300e9)


def test_collective_without_a_known_link_has_no_share() -> None:
    row = of_ranks(link_bytes_per_s=None)
    assert (row["bus_bytes_per_s"], row["link_share_of_peak"], row["bound"]) == (pytest.approx(450e9), None, "memory")


def test_workload_without_collective_has_no_bandwidth() -> None:
    (row,) = rows(record(timed(0, 10_000, 20_000)))
    names = ("algorithm_bytes_per_s", "bus_bytes_per_s", "link_share_of_peak")
    assert [row[name] for name in names] == [None, None, None]
    document = record_to_json(record(timed(0, 10_000, 20_000)))
    del document["sessions"][0]["workloads"][0]["collective"]
    (old,) = cell_rows(document, times_of(document), key=0, host=host_row(document), run=None)
    assert (old.get("collective_kind"), old["bus_bytes_per_s"]) == (None, None)


def test_anchors_of_a_session_are_told() -> None:
    (row,) = rows(make_record())
    assert (row["anchor_compute_ns"], row["anchor_memory_ns"]) == (50_050, 31_000)
    assert row["anchor_drift"] == pytest.approx(0.002)
    (without,) = rows(make_record(sessions=(replace(session(), anchors=()),)))
    assert "anchor_drift" not in without
    (one_end,) = rows(make_record(sessions=(replace(session(), anchors=ANCHORS[:1]),)))
    assert one_end["anchor_drift"] is None


def test_the_build_is_summed_up() -> None:
    (row,) = rows(make_record())
    assert (row["registers_max"], row["spill_bytes_max"], row["shared_bytes_max"]) == (255, 24, 262144)
    assert (row["launchable"], row["build_arch"], row["findings"]) == (False, "9.0a", ["library_calls"])
    (unbuilt,) = rows(make_record(host=replace(HOST, build=None)))
    assert "registers_max" not in unbuilt
    (empty,) = rows(make_record(host=replace(HOST, build=replace(BUILD, kernels=()))))
    assert (empty["compile_s"], "registers_max" in empty) == (29.5, False)


def test_code_digest_does_not_depend_on_kernel_names() -> None:
    renamed = tuple(replace(kernel, name=f"{kernel.name}_2") for kernel in reversed(BUILD.kernels))
    other = tuple(replace(kernel, sha256="5" * 64) for kernel in BUILD.kernels)
    digests = [
        rows(make_record(host=replace(HOST, build=replace(BUILD, kernels=kernels))))[0]["code_sha256"]
        for kernels in (BUILD.kernels, renamed, other)
    ]
    assert digests[0] == digests[1] != digests[2]


def kernel(name: str, launches: int, device_ns: int, *, own: bool) -> TracedKernel:
    return TracedKernel(name=name, launches=launches, device_ns=device_ns, own=own)


@pytest.mark.parametrize(
    ("kernels", "share"),
    [
        ((kernel("mine", 1, 30, own=True), kernel("theirs", 9, 10, own=False)), 0.75),
        ((kernel("mine", 1, 0, own=True), kernel("theirs", 3, 0, own=False)), 0.25),
        ((kernel("theirs", 3, 50, own=False),), 0.0),
        ((kernel("mine", 0, 0, own=True),), None),
    ],
    ids=["by time", "by launches", "none", "nothing ran"],
)
def test_the_share_of_own_kernels(kernels: tuple[TracedKernel, ...], share: float | None) -> None:
    (row,) = rows(make_record(sessions=(replace(session(), kernels=kernels),)))
    assert (row["own_kernel_share"], row["kernels_seen"]) == (share, len(kernels))
    assert row["launches_per_call"] == sum(one.launches for one in kernels)


def test_kernels_have_a_row_per_build_and_per_session() -> None:
    told = list(kernel_rows(record_to_json(full_record()), key=7))
    assert [(row["origin"], row.get("session"), row["name"]) for row in told] == [
        ("built", None, "online_softmax"),
        ("built", None, "online_softmax_wide"),
        ("traced", 0, "online_softmax"),
        ("traced", 0, "vectorized_elementwise_kernel"),
        ("traced", 1, "online_softmax"),
        ("traced", 1, "vectorized_elementwise_kernel"),
    ]
    assert {row["record"] for row in told} == {7}
