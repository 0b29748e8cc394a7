"""Problems of several ranks with another number of ranks."""

from dataclasses import replace
from pathlib import Path

import pytest

from kernel_matrix.json_schemas import load_schema
from kernel_matrix.model.enums import Dtype
from kernel_matrix.sources import RANKS, Problem, Workload, load_source
from kernel_matrix.sources.other_ranks import with_ranks
from tests.sources.examples import PROBLEM, write


def of_ranks(root, ranks):
    write(root / "half/problem.toml", PROBLEM.replace("flops =", f"ranks = {ranks}\nflops ="))
    return load_source("folder", root).problems[0]


def test_folder_with_other_ranks_is_as_if_its_file_said_so(root):
    two = of_ranks(root, 2)
    assert with_ranks(two, 4) == of_ranks(root, 4)


@pytest.mark.parametrize("ranks", [1, 2])
def test_own_number_of_ranks_changes_nothing(root, ranks):
    problem = of_ranks(root, ranks)
    assert with_ranks(problem, 2) == problem


def test_other_source_with_other_ranks_has_unknown_work():
    workload = Workload(name="default", values={"M": 8}, flops=2.0, bytes={Dtype.FP32: 4.0}, memory={Dtype.FP32: 8.0})
    two = Problem(id="p", source="other", path=Path("p.py"), category="c", ranks=2, digest="d", workloads=(workload,))
    four = with_ranks(two, 4)
    assert four.workloads == (Workload(name="default", values={"M": 8}),)
    assert len({two.digest, four.digest, with_ranks(two, 8).digest}) == 3
    assert replace(four, ranks=2, digest="d", workloads=two.workloads) == two


def test_ranks_are_those_that_the_schemas_allow():
    of_problem = load_schema("problem")["properties"]["ranks"]
    of_matrix = load_schema("matrix")["$defs"]["problemSet"]["properties"]["ranks"]
    for schema in (of_matrix, of_matrix["items"]):
        assert range(schema["minimum"], schema["maximum"] + 1) == RANKS
    assert of_problem["maximum"] == RANKS[-1]
