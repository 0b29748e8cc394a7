"""What holds for every source in the registry."""

import pytest

from runner.core.vocab import Language
from runner.errors import UsageError
from runner.sources import Unreadable, load_source, reference_candidate, source_names


@pytest.mark.parametrize("name", source_names())
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
    assert str(Unreadable(path=tmp_path, reason="no", line=3)) == f"{tmp_path}:3: no"
    assert str(Unreadable(path=tmp_path, reason="no")) == f"{tmp_path}: no"
