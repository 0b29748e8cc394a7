"""Ranks in threads get what those in processes get from gloo, and every mistake of a reference has its own error."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
dist = pytest.importorskip("torch.distributed")

from kernel_matrix.inside.judge.emulated_ranks import RankError, emulated_collectives, run_ranks, with_all_ranks

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module", params=[2, 3])
def of_gloo(request, tmp_path_factory):
    """What each rank gets from gloo."""
    folder = tmp_path_factory.mktemp("gloo")
    script = Path(__file__).with_name("collectives.py")
    subprocess.run([sys.executable, str(script), str(request.param), str(folder)], check=True, timeout=120)
    return [torch.load(folder / f"{rank}.pt") for rank in range(request.param)]


def test_each_collective_returns_what_gloo_returns(of_gloo):
    from tests.inside.judge import collectives  # noqa: PLC0415  # needs torch

    found = run_ranks(lambda _rank: collectives.results(), len(of_gloo))
    for mine, theirs in zip(found, of_gloo, strict=True):
        assert mine.keys() == theirs.keys()
        for name, wanted in theirs.items():
            if len(of_gloo) == 2:  # sums of two numbers have one order
                assert torch.equal(mine[name], wanted), name
            else:
                eps = torch.finfo(wanted.dtype).eps if wanted.is_floating_point() else 0
                torch.testing.assert_close(mine[name], wanted, rtol=4 * eps, atol=64 * eps, msg=str(name))


def raises_value_error(rank, x):
    if rank == 1:
        raise ValueError("no such thing")
    dist.all_reduce(x)


def returns_early(rank, x):
    if rank == 0:
        dist.all_reduce(x)


def calls_another(rank, x):
    if rank == 0:
        dist.all_reduce(x)
    else:
        dist.broadcast(x, 0)


def uses_a_group(_rank, x):
    dist.all_reduce(x, group=object())


def makes_a_group(_rank, _x):
    dist.new_group([0])


def sends(_rank, x):
    dist.send(x, 0)


def takes_a_bitwise_and(_rank, x):
    dist.all_reduce(x.long(), dist.ReduceOp.BAND)


MISTAKES = {
    returns_early: "rank 0 calls all_reduce, and rank 1 has returned",
    calls_another: "ranks call different collectives at the same time: rank 0 all_reduce, rank 1 broadcast",
    uses_a_group: "all_reduce is called with a process group; only the default one is there",
    makes_a_group: "torch.distributed.new_group cannot be used in a reference with several ranks",
    sends: "torch.distributed.send cannot be used in a reference with several ranks",
    takes_a_bitwise_and: "there are sums, averages, products, maxima and minima",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_run_ranks_mistake_has_its_own_error(mistake):
    with pytest.raises(RankError, match=MISTAKES[mistake]):
        run_ranks(lambda rank: mistake(rank, torch.ones(3)), 2)


def test_run_ranks_that_raises_error_is_passed_on():
    with pytest.raises(ValueError, match="no such thing"):
        run_ranks(lambda rank: raises_value_error(rank, torch.ones(3)), 2)


def test_default_group_is_known_by_its_name():
    def call(_rank):
        x = torch.ones(3)
        dist.all_reduce(x, group=dist.group.WORLD)
        group = dist.group.WORLD
        return x, (group.rank(), group.size(), dist.get_global_rank(group, 1), dist.get_process_group_ranks(group))

    for rank, (x, found) in enumerate(run_ranks(call, 2)):
        assert float(x[0]) == 2
        assert found == (rank, 2, 1, [0, 1])


def test_collective_outside_of_the_model_is_refused():
    with emulated_collectives(), pytest.raises(RankError, match="called outside of the model"):
        dist.all_reduce(torch.ones(3))


PROBLEM = """
import torch
import torch.distributed as dist
from torch import nn

class Model(nn.Module):
    def forward(self, x, y):
        dist.all_reduce(x)
        return x + y, {more}

def get_inputs():
    {draw}
    return [torch.full((2,), 1.0 + dist.get_rank()), torch.zeros({size})]
"""


def joint(more="y", draw="pass", size="2"):
    module = ModuleType("problem")
    exec(PROBLEM.format(more=more, draw=draw, size=size), vars(module))
    return with_all_ranks(module, 2)


def test_with_all_ranks_joins_inputs_and_outputs_in_order():
    module = joint()
    inputs = module.get_inputs()
    assert [float(tensor[0]) for tensor in inputs] == [1, 0, 2, 0]
    assert [float(tensor[0]) for tensor in module.Model()(*inputs)] == [3, 0, 3, 0]


def test_with_all_ranks_refuses_different_numbers_of_outputs():
    module = joint(more="*[y] * dist.get_rank()")
    with pytest.raises(RankError, match="different numbers of outputs"):
        module.Model()(*module.get_inputs())


def test_collective_in_get_inputs_is_refused():
    with pytest.raises(RankError, match="rank 0 calls barrier, and rank 1 draws its inputs at another time"):
        joint(draw="dist.barrier()").get_inputs()
