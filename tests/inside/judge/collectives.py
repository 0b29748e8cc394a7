"""Collectives that a reference may call, each as the code of one rank; run as a script, by the real ranks of gloo.

``python collectives.py RANKS FOLDER`` writes what each rank gets to ``FOLDER/<rank>.pt``.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64)
OPS = ("SUM", "PRODUCT", "MAX", "MIN")


def numbers(dtype, *shape):
    """Numbers of this rank."""
    generator = torch.Generator().manual_seed(dist.get_rank())
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * 8).to(dtype)


def all_reduce(dtype, op):
    x = numbers(dtype, 7, 5)
    dist.all_reduce(x, getattr(dist.ReduceOp, op))
    return x


def all_reduce_average(dtype):
    x = numbers(dtype, 35)
    dist.all_reduce(x, op=dist.ReduceOp.AVG)
    return x


def all_reduce_later(dtype):
    x = numbers(dtype, 35)
    dist.all_reduce(x, async_op=True).wait()
    return x


def reduce(dtype):
    x = numbers(dtype, 7, 5)
    dist.reduce(x, 1)
    return x if dist.get_rank() == 1 else x.new_zeros(1)  # elsewhere it is undefined


def broadcast(dtype):
    x, y = numbers(dtype, 7, 5), numbers(dtype, 3)
    dist.broadcast(x, 1)
    dist.broadcast(y, group_src=1)
    return torch.cat([x.flatten(), y])


def all_gather(dtype):
    x = numbers(dtype, 7, 5)
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return torch.stack(parts)


def all_gather_into_tensor(dtype):
    x = numbers(dtype, 7, 5)
    whole = x.new_empty(7 * dist.get_world_size(), 5)
    dist.all_gather_into_tensor(whole, x)
    return whole


def all_gather_single(dtype):
    x = numbers(dtype, 7, 5)
    whole = x.new_empty(7 * dist.get_world_size(), 5)
    getattr(dist, "all_gather_single", dist.all_gather_into_tensor)(whole, x)
    return whole


def reduce_scatter(dtype):
    share = numbers(dtype, 4, 5)
    dist.reduce_scatter(share, list(numbers(dtype, dist.get_world_size(), 4, 5)))
    return share


def reduce_scatter_tensor(dtype):
    share = numbers(dtype, 4, 5)
    dist.reduce_scatter_tensor(share, numbers(dtype, 4 * dist.get_world_size(), 5))
    return share


def reduce_scatter_single(dtype):
    share = numbers(dtype, 4, 5)
    call = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    call(share, numbers(dtype, 4 * dist.get_world_size(), 5), op=dist.ReduceOp.MAX)
    return share


def all_to_all(dtype):
    given = list(numbers(dtype, dist.get_world_size(), 4, 5))
    taken = [torch.empty_like(one) for one in given]
    dist.all_to_all(taken, given)
    return torch.stack(taken)


def all_to_all_single(dtype):
    x = numbers(dtype, 4 * dist.get_world_size(), 5)
    taken = torch.empty_like(x)
    dist.all_to_all_single(taken, x)
    return taken


def all_to_all_single_with_sizes(dtype):
    """Rank ``r`` sends ``r + to + 1`` rows to each rank."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    sizes = [rank + other + 1 for other in range(ranks)]
    x = numbers(dtype, sum(sizes), 5)
    taken = torch.empty_like(x)
    dist.all_to_all_single(taken, x, sizes, sizes)
    return taken


def barrier(dtype):
    dist.barrier()
    return numbers(dtype, 1)


PLAIN = (
    *(all_reduce_later, reduce, broadcast, all_gather, all_gather_into_tensor, reduce_scatter, reduce_scatter_tensor),
    *(all_gather_single, reduce_scatter_single, all_to_all, all_to_all_single, all_to_all_single_with_sizes, barrier),
)


def results():
    """Run every collective in every dtype; return what this rank gets, by name."""
    found = {(f.__name__, str(dtype)): f(dtype) for f in PLAIN for dtype in DTYPES}
    found |= {(f"all_reduce {op}", str(dtype)): all_reduce(dtype, op) for op in OPS for dtype in DTYPES}
    floating = [dtype for dtype in DTYPES if dtype.is_floating_point]
    return found | {("all_reduce_average", str(dtype)): all_reduce_average(dtype) for dtype in floating}


def main(ranks, folder):
    """Fork a process per rank, and wait for all."""
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            store = dist.FileStore(f"{folder}/store", ranks)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
            torch.save(results(), folder / f"{rank}.pt")
            dist.barrier()
            dist.destroy_process_group()
            os._exit(0)
        children.append(child)
    return max(os.waitpid(child, 0)[1] for child in children)


if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2])) != 0)
