"""The most similar texts are found without comparing all of them."""

import numpy as np

from kernel_matrix.analysis.nearest_texts import NearestTexts, RankedTexts


def ranked(*number_and_rank):
    numbers, ranks = zip(*number_and_rank, strict=True)
    return RankedTexts(np.array(numbers, np.intp), np.array(ranks, np.float64))


LINES = [f"value_{number} = load({number})" for number in range(20)]
TEXTS = ["\n".join(LINES), "\n".join([*LINES[:-1], "other = 1"]), "\n".join(LINES[:10]), "unlike = 'all others'"]


def test_nearest_is_the_most_similar_text():
    texts = NearestTexts(TEXTS)
    found = texts.nearest(ranked((0, 1), (3, 1)), ranked((3, 0), (2, 0), (1, 0)), 2)
    assert found[0] == [2, 1]
    assert texts.similarity(0, 1) == 0.95
    assert len(found[1]) == 2


def test_nearest_is_neither_the_text_itself_nor_one_of_higher_rank():
    found = NearestTexts(TEXTS).nearest(ranked((0, 5)), ranked((0, 1), (1, 5), (2, 6), (3, 4)), 3)
    assert found == [[3]]


def test_nearest_of_no_texts_is_empty():
    none = RankedTexts(np.array([], np.intp), np.array([]))
    assert NearestTexts(TEXTS).nearest(ranked((0, 1)), none, 1) == [[]]
    assert NearestTexts([]).nearest(none, none, 1) == []


def test_nearest_in_many_texts_is_the_one_with_one_changed_line():
    rng = np.random.default_rng(1)
    words = [[f"word{number}" for number in rng.integers(0, 4000, 30)] for _ in range(600)]
    texts = ["\n".join(each) for each in words] + ["\n".join(["changed", *each[1:]]) for each in words]
    of = ranked(*((number, 1) for number in range(600)))
    found = NearestTexts(texts).nearest(of, ranked(*((number, 0) for number in range(1200))), 1)
    assert found == [[600 + number] for number in range(600)]
