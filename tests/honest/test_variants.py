"""Honest implementations of shipped problems pass: other orders of sums, one pass, blocks, Kahan, Welford, fused."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import inspect
import textwrap
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.model.enums import Dtype
from kernel_matrix.sources import load_source
from tests.honest import sums
from tests.honest.bench import judge
from tests.honest.variants import OTHERS, SUMMED, SUMS

pytestmark = pytest.mark.torch

ROOT = Path(__file__).resolve().parents[2]
PROBLEMS = {problem.id: problem for problem in load_source("folder", ROOT / "problems").problems}
SUMMING = [(problem, add) for problem in SUMMED for add in SUMS]
LONG = 1 << 15

NEW = """
import itertools

import torch.nn.functional as F

{sums}
add = {add}

{reference}

class ModelNew(Model):
    forward = None

def forward({arguments}):
    {body}

ModelNew.forward = forward
"""


def verify(work, name, body, add="None", **values):
    problem = PROBLEMS[name]
    reference = problem.path.read_text()
    arguments = next(line for line in reference.splitlines() if "def forward" in line)
    text = NEW.format(
        sums=inspect.getsource(sums),
        add=add,
        reference=reference,
        arguments=arguments.split("(", 1)[1].rsplit(")", 1)[0],
        body=textwrap.indent(textwrap.dedent(body).strip(), "    ").strip(),
    )
    smoke = dict(next(w.values for w in problem.workloads if w.name == "smoke"))
    names = ("outliers", "tolerance", "mutates_inputs", "random", "contract", "ranks")
    flags = {name: getattr(problem, name) for name in names}
    return judge(work, reference, text, {**smoke, **values}, dtype=Dtype.FP32, **flags)


@pytest.mark.parametrize(("name", "add"), SUMMING, ids=[f"{name}-{add}" for name, add in SUMMING])
def test_sum_in_another_order_passes(name, add, work):
    assert verify(work, name, SUMMED[name], add).trials


@pytest.mark.parametrize("name", OTHERS)
def test_other_computation_passes(name, work):
    assert verify(work, name.split(",")[0], OTHERS[name]).trials


def test_long_sum_in_turn_passes(work):
    assert verify(work, "long_k_matmul", SUMMED["long_k_matmul"], "in_turn", M=2, N=3, K=LONG).trials


def test_every_category_has_a_variant():
    tried = {*SUMMED, *(name.split(",")[0] for name in OTHERS)}
    categories = {problem.category for problem in PROBLEMS.values()}
    assert {PROBLEMS[name].category for name in tried} == categories
