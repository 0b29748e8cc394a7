"""Properties of every source in the registry."""

import pytest

from kernel_matrix.bundled import BUNDLED_PROBLEMS
from kernel_matrix.errors import UsageError
from kernel_matrix.json_schemas import load_schema
from kernel_matrix.model.enums import Language
from kernel_matrix.sources import (
    CANDIDATE_SOURCES,
    SOURCES,
    UnreadableItem,
    load_candidates,
    load_source,
    reference_candidate,
)


@pytest.mark.parametrize("name", SOURCES.built_in)
def test_a_source_refuses_what_is_not_its_own(name, tmp_path):
    with pytest.raises(UsageError) as refused:
        load_source(name, tmp_path / "absent")
    assert refused.value.next_step


def test_a_reference_is_a_candidate_of_its_own(root):
    (problem,) = load_source("folder", root).problems
    reference = reference_candidate(problem)
    assert (reference.id, reference.entry, reference.language) == ("half/@reference", "Model", Language.TORCH)
    assert (reference.path, reference.digest) == (problem.path, problem.digest)


def test_what_is_unreadable_says_where(tmp_path):
    assert str(UnreadableItem(path=tmp_path, reason="no", line=3)) == f"{tmp_path}:3: no"
    assert str(UnreadableItem(path=tmp_path, reason="no")) == f"{tmp_path}: no"


def test_a_matrix_may_name_every_source():
    definitions = load_schema("matrix")["$defs"]
    assert tuple(definitions["problemSet"]["properties"]["source"]["examples"]) == tuple(SOURCES.built_in)
    assert tuple(definitions["candidateSet"]["properties"]["source"]["examples"]) == tuple(CANDIDATE_SOURCES.built_in)
    assert set(BUNDLED_PROBLEMS) <= set(SOURCES.built_in)


@pytest.mark.parametrize("name", ["aten", "vllm", "cublas"])
def test_a_source_with_problems_of_its_own_needs_no_path(name):
    loaded = load_source(name, None)
    assert len(loaded.problems) >= 14
    assert {problem.id.partition("/")[0] for problem in loaded.problems} == {name}
    assert loaded.unreadable == ()


def test_a_source_without_problems_of_its_own_needs_one():
    with pytest.raises(UsageError, match="has no bundled problems"):
        load_source("table", None)


@pytest.mark.parametrize("name", CANDIDATE_SOURCES.built_in)
def test_what_reads_candidates_refuses_what_is_not_its_own(name, tmp_path):
    with pytest.raises(UsageError) as refused:
        load_candidates(name, tmp_path / "absent", {})
    assert refused.value.next_step
