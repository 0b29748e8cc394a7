"""The matrix over everything that comes with this project, and how much that is."""

from collections import Counter
from pathlib import Path

from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.model.enums import Language, Status
from kernel_matrix.plan.selection import load_selection

ROOT = Path(__file__).resolve().parents[2]
SUITE = load_selection(load_matrix(ROOT / "problems" / "suite.toml"))
OURS = [selected for selected in SUITE.problems if selected.problem.source == "folder"]


def test_the_whole_suite_can_be_read():
    assert SUITE.unreadable == ()
    assert len(OURS) == len(list((ROOT / "problems").glob("*/problem.toml")))


def test_every_kind_of_operator_has_problems():
    categories = Counter(selected.problem.category for selected in OURS)
    assert len(OURS) >= 75
    assert min(categories.values()) >= 3
    assert len(categories) == 17
    assert {selected.problem.level for selected in OURS} == {1, 2, 3}
    assert len([1 for selected in OURS if selected.problem.contract is not None]) >= 6


def test_there_are_good_examples():
    good = {
        (candidate.problem_id, candidate.language)
        for selected in OURS
        for candidate in selected.candidates
        if candidate.expect is Status.PASSED
    }
    assert len([1 for _, language in good if language is Language.TRITON]) >= 25
    assert len([1 for _, language in good if language is Language.CUDA]) >= 8
