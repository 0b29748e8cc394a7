"""The question gpus: ratios worked by hand, like with like, and a sentence for every case without a number."""

import json
import math

import polars as pl
import pytest

from kernel_matrix.analysis.questions import QuestionOptions, ask
from kernel_matrix.analysis.tables import open_tables
from kernel_matrix.errors import UsageError
from kernel_matrix.results.importing import import_results
from tests.analysis.made import failed, over_sessions, tables
from tests.results.importing.made import DATA

H200 = {"gpu": "h200", "gpu_name": "NVIDIA H200"}
H100 = {"gpu": "h100", "gpu_name": "NVIDIA H100 80GB HBM3"}
BANDWIDTHS = 4.8 / 3.352
"""Predicted for memory-bound work; the two boards have the same arithmetic rates."""
ALIKE = "with the same problem, dtype, workload, candidate and toolchain"
CANNOT = "their speed cannot be compared"
MEMORY = {"problem": "softmax", "category": "Reduce", "flops": 1e6, "bytes": 3.352e8}
"""100 µs on an H100 at its bandwidth, 69.8 µs on an H200."""
COMPUTE = {"problem": "matmul", "category": "MatrixMultiply", "flops": 6.7e9, "bytes": 1e6}
"""100 µs on both at the fp32 rate."""


def timed(us, *, sessions=3, baseline_us=None, **columns):
    """A cell with sessions that differ by 0.1 %, and its name from its problem."""
    columns.setdefault("candidate", f"{columns.get('problem', 'softmax')}/one")
    medians = [1000 * us * factor for factor in (1.0, 1.001, 0.999, 1.0005, 0.9995)[:sessions]]
    baseline = 1000 * (us if baseline_us is None else baseline_us)
    return list(over_sessions([(baseline, median) for median in medians], **columns))


def both(h200_us, h100_us, **columns):
    return [*timed(h200_us, **H200, **columns), *timed(h100_us, **H100, **columns)]


WORKED = [
    *both(100.0, 125.0, **MEMORY, candidate="softmax/one"),
    *both(100.0, 160.0, **MEMORY, candidate="softmax/two"),
    *both(200.0, 200.0, **COMPUTE),
]


def asked(rows, **options):
    return {answer.name: answer for answer in ask("gpus", tables(rows), QuestionOptions(**options))}


def row_of(answer, **where):
    (found,) = [row for row in answer.table.to_dicts() if all(row[name] == value for name, value in where.items())]
    return found


def statement(rows, **options):
    return " ".join(asked(rows, **options)["gpus"].statements)


def test_gpus_ratio_and_interval_are_those_worked_by_hand():
    # softmax: √(1.25 · 1.6) = √2; matmul: 1; over both problems 2^(1/4), with Student's t of one degree of freedom.
    row = row_of(asked(WORKED)["gpus"], kind="candidates")
    assert (row["gpu"], row["than"], row["problems"], row["workloads"]) == ("h200", "h100", 2, 3)
    assert row["ratio"] == pytest.approx(2**0.25)
    reach = 12.7062 * (math.log(2) / 2 / math.sqrt(2)) / math.sqrt(2)
    assert (row["low"], row["high"]) == pytest.approx((2**0.25 * math.exp(-reach), 2**0.25 * math.exp(reach)), rel=1e-4)
    assert (row["memory"], row["compute"]) == pytest.approx((BANDWIDTHS, 1.0))
    # softmax reaches √2 of 1.432, matmul 1 of 1.
    assert row["reached"] == pytest.approx(math.sqrt(math.sqrt(2) / BANDWIDTHS), rel=1e-3)


def test_gpus_statement_has_ratio_prediction_and_shortfall():
    said = statement(WORKED)
    assert said.startswith(
        "h200 is 1.19× (95 % interval 0.13 to 10.8) as fast as h100 over 2 problems; "
        "the data sheets predict 1.43× for memory-bound and 1.00× for compute-bound work."
    )
    assert (
        "Workloads whose limit is known: memory-bound 1.41×, 99 % of the prediction; "
        "compute-bound 1.00×, 100 % of the prediction."
    ) in said
    assert (
        "1 workload falls clearly short of the prediction: softmax/one (fp32, default) with 1.25× instead of 1.43×."
    ) in said


def test_gpus_short_lists_what_is_shown_to_be_less():
    short = asked(WORKED)["short"].table
    assert set(short["kind"]) == {"candidates", "baselines"}
    short = short.filter(pl.col("kind") == "candidates")
    assert short["candidate"].to_list() == ["softmax/one"]
    row = short.row(0, named=True)
    assert (row["limit"], row["kind"]) == ("memory", "candidates")
    assert (row["ratio"], row["predicted"], row["of_predicted"]) == pytest.approx(
        (1.25, BANDWIDTHS, 1.25 / BANDWIDTHS), rel=1e-3
    )
    assert row["high"] < row["predicted"]
    assert (row["gpu_us"], row["than_us"]) == pytest.approx((100, 125), rel=1e-3)
    assert (row["gpu_share"], row["than_share"]) == pytest.approx((0.698, 0.8), rel=1e-2)


def test_gpus_slices_by_category_dtype_size_and_limit():
    slices = asked([*WORKED, *both(5.0, 5.0, **MEMORY, workload="smoke", dtype="fp16")])["slices"]
    of = {"kind": "candidates"}
    assert row_of(slices, by="category", value="MatrixMultiply", **of)["ratio"] == pytest.approx(1.0)
    assert row_of(slices, by="dtype", value="fp32", **of)["ratio"] == pytest.approx(2**0.25)
    assert row_of(slices, by="size", value="below 10 µs", **of)["ratio"] == pytest.approx(1.0)
    assert row_of(slices, by="size", value="100 µs to 1 ms", **of)["problems"] == 2
    assert row_of(slices, by="limit", value="memory", **of)["ratio"] == pytest.approx(math.sqrt(2))
    assert row_of(slices, by="limit", value="compute", **of)["ratio"] == pytest.approx(1.0)


def test_gpus_with_far_less_than_the_roofline_is_limited_by_neither():
    slices = asked(both(5000.0, 5000.0, **MEMORY))["slices"]
    assert row_of(slices, by="limit", kind="candidates")["value"] == "neither"
    assert asked(both(5000.0, 5000.0, **MEMORY))["short"].table.is_empty()


def test_gpus_beyond_the_roofline_is_noted_and_unpredicted():
    answers = asked(both(10.0, 20.0, **MEMORY))
    assert answers["gpus"].table["reached"].to_list() == [None, None]
    assert any("faster than their roofline" in note and note.endswith(": 2.") for note in answers["gpus"].notes)


def test_gpus_without_amount_of_work_is_short_of_both_if_long():
    rows = [*both(1900.0, 2000.0, problem="p"), *both(19.0, 20.0, problem="q"), *both(1500.0, 1400.0, problem="r")]
    short = asked(rows, platforms=("h200", "h100"))["short"].table
    assert short["problem"].to_list() == ["r", "r"]
    assert set(short["limit"]) == {"unknown"}


def test_gpus_by_slices_the_first_table():
    table = asked(WORKED, by=("category",))["gpus"].table.filter(kind="candidates")
    assert dict(table.select("category", "ratio").iter_rows()) == pytest.approx(
        {"Reduce": math.sqrt(2), "MatrixMultiply": 1.0}
    )
    assert table["low"].to_list() == [None, None]


@pytest.mark.parametrize("name", ["gpu", "toolchain", "unit", "host"])
def test_gpus_by_what_differs_between_gpus_is_an_error(name):
    with pytest.raises(UsageError, match="gpus"):
        asked(WORKED, by=(name,))


def test_gpus_platforms_choose_the_order():
    row = row_of(asked(WORKED, platforms=("h100", "h200"))["gpus"], kind="candidates")
    assert (row["gpu"], row["than"], row["ratio"]) == ("h100", "h200", pytest.approx(2**-0.25))


def test_gpus_kinds_are_reported_apart():
    rows = [
        *both(100.0, 150.0, problem="p", baseline_us=300.0),
        *both(100.0, 300.0, problem="p", candidate="p/@reference", expect=None),
        *both(100.0, 900.0, problem="p", candidate="p/control", expect="incorrect_values"),
    ]
    found = {row["kind"]: row["ratio"] for row in asked(rows)["gpus"].table.to_dicts()}
    assert found == pytest.approx(
        {"candidates": 1.5, "references": 3.0, "controls": 9.0, "baselines": 9 ** (1 / 3)}, rel=1
    )
    assert (found["candidates"], found["references"]) == pytest.approx((1.5, 3.0))
    said = statement(rows)
    assert said.startswith("h200 is 1.50× as fast as h100 over 1 problem; ")
    assert "The references: 3.00×." in said
    assert "9.00" not in said


@pytest.mark.parametrize("content", ["candidate_sha256", "problem_sha256"])
def test_gpus_other_content_is_not_compared(content):
    rows = [*timed(1.0, **H200, problem="p"), *timed(2.0, **H100, problem="p", **{content: "other"})]
    answer = asked(rows)["gpus"]
    assert answer.table.filter(kind="candidates").is_empty()
    assert "another content" in " ".join((*answer.statements, *answer.notes))


def test_gpus_failure_on_one_side_is_left_out_and_noted():
    rows = [*WORKED, *timed(1.0, **H200, problem="p"), failed(**H100, problem="p", candidate="p/one")]
    answer = asked(rows)["gpus"]
    assert row_of(answer, kind="candidates")["problems"] == 2
    assert "Workloads left out, as they pass on one GPU of a pair and fail on the other: 1." in answer.notes


def test_gpus_joined_toolchains_are_noted_and_others_kept_apart():
    joined = [*timed(1.0, **H200, problem="p"), *timed(2.0, **H100, problem="p", toolchain="cu124")]
    answer = asked(joined)["gpus"]
    assert row_of(answer, kind="candidates")["ratio"] == pytest.approx(2.0)
    assert any("h100 ran with cu124, h200 ran with cu130" in note for note in answer.notes)
    apart = asked([*joined, *timed(9.0, **H200, problem="p", toolchain="cu124")])["gpus"]
    row = row_of(apart, kind="candidates")
    assert (row["gpu"], row["ratio"]) == ("h100", pytest.approx(9 / 2))


def test_gpus_weights_change_the_mean(tmp_path):
    path = tmp_path / "weights.toml"
    path.write_text("[category]\nReduce = 3\n", encoding="utf-8")
    answer = asked(WORKED, weights=path)["gpus"]
    assert row_of(answer, kind="candidates")["ratio"] == pytest.approx(2 ** (0.5 * 3 / 4))
    assert "over 2 problems (weighted);" in answer.statements[0]
    path.write_text("default = 0\n", encoding="utf-8")
    assert list(asked(WORKED, weights=path)["gpus"].statements) == [
        "All problems that h100 and h200 have in common have the weight 0."
    ]
    path.write_text("[problem]\nsoftmux = 1\n", encoding="utf-8")
    with pytest.raises(UsageError, match="no problem named 'softmux'"):
        asked(WORKED, weights=path)


def test_gpus_unknown_board_has_ratio_and_reason():
    rows = [*timed(1.0, **H200, problem="p"), *timed(2.0, gpu="z", gpu_name="Z 9", problem="p")]
    assert statement(rows).startswith(
        "h200 is 2.00× as fast as z over 1 problem; no prediction of data sheets: there is no data sheet of Z 9."
    )


def test_gpus_unknown_dtype_says_why_nothing_is_predicted():
    rows = both(1.0, 2.0, problem="p", dtype=None)
    assert "nothing for compute-bound work, since the results do not name their dtype" in statement(rows)


def test_gpus_less_than_both_predictions_is_said():
    rows = [row for number in range(3) for row in both(100.0, 60.0, problem=f"p{number}")]
    assert "compute-bound work; it is less than both." in statement(rows, platforms=("h200", "h100"))


def test_gpus_one_session_has_an_assumed_noise():
    answer = asked([row for one in "pq" for row in both(100.0, 200.0, problem=one, sessions=1)])["gpus"]
    row = row_of(answer, kind="candidates")
    assert row["noise"] == pytest.approx(math.exp(1.96 * 0.02) - 1, rel=1e-2)
    assert row["low"] < row["ratio"] < row["high"]
    assert any(note.startswith("Every time is from one session") for note in answer.notes)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (timed(1.0, **H200), "There is only one GPU (h200), so there is nothing to compare it with."),
        ([failed(**H200), failed(**H100)], "Nothing passed on h100, h200, so their speed cannot be compared."),
        (
            [*timed(1.0, **H200, problem="p"), *timed(1.0, **H100, problem="q")],
            f"h100, h200 have no work in common that passed on two of them, {ALIKE}, so {CANNOT}.",
        ),
    ],
    ids=["one", "failed", "apart"],
)
def test_gpus_without_common_work_say_so(rows, said):
    answers = asked(rows)
    assert list(answers["gpus"].statements) == [said]
    assert all(answer.table.is_empty() for answer in answers.values())


def test_gpus_pairs_without_common_work_are_counted():
    rows = [*WORKED, *timed(1.0, gpu="z", problem="other")]
    notes = asked(rows)["gpus"].notes
    assert "2 pairs of GPUs have no work in common, and no row: h200 and z, h100 and z." in notes


def test_gpus_of_equal_times_are_equally_fast():
    rows = [row for one in "pq" for row in both(100.0, 100.0, problem=one)]
    row = row_of(asked(rows)["gpus"], kind="candidates")
    assert row["ratio"] == pytest.approx(1.0)
    assert row["low"] < 1 < row["high"]


def test_gpus_fastest_is_spoken_of_first():
    rows = [row for gpu, us in (("a", 4.0), ("b", 1.0), ("c", 2.0)) for row in timed(us, gpu=gpu, problem="p")]
    table = asked(rows)["gpus"].table.filter(kind="candidates")
    assert table.select("gpu", "than").rows() == [("b", "c"), ("b", "a"), ("c", "a")]
    assert table["ratio"].to_list() == pytest.approx([2.0, 4.0, 2.0])


TIMING = DATA / "kernelbench-timing"


@pytest.mark.skipif(not TIMING.is_dir(), reason=f"{TIMING} is not here: no tables of other people's times")
def test_gpus_of_published_times_are_their_geometric_mean(tmp_path):
    import_results([TIMING / "L40S_modal", TIMING / "L4_modal"], tmp_path / "tables")
    answers = ask("gpus", open_tables([tmp_path / "tables"]), QuestionOptions(platforms=("L40S_modal", "L4_modal")))
    times = [
        json.loads((TIMING / gpu / "baseline_time_torch.json").read_text(encoding="utf-8"))
        for gpu in ("L40S_modal", "L4_modal")
    ]
    logs = [
        math.log(times[1][level][problem]["mean"] / times[0][level][problem]["mean"])
        for level in times[0]
        for problem in times[0][level]
    ]
    row = row_of(answers[0], kind="baselines")
    assert (row["problems"], row["ratio"]) == (len(logs), pytest.approx(math.exp(sum(logs) / len(logs))))
    assert row["memory"] == pytest.approx(864 / 300)
