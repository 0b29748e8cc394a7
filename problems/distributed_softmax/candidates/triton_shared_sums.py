"""Ranks read only the maximum and the sum of each row from their peers."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl
from torch import nn


@triton.jit
def sum_rows(x, sums, rows, columns, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    values = tl.load(x + row * columns + column, mask=column < columns, other=-float("inf")).to(tl.float32)
    top = tl.max(values, 0)
    tl.store(sums + row, top)
    tl.store(sums + rows + row, tl.sum(tl.exp(values - top), 0))


@triton.jit
def divide_rows(x, addresses, out, rows, columns, ranks: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    top = -float("inf")
    for rank in tl.static_range(ranks):
        peer = tl.load(addresses + rank).to(tl.pointer_type(tl.float32))
        top = tl.maximum(top, tl.load(peer + row))
    total = 0.0
    for rank in tl.static_range(ranks):
        peer = tl.load(addresses + rank).to(tl.pointer_type(tl.float32))
        total += tl.load(peer + rows + row) * tl.exp(tl.load(peer + row) - top)
    values = tl.load(x + row * columns + column, mask=column < columns, other=0.0).to(tl.float32)
    values = tl.exp(values - top) / total
    tl.store(out + row * columns + column, values.to(out.dtype.element_ty), mask=column < columns)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffers_of = {}

    def shared(self, shape, dtype, device):
        """Return memory that peers can read, its handle, and the addresses of all ranks' memory."""
        key = (tuple(shape), dtype)
        if key not in self.buffers_of:
            buffer = symm_mem.empty(shape, dtype=dtype, device=device)
            handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
            peers = torch.tensor(handle.buffer_ptrs, dtype=torch.int64, device=device)
            self.buffers_of[key] = (buffer, handle, peers)
        return self.buffers_of[key]

    def forward(self, x):
        ranks, (rows, columns) = dist.get_world_size(), x.shape
        sums, handle, peers = self.shared((2, rows), torch.float32, x.device)
        block = triton.next_power_of_2(columns)
        sum_rows[(rows,)](x, sums, rows, columns, block, num_warps=8)
        handle.barrier(channel=0)
        out = torch.empty_like(x)
        divide_rows[(rows,)](x, peers, out, rows, columns, ranks, block, num_warps=8)
        handle.barrier(channel=1)
        return out
