"""One kernel adds up a row of all ranks, read through peer memory, and normalizes it."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl
from torch import nn


@triton.jit
def add_and_normalize(addresses, weight, out, columns, eps, ranks: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, block)
    inside = column < columns
    total = tl.zeros((block,), tl.float32)
    for rank in tl.static_range(ranks):
        peer = tl.load(addresses + rank).to(tl.pointer_type(out.dtype.element_ty))
        total += tl.load(peer + row * columns + column, mask=inside, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(total * total, 0) / columns + eps)
    scaled = total * scale * tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * columns + column, scaled.to(out.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps
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
        buffer, handle, peers = self.shared(x.shape, x.dtype, x.device)
        buffer.copy_(x)
        handle.barrier(channel=0)
        out = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        add_and_normalize[(rows,)](peers, self.weight, out, columns, self.eps, ranks, block, num_warps=16)
        handle.barrier(channel=1)
        return out
