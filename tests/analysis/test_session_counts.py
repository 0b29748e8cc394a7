"""What fewer sessions would have said: every finding, the interval over cells, and what is left out."""

import math

import pytest
from scipy.stats import norm, t

from kernel_matrix.analysis.questions import QuestionOptions, ask
from kernel_matrix.analysis.session_counts import FINDINGS, MOST_DRAWS, SINGLE_SESSIONS, choose
from kernel_matrix.errors import NothingSelectedError, UsageError
from tests.analysis.made import cell, failed, tables

F, S, E, I = "faster", "slower", "equivalent", "inconclusive"  # noqa: E741


def sessions(verdict, alone, speedups=None, **columns):
    """Sessions of one workload: the verdict of all, and of each ``alone``."""
    usual = {F: 2.0, S: 0.5, E: 1.0, I: 1.0}[verdict]
    name = columns.setdefault("candidate", "softmax/a")
    about = {"verdict": verdict, "cell_id": name, "candidate_median_ns": 100.0, **columns}
    return [
        cell(session=number, session_verdict=word, baseline_median_ns=100.0 * speedup, **about)
        for number, (word, speedup) in enumerate(zip(alone, speedups or [usual] * len(alone), strict=True))
    ]


def answers(*rows, by=()):
    return ask("sessions", tables([row for some in rows for row in some]), QuestionOptions(by=by))


def findings(answer):
    return [tuple(row[name] for name in reversed(FINDINGS)) for row in answer.table.iter_rows(named=True)]


@pytest.mark.parametrize(
    ("rows", "of_one", "of_two"),
    [
        (sessions(F, [F, F, I]), (2, 1, 0, 0), (3, 0, 0, 0)),
        (sessions(S, [F, S, E]), (1, 0, 0, 2), (3, 0, 0, 0)),
        (sessions(E, [F, S, I]), (0, 1, 2, 0), (3, 0, 0, 0)),
        (sessions(I, [F, E, I], (1.2, 1.0, 1 / 1.2)), (1, 0, 2, 0), (3, 0, 0, 0)),
        (sessions(F, [I, I, F], (1.0, 1.0, 8.0)), (1, 2, 0, 0), (0, 2, 0, 1)),
        (sessions(I, [I, I, I], (1.0, 1.0, 8.0)), (3, 0, 0, 0), (2, 0, 1, 0)),
    ],
    ids=["faster", "slower", "equivalent", "inconclusive", "two are contradicted", "two are unconfirmed"],
)
def test_draws_agree_or_not_as_is_known(rows, of_one, of_two):
    found, _ = answers(rows)
    assert findings(found) == [of_one, of_two]
    for row, (_agree, _undecided, unconfirmed, contradicted) in zip(
        found.table.to_dicts(), (of_one, of_two), strict=True
    ):
        assert row["wrong_share"] == pytest.approx((unconfirmed + contradicted) / 3)


def test_speedups_are_off_by_what_is_known():
    found, _ = answers(sessions(I, [I] * 3, (1.2, 1.0, 1 / 1.2)))
    one, two = found.table.to_dicts()
    assert (one["median_off_percent"], one["max_off_percent"]) == pytest.approx((20, 20))
    assert two["max_off_percent"] == pytest.approx(100 * (math.sqrt(1.2) - 1))
    assert two["median_off_percent"] == two["p95_off_percent"] == pytest.approx(two["max_off_percent"])
    assert set(found.table.columns) <= set(found.meanings)


def test_more_sessions_are_drawn_of_workloads_that_have_more():
    found, _ = answers(sessions(F, [F] * 5), sessions(F, [F] * 3, candidate="softmax/b"))
    rows = found.table.select("sessions", "workloads", "draws").rows()
    assert rows == [(1, 2, 8), (2, 2, 13), (3, 1, 10), (4, 1, 5)]
    assert not found.notes


def test_many_choices_of_sessions_are_sampled():
    assert choose(5, 2) == [(a, b) for a in range(5) for b in range(a + 1, 5)]
    sample = choose(40, 20)
    assert len(set(sample)) == len(sample) == MOST_DRAWS
    assert all(sorted(set(one)) == list(one) and set(one) <= set(range(40)) for one in sample)
    choose.cache_clear()
    assert choose(40, 20) == sample
    found, _ = answers(sessions(F, [F] * 6))
    assert found.table["draws"].to_list() == [6, 10, 10, 10, 6]
    assert "at most 10 combinations" in " ".join(found.notes)


def wilson(share, count):
    z2 = norm.ppf(0.975) ** 2
    middle, half = share + z2 / (2 * count), math.sqrt(z2 * (share * (1 - share) / count + z2 / (4 * count**2)))
    return pytest.approx(((middle - half) / (1 + z2 / count), (middle + half) / (1 + z2 / count)), abs=1e-9)


@pytest.mark.parametrize(("wrong", "independent"), [(0, 6), (2, 5)])
def test_interval_counts_a_cell_whose_draws_are_alike_once(wrong, independent):
    words = [[F] * 3 if number < wrong else [I] * 3 for number in range(6)]
    found, _ = answers(*(sessions(I, alone, candidate=f"softmax/{place}") for place, alone in enumerate(words)))
    row = found.table.row(0, named=True)
    assert (row["cells"], row["wrong_share"]) == (6, pytest.approx(wrong / 6))
    few = independent * (norm.ppf(0.975) / t.ppf(0.975, 5)) ** 2
    assert (row["wrong_low"], row["wrong_high"]) == wilson(wrong / 6, few)


def test_workloads_of_one_cell_have_no_interval():
    found, _ = answers(*(sessions(I, [F, I, I], workload=name) for name in ("small", "large")))
    row = found.table.row(0, named=True)
    assert (row["cells"], row["workloads"], row["wrong_low"], row["wrong_high"]) == (1, 2, None, None)
    assert "interval" not in found.statements[0]


def test_slices_are_rows_of_their_own():
    kept = [sessions(F, [F] * 3, gpu="a"), sessions(F, [F, F, I], gpu="b", cell_id="b", category=None)]
    found, _ = answers(*kept, by=("gpu", "kind"))
    assert found.table.select("gpu", "kind", "sessions", "undecided").rows() == [
        *(("a", "candidate", 1, 0), ("a", "candidate", 2, 0)),
        *(("b", "candidate", 1, 1), ("b", "candidate", 2, 0)),
    ]
    assert "undecided in 17 %" in found.statements[0]
    by_category, _ = answers(*kept, by=("category",))
    assert by_category.table["category"].to_list() == ["Reduce", "Reduce", None, None]
    with pytest.raises(UsageError):
        answers(*kept, by=("colour",))


def test_answer_is_said_in_words():
    found, _ = answers(sessions(F, [F, F, I, S], candidate="softmax/a"), sessions(I, [F, I, I, I], candidate="b"))
    one, more = found.statements
    assert one.startswith("One session alone agrees with all in 62 % of 8 draws from 2 workloads, is undecided in 12 %")
    assert "25 % (95 % interval" in one
    assert "1 unconfirmed, 1 contradicted" in one
    assert more.startswith("With 3 sessions of the 2 workloads that have more, 0 % of the draws are undecided")


def test_wrong_single_sessions_are_listed_worst_first():
    about = {"verdict_low": 1.5, "verdict_high": 2.5}
    _, found = answers(
        sessions(I, [F, F, I], (1.1, 1.3, 1 / 1.43), candidate="softmax/unconfirmed", **about),
        sessions(F, [S, F, F], (1.9, 2.0, 2.0), candidate="softmax/contradicted", **about),
        sessions(I, [F, I, I], (3.0, 1.0, 1 / 3), candidate="softmax/further", **about),
        sessions(F, [F, I, F], candidate="softmax/undecided", **about),
    )
    rows = found.table.select("candidate", "finding", "session", "wrong_sessions", "sessions").rows()
    assert rows == [
        ("softmax/contradicted", "contradicted", 0, 1, 3),
        ("softmax/further", "unconfirmed", 0, 1, 3),
        ("softmax/unconfirmed", "unconfirmed", 1, 2, 3),
    ]
    row = found.table.row(2, named=True)
    assert (row["verdict"], row["session_verdict"], row["session_speedup"]) == (I, F, pytest.approx(1.3))
    assert (row["speedup"], row["off_percent"]) == (pytest.approx(1.0), pytest.approx(30))
    assert (row["speedup_low"], row["speedup_high"]) == (1.5, 2.5)
    assert tuple(found.table.columns) == SINGLE_SESSIONS
    _, none = answers(sessions(F, [F] * 3))
    assert none.table.is_empty()
    assert list(none.notes) == ["There is none."]


def test_what_more_sessions_do_not_change_is_left_out():
    kept = sessions(F, [F] * 3)
    reasons = ("scattered", "scattered", "bound_below_1", "coarse_clock", "audit_objects", "few_calls")
    objected = [
        sessions(I, [F] * 3, candidate=f"softmax/{place}", verdict_reason=reason)
        for place, reason in enumerate(reasons)
    ]
    few = sessions(F, [F] * 2, candidate="softmax/few")
    old = sessions(I, [S] * 3, attempt=0)
    unknown = [cell(candidate="softmax/unknown", verdict=None), failed(candidate="softmax/failed", verdict=None)]
    found, single = answers(kept, *objected, few, old, unknown)
    assert findings(found) == [(3, 0, 0, 0)] * 2
    assert single.table.is_empty()
    assert [note.split(" workloads")[0] for note in found.notes] == ["1", "6", "1"]
    assert "(audit_objects 1, bound_below_1 1, coarse_clock 1, few_calls 1, scattered 2)" in found.notes[1]


def test_sessions_without_a_speedup_are_not_drawn():
    rows = sessions(F, [F] * 4)
    rows[1] |= {"speedup": None, "session_verdict": None}
    found, _ = answers(rows)
    assert findings(found) == [(3, 0, 0, 0)] * 2


def test_held_out_workloads_are_not_shown():
    found, _ = answers(sessions(F, [F] * 3), sessions(F, [F] * 3, workload="hidden", held_out=True))
    assert found.table["workloads"].to_list() == [1, 1]


@pytest.mark.parametrize(
    "rows",
    [[], sessions(F, [F] * 2), sessions(I, [F] * 3, verdict_reason="scattered"), [cell(verdict=None)]],
    ids=["nothing", "two sessions", "objection", "no verdict"],
)
def test_answer_needs_verdicts_of_several_sessions(rows):
    with pytest.raises(NothingSelectedError) as caught:
        answers(rows)
    assert "--tier publish" in caught.value.next_step
