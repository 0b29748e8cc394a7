from __future__ import annotations

import pytest
from plan.nouns import candidate, problem, selected

from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Language
from kernel_matrix.plan import parse_filter, parse_shard, shard


@pytest.fixture
def cells(plan):
    items = (
        selected(problem(level=1), candidate("softmax/a"), candidate("softmax/b", language=Language.TORCH)),
        selected(problem("relu", category="activation", ranks=2), candidate("relu/a")),
    )
    return list(plan(*items).cells())


@pytest.mark.parametrize(
    ("terms", "keeps"),
    [
        ([], lambda c: True),
        (["gpu=h*"], lambda c: c.gpu.name == "h200"),
        (["toolchain=cpu,cu128"], lambda c: True),
        (["toolchain=cpu"], lambda c: c.toolchain.name == "cpu"),
        (["dtype=bf16"], lambda c: c.dtype.value == "bf16"),
        (["problem=relu"], lambda c: c.problem.id == "relu"),
        (["problem=rel"], lambda c: False),
        (["candidate=*/a"], lambda c: c.candidate.id.endswith("/a")),
        (["language=torch"], lambda c: c.candidate.language is Language.TORCH),
        (["category=act*"], lambda c: c.problem.category == "activation"),
        (["level=1"], lambda c: c.problem.level == 1),
        (["level!=1"], lambda c: c.problem.level is None),
        (["ranks=2"], lambda c: c.problem.ranks == 2),
        (["gpu!=cpu"], lambda c: c.gpu.name != "cpu"),
        (["problem!=relu,softmax"], lambda c: False),
        (
            ["gpu=cpu", "problem=softmax", "candidate!=*/b"],
            lambda c: (c.gpu.name, c.candidate.id) == ("cpu", "softmax/a"),
        ),
        (["gpu = cpu , h200"], lambda c: True),
    ],
)
def test_terms_keep_matching_cells(cells, terms, keeps):
    keep = parse_filter(terms)
    assert [keep(cell) for cell in cells] == [keeps(cell) for cell in cells]


def test_an_id_may_be_cut_short(cells):
    keep = parse_filter([f"id={cells[3].id[:10]},{cells[5].id}"])
    assert [cell for cell in cells if keep(cell)] == [cells[3], cells[5]]


@pytest.mark.parametrize("text", ["gpu", "gpu=", "gpu=,", "", "=x", "gpu!h200"])
def test_other_forms_are_refused(text):
    with pytest.raises(UsageError) as caught:
        parse_filter([text])
    assert repr(text) in caught.value.what
    assert "gpu, toolchain" in caught.value.next_step


def test_an_unknown_key_is_told_with_the_closest_one():
    with pytest.raises(UsageError, match="unknown key 'tolchain'; did you mean 'toolchain'"):
        parse_filter(["tolchain=cpu"])


def test_unmatched_values_are_explained_by_the_closest(cells):
    unmatched = parse_filter(["gpu=H200,cpu", "problem=relu", "level!=7"]).explain_unmatched(cells)
    assert unmatched == "no gpu is 'H200'; did you mean 'h200'?"
    assert parse_filter([]).explain_unmatched(cells) == ""


def test_a_filter_reads_as_it_was_written():
    assert str(parse_filter(["gpu=h*", "dtype!=bf16"])) == "gpu=h* dtype!=bf16"


def test_shards_divide_the_cells(cells):
    parts = [list(shard(cells, index, 3)) for index in (1, 2, 3)]
    assert sorted(cell.id for part in parts for cell in part) == sorted(cell.id for cell in cells)
    assert all(parts)


def test_a_cells_shard_does_not_depend_on_the_other_cells(cells):
    assert [c.id for c in shard(cells, 2, 3)] == [c.id for cell in cells for c in shard([cell], 2, 3)]


def test_shards_are_named_from_one():
    assert parse_shard("2/4") == (2, 4)


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "1/0", "a/b", "-1/4", "1/4/2"])
def test_other_shards_are_refused(text):
    with pytest.raises(UsageError, match="I/N"):
        parse_shard(text)
