"""Text made of columns."""

import polars as pl
import pytest

from kernel_matrix.analysis.sentences import sentence

FRAME = pl.DataFrame({"name": ["a", None, "c"], "count": [1, 2, 3], "share": [0.5, 1.0, 1e-9]})


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize(
    ("template", "parts", "said"),
    [
        ("{} of {}", ("name", "count"), ["a of 1", None, "c of 3"]),
        ("{}", ("share",), ["0.5", "1.0", "1e-9"]),
        ("({}{})", (pl.col("count") + 1, pl.lit("!")), ["(2!)", "(3!)", "(4!)"]),
    ],
)
def test_each_place_takes_its_part(engine, template, parts, said):
    found = FRAME.lazy().select(sentence(template, *parts).alias("said")).collect(engine=engine)
    assert found["said"].to_list() == said


def test_no_row_says_nothing():
    assert FRAME.clear().select(sentence("{} of {}", "name", "count")).height == 0


def test_parts_of_frames_in_several_chunks_are_read():
    chunks = pl.concat([FRAME, FRAME.clear(), FRAME], rechunk=False)
    assert chunks.select(sentence("{}", "count").alias("said"))["said"].to_list() == ["1", "2", "3"] * 2


def test_as_many_parts_as_places_are_wanted():
    with pytest.raises(ValueError, match=r"'\{\} of \{\}' has 2 places for 1 parts"):
        sentence("{} of {}", "name")
