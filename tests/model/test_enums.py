"""The words: each explained, each spelt once, each status the fault of somebody."""

import ast
from enum import Enum
from pathlib import Path

import pytest

from kernel_matrix.model import enums
from kernel_matrix.model.enums import Fault, Status, fault_of

ENUMS = [value for value in vars(enums).values() if isinstance(value, type) and issubclass(value, Enum)][1:]


def test_all_words_are_looked_at():
    assert {enum.__name__ for enum in ENUMS} >= {"Fault", "Stage", "Status", "Dtype", "Language", "Role", "InputMode"}


@pytest.mark.parametrize("enum", ENUMS, ids=lambda e: e.__name__)
def test_a_word_is_its_name_and_a_string(enum):
    assert all(member.value.lower().replace("-", "_") == member.name.lower() for member in enum)
    assert all(isinstance(member, str) for member in enum)


def test_every_word_is_explained():
    tree = ast.parse(Path(enums.__file__).read_text(encoding="utf-8"))
    for enum in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        body = enum.body[1:]  # behind the docstring of the class
        for member, explanation in zip(body[::2], body[1::2], strict=True):
            assert isinstance(member, ast.Assign), f"{enum.name}, line {member.lineno}"
            assert isinstance(explanation, ast.Expr), f"{enum.name}.{ast.unparse(member)} is not explained"


NOT_THE_CANDIDATES = {
    Fault.NONE: {Status.PASSED, Status.VERIFIED, Status.COMPILED},
    Fault.PROBLEM: {Status.INVALID_PROBLEM, Status.PROBLEM_ERROR},
    Fault.UNSUPPORTED: {Status.UNSUPPORTED, Status.DOES_NOT_FIT},
    Fault.INFRA: {
        Status.IMAGE_ERROR,
        Status.GPU_BUSY,
        Status.CONTENDED,
        Status.CONTAINER_LOST,
        Status.THROTTLED,
        Status.CLOCKS_NOT_HELD,
        Status.GPU_LOST,
        Status.INFRA_ERROR,
    },
}


@pytest.mark.parametrize("fault", Fault)
def test_a_status_is_the_fault_of_one(fault):
    others = set().union(*NOT_THE_CANDIDATES.values())
    expected = NOT_THE_CANDIDATES.get(fault, set(Status) - others)
    assert {status for status in Status if fault_of(status) is fault} == expected
