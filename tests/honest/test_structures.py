"""Candidates that use what the problem's own inputs have in every draw pass, and wrong ones still fail."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import textwrap

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge.session_ended import SessionEnded
from kernel_matrix.model.enums import Dtype, Status
from tests.honest.bench import judge
from tests.honest.structures import STRUCTURES

pytestmark = pytest.mark.torch

MODEL = """
import torch

class {name}(torch.nn.Module):
    def forward(self, a, b):
        {forward}
"""
INPUTS = """
def get_inputs():
    {inputs}
"""


def source(name, forward):
    body = textwrap.indent(textwrap.dedent(forward.replace("; ", "\n")).strip(), " " * 8).strip()
    return MODEL.format(name=name, forward=body)


def verify(work, name, forward, **job):
    structured = STRUCTURES[name]
    inputs = INPUTS.format(inputs=structured.inputs.replace("; ", "\n    "))
    return judge(work, source("Model", structured.reference) + inputs, source("ModelNew", forward), **job)


@pytest.mark.parametrize("dtype", [Dtype.FP32, Dtype.FP64, Dtype.BF16], ids=lambda dtype: dtype.value)
@pytest.mark.parametrize("name", STRUCTURES)
def test_candidate_using_the_structure_passes(name, dtype, work):
    if dtype is Dtype.BF16 and "linalg" in STRUCTURES[name].reference:
        pytest.skip("no solver for this dtype")
    verifier = verify(work, name, STRUCTURES[name].honest, dtype=dtype)
    assert all(trial.passed for trial in verifier.trials)


@pytest.mark.parametrize("name", STRUCTURES)
def test_cheat_that_structure_does_not_excuse_fails(name, work):
    with pytest.raises(SessionEnded) as raised:
        verify(work, name, STRUCTURES[name].cheat)
    assert raised.value.status is Status.INCORRECT_VALUES
