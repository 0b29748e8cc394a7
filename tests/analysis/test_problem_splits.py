"""A problem is in one part of a data set, whatever it is called."""

from kernel_matrix.analysis.problem_splits import SPLITS, count_splits, normalise_problems, split_of


def test_names_with_the_same_reference_are_one_problem():
    found = normalise_problems([("a", "1"), ("b", "1"), ("c", "2"), ("d", None), ("e", None)])
    assert found["a"] == found["b"]
    assert len(set(found.values())) == 4


def test_versions_of_a_problem_join_the_names_of_each():
    found = normalise_problems([("a", "1"), ("a", "2"), ("b", "2"), ("c", "1"), ("a", None)])
    assert set(found.values()) == {"digest 1"}


def test_identity_does_not_depend_on_other_problems():
    alone = normalise_problems([("a", "1"), ("b", "2")])
    assert alone.items() <= normalise_problems([("z", "0"), ("b", "2"), ("a", "1")]).items()


def test_splits_are_stable_and_of_the_wanted_sizes():
    found = [split_of(f"digest {number}") for number in range(5000)]
    counts = count_splits(found)
    assert list(counts) == list(SPLITS)
    assert [round(count / 500) for count in counts.values()] == [8, 1, 1]
    assert [split_of(f"name {name}") for name in ("softmax", "matmul", "relu")] == ["train", "validation", "train"]
