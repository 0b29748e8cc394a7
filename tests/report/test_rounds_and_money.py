"""The section about rounds and money: when it is there, and what it has in it."""

import pytest

from kernel_matrix.report.question_pages import answer_questions
from kernel_matrix.report.rounds_and_money import find_rounds_and_money, rounds_and_money
from tests.analysis.made import cell, failed, tables


def generated_rows(**further):
    """Two methods on three problems: two rounds of one sample, and two samples of one round."""
    for number, problem in enumerate(("softmax", "gelu", "argmax")):
        for method in ("refine", "repeated"):
            for attempt in (0, 1):
                place = {"origin_round": attempt, "origin_sample": 0}
                if method == "repeated":
                    place = {"origin_round": 0, "origin_sample": attempt}
                about = {
                    "problem": problem, "candidate": f"{problem}/{method}{attempt}", "origin_method": method,
                    "origin_cost_usd": 0.25, "origin_tokens_in": 900, "origin_tokens_out": 100, **place, **further,
                }  # fmt: skip
                times = {"baseline_median_ns": 150.0 + number, "candidate_median_ns": 100.0}
                is_solved = attempt == 1 and (method == "refine" or number == 0)
                yield cell(**about, **times) if is_solved else failed(**about)


def found_in(rows):
    made = tables(rows)
    return find_rounds_and_money(made, tuple(answer_questions(made)))


def test_section_has_a_plot_per_unit_rounds_and_comparisons():
    drawn = rounds_and_money(found_in(generated_rows()))
    assert drawn.count('class="shares"') == 2
    assert "Tasks solved for so many US dollars each: refine 100 % for 0.5; repeated 33 % for 0.5" in drawn
    assert "so many tokens each: refine 100 % for 2k" in drawn
    row = '<td class="text">refine</td><td class="figure">{}</td><td class="figure">3</td><td class="figure">{}</td>'
    assert row.format(0, "0 %") in drawn
    assert row.format(1, "100 %") in drawn
    for equal in ("samples", "US dollars", "tokens"):
        sides = '<td class="text">refine</td><td class="text">repeated</td>'
        assert f'{sides}<td class="text">{equal}</td><td class="figure">3</td>' in drawn


def test_section_without_costs_has_rounds_alone():
    without = {"origin_cost_usd": None, "origin_tokens_in": None}
    drawn = rounds_and_money(found_in(generated_rows(**without)))
    assert ("Best by round" in drawn, "svg" in drawn) == (True, False)


def test_section_of_one_method_compares_nothing():
    rows = [row for row in generated_rows() if row["origin_method"] == "refine"]
    assert "Method against method" not in rounds_and_money(found_in(rows))


def test_section_names_unknown_methods():
    assert "unknown method" in rounds_and_money(found_in(generated_rows(origin_method=None)))


@pytest.mark.parametrize("rows", [[], [cell()], [failed(origin_method="refine")]])
def test_section_without_rounds_and_costs_is_absent(rows):
    assert found_in(rows) is None
