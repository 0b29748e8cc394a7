"""Attribution of correctness and speed-up, against statsmodels and by simulation."""

import warnings

import numpy as np
import pytest
import statsmodels.api as sm
from polars.testing import assert_frame_equal

from kernel_matrix.analysis import attribution as module
from kernel_matrix.analysis.attribution import ALL_TOGETHER, attribution
from kernel_matrix.analysis.questions import QuestionOptions, ask
from kernel_matrix.errors import NothingSelectedError, UsageError
from tests.analysis.made import cell, tables

CATEGORIES = ("GEMM", "Norm", "Reduce")


def grid(generator, *, problems=40, methods=("m0", "m1", "m2"), gpus=("a", "b"), unbalanced=0.0):
    """Cells of every problem × method × GPU, some left out at random, with effects of category, method and GPU."""
    for number in range(problems):
        category = CATEGORIES[number % len(CATEGORIES)]
        luck = generator.normal(0, 0.5)
        for place, method in enumerate(methods):
            for where, gpu in enumerate(gpus):
                if generator.random() < unbalanced * (1 + place * where) / 2:
                    continue
                facts = {
                    "problem": f"p{number}", "category": category, "gpu": gpu, "origin_method": method,
                    "candidate": f"p{number}/{method}",
                }  # fmt: skip
                odds = {"GEMM": -1.5, "Norm": 0.5, "Reduce": 1.5}[category] + 0.5 * place + luck
                log = 0.3 * place - 0.2 * where + (0.5 if category == "Norm" else 0) + generator.normal(0, 0.3)
                if generator.random() < 1 / (1 + np.exp(-odds)):
                    yield cell(**facts, baseline_median_ns=100 * np.exp(log), candidate_median_ns=100.0)
                else:
                    yield cell(**facts, status="incorrect_values", fault="candidate")


def told(rows, **request):
    """Answer name → factor → line; and all notes."""
    answers = ask("attribution", tables(rows), QuestionOptions(**request))
    lines = {answer.name: {line["factor"]: line for line in answer.table.to_dicts()} for answer in answers}
    return lines, [note for answer in answers for note in answer.notes]


@pytest.fixture
def few_draws(monkeypatch):
    """For tests that look at neither chance nor the width of an interval, which most of the time is spent on."""
    monkeypatch.setattr(module, "_PERMUTATIONS", (20, 20))
    monkeypatch.setattr(module, "_DRAWS", (40, 40))


def designed(rows, names):
    """Full design of statsmodels."""
    columns = [np.ones((len(rows), 1))]
    for name in names:
        values = np.array([row[name] for row in rows])
        columns += [(values[:, None] == np.unique(values)[1:]).astype(float)]
    return np.concatenate(columns, axis=1)


NAMES = {"category": "category", "method": "origin_method", "gpu": "gpu"}


def shares_by_statsmodels(rows, deviance):
    names = list(NAMES.values())
    nothing, full = deviance(rows, []), deviance(rows, names)
    shares = {
        short: (
            1 - deviance(rows, [name]) / nothing,
            (deviance(rows, [n for n in names if n != name]) - full) / nothing,
        )
        for short, name in NAMES.items()
    }
    return shares | {ALL_TOGETHER: (1 - full / nothing,) * 2}


def glm(rows, names):
    passed = np.array([row["status"] == "passed" for row in rows], float)
    return sm.GLM(passed, designed(rows, names), family=sm.families.Binomial()).fit().deviance


def ols(rows, names):
    logs = np.log([row["speedup"] for row in rows])
    return sm.OLS(logs, designed(rows, names)).fit().ssr


@pytest.mark.usefixtures("few_draws")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_shares_are_those_of_statsmodels(seed):
    rows = list(grid(np.random.default_rng(seed), unbalanced=0.4))
    found, _notes = told(rows, by=tuple(NAMES))
    passed = [row for row in rows if row["status"] == "passed"]
    for name, wanted in (
        ("correctness", shares_by_statsmodels(rows, glm)),
        ("speedup", shares_by_statsmodels(passed, ols)),
    ):
        for factor, shares in wanted.items():
            line = found[name][factor]
            assert (line["add_one"], line["drop_one"]) == pytest.approx(shares, abs=1e-6), (name, factor)


@pytest.mark.usefixtures("few_draws")
def test_levels_that_always_or_never_pass_are_noted():
    rows = [row for row in grid(np.random.default_rng(4)) if row["category"] != "GEMM"]
    rows += [
        cell(problem=f"q{n}", candidate=f"q{n}/{m}", category="Hard", origin_method=m, gpu=gpu, status="timeout",
             fault="candidate")
        for n in range(10) for m in ("m0", "m1", "m2") for gpu in ("a", "b")
    ]  # fmt: skip
    found, notes = told(rows, by=tuple(NAMES))
    with np.errstate(all="ignore"):
        wanted = shares_by_statsmodels(rows, lambda r, names: _quiet(glm, r, names))
    for factor, shares in wanted.items():
        line = found["correctness"][factor]
        assert (line["add_one"], line["drop_one"]) == pytest.approx(shares, abs=1e-4), factor
    assert any(note.startswith("Some combinations of levels always or never pass") for note in notes)
    _found, notes = told(grid(np.random.default_rng(4)), by=tuple(NAMES))
    assert not any("always or never" in note for note in notes)


def _quiet(function, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments)


@pytest.mark.usefixtures("few_draws")
def test_one_level_and_aliases_are_named():
    rows = [
        row | {"toolchain": {"a": "old", "b": "new"}[row["gpu"]]} for row in grid(np.random.default_rng(5), problems=20)
    ]
    found, notes = told(rows)
    for lines in found.values():
        assert (lines["dtype"]["separable"], lines["dtype"]["add_one"]) == ("one level", None)
        assert {lines[name]["separable"] for name in ("gpu", "toolchain")} == {"no"}
        assert lines["gpu"]["add_one"] == pytest.approx(lines["toolchain"]["add_one"])
        assert (lines["gpu"]["drop_one"], lines["method"]["separable"]) == (None, "yes")
    assert "dtype has one level (fp32), so it explains nothing." in notes
    assert any(note.startswith("gpu is not separable from toolchain") for note in notes)


@pytest.mark.usefixtures("few_draws")
def test_a_factor_of_which_only_a_part_can_be_told_apart():
    rows = list(grid(np.random.default_rng(6), problems=20, gpus=("a", "b", "c")))
    for row in rows:
        row["toolchain"] = {"a": "one", "b": "one", "c": "two"}[row["gpu"]]
    found, notes = told(rows, by=("gpu", "toolchain"))
    assert [found["speedup"][name]["separable"] for name in ("gpu", "toolchain")] == ["partly", "no"]
    assert "gpu is partly separable: 1 of its 2 contrasts are independent of the other factors." in notes


def test_chance_explains_as_much_as_it_claims(monkeypatch):
    """Under no effect at all, p is at most 5 % in about 5 % of experiments, despite correlation within problems."""
    monkeypatch.setattr(module, "_PERMUTATIONS", (99, 99))
    generator, experiments = np.random.default_rng(7), 500
    smallest = {"category": 0, "method": 0}
    for _experiment in range(experiments):
        lines = _dealt_line(generator)
        for name in smallest:
            smallest[name] += lines[name] <= 0.05
    for name, number in smallest.items():
        assert 0.025 <= number / experiments <= 0.08, (name, number / experiments)


def _dealt_line(generator, tasks=24):
    """``p`` of a factor between problems and of one within them, with outcomes that depend on the problem only."""
    task = np.repeat(np.arange(tasks), 3)
    codes = np.column_stack([np.repeat(np.arange(tasks) % 3, 3), np.tile(np.arange(3), tasks)])
    count = np.full(len(task), 4.0)
    chance = np.repeat(generator.beta(0.5, 0.5, tasks), 3)
    passed = generator.binomial(4, chance).astype(float)
    design = module.EffectDesign(("category", "method"), codes, (3, 3))
    data = module.TaskSums(tasks, task, np.arange(len(task)), count, passed, passed)
    response = module._Response(design, data, binary=True)
    found = {}
    for number, name in enumerate(design.names):
        seen = module.permuted_deviances(response, number, generator)
        assert len(seen) == 100
        found[name] = (1 + (seen[1:] >= seen[0] - 1e-9).sum()) / len(seen)
    return found


def simulated(generator, tasks):
    """Log speed-ups of three methods on problems of three categories, with an effect per problem."""
    task, method = np.repeat(np.arange(tasks), 3), np.tile(np.arange(3), tasks)
    category = task % 3
    values = 0.4 * category + 0.3 * method + np.repeat(generator.normal(0, 0.4, tasks), 3)
    values += generator.normal(0, 0.4, len(task))
    combination = category * 3 + method
    codes = np.column_stack(np.divmod(np.arange(9), 3))
    design = module.EffectDesign(("category", "method"), codes, (3, 3))
    return module._Response(
        design, module.TaskSums(tasks, task, combination, np.ones(len(task)), values, values**2), binary=False
    )


def test_intervals_cover_the_share_of_the_whole_population():
    """Coverage of 95 % in 500 experiments, or slightly less: with 40 problems such intervals are narrow."""
    generator, experiments = np.random.default_rng(8), 500
    truth = simulated(generator, 30_000).shares()
    covered = np.zeros_like(truth)
    for _experiment in range(experiments):
        response = simulated(generator, 40)
        low, high = module.bootstrap_interval(response.shares(), module.draw_shares(response, 40, generator), 40)
        covered += (low <= truth) & (truth <= high)
    assert covered.min() / experiments >= 0.90, covered / experiments
    assert covered.max() / experiments <= 0.985, covered / experiments


@pytest.mark.usefixtures("few_draws")
def test_factor_with_few_problems_per_level_has_no_interval():
    rows = [row | {"category": f"of {row['problem']}"} for row in grid(np.random.default_rng(12), problems=15)]
    found, notes = told(rows, by=tuple(NAMES))
    assert found["speedup"]["category"]["add_low"] is None
    assert found["speedup"]["method"]["add_low"] is not None
    assert any(note.startswith("category has 15 levels over 15 problems") for note in notes)


def test_what_explains_nothing_is_as_large_as_chance():
    rows = [
        row | {"dtype": dtype, "cell_id": f"{row['cell_id']}/{dtype}"}
        for row in grid(np.random.default_rng(10)) for dtype in ("fp32", "fp16")
    ]  # fmt: skip
    lines = told(rows)[0]["correctness"]
    assert (lines["dtype"]["add_one"], lines["dtype"]["chance_p"]) == (pytest.approx(0, abs=1e-12), 1.0)
    assert lines["category"]["chance_p"] < 0.05


def test_the_same_tables_give_the_same_answer():
    rows = list(grid(np.random.default_rng(11), problems=12))
    generator = np.random.default_rng(1)
    mixed = [rows[place] for place in generator.permutation(len(rows))]
    for one, other in zip(
        attribution(tables(rows), QuestionOptions()), attribution(tables(mixed), QuestionOptions()), strict=True
    ):
        assert_frame_equal(one.table, other.table, rel_tol=1e-9)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([cell(baseline_median_ns=200, candidate_median_ns=100)], "method has one level (none)"),
        (
            [cell(gpu=gpu, status="timeout", fault="candidate") for gpu in ("a", "b")],
            "All values are equal: there is nothing to explain.",
        ),
        ([cell(gpu=gpu, status="infra_error", fault="infra") for gpu in ("a", "b")], "0 cells count; 2 do not judge"),
        ([cell(gpu="ä"), cell(gpu="b", candidate_median_ns=0.0)], "2 passed without a positive, finite speed-up"),
        (
            [
                cell(gpu="a", baseline_median_ns=200, candidate_median_ns=100),
                cell(gpu="b", status="timeout", fault="candidate"),
            ],
            "There is only one problem to resample",
        ),
    ],
)
def test_little_is_told_as_little(rows, said):
    lines, notes = told(rows)
    assert any(note.startswith(said) for note in notes), notes
    assert set(lines["correctness"]) == {"category", "method", "gpu", "toolchain", "dtype", ALL_TOGETHER}


@pytest.mark.usefixtures("few_draws")
def test_a_factor_with_too_many_levels_is_left_out_and_said():
    rows = [cell(candidate=f"c{n}", baseline_median_ns=200 + n, candidate_median_ns=100) for n in range(201)]
    lines, notes = told(rows, by=("candidate", "gpu"))
    assert lines["speedup"]["candidate"]["separable"] == "too many levels"
    assert any(note.startswith("candidate has 201 levels") for note in notes)


def test_what_cannot_be_asked():
    with pytest.raises(NothingSelectedError, match="no cell"):
        told([])
    with pytest.raises(UsageError, match="resamples whole problems"):
        told([cell()], by=("problem",))
    with pytest.raises(UsageError, match="slice by"):
        told([cell()], by=("colour",))
