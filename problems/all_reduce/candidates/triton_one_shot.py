"""Every rank reads the vectors of all ranks through peer memory, and adds them up: one step, for short vectors."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl
from torch import nn

BLOCK = 2048


@triton.jit
def add_peers(addresses, out, numel, ranks: tl.constexpr, block: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < numel
    total = tl.zeros((block,), tl.float32)
    for rank in tl.static_range(ranks):
        peer = tl.load(addresses + rank).to(tl.pointer_type(out.dtype.element_ty))
        total += tl.load(peer + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffers_of = {}

    def shared(self, x):
        key = (x.numel(), x.dtype)
        if key not in self.buffers_of:
            buffer = symm_mem.empty(x.numel(), dtype=x.dtype, device=x.device)
            handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
            peers = torch.tensor(handle.buffer_ptrs, dtype=torch.int64, device=x.device)
            self.buffers_of[key] = (buffer, handle, peers)
        return self.buffers_of[key]

    def forward(self, x):
        buffer, handle, peers = self.shared(x)
        buffer.copy_(x.view(-1))
        handle.barrier(channel=0)
        out = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), BLOCK),)
        add_peers[grid](peers, out, x.numel(), dist.get_world_size(), BLOCK, num_warps=8)
        handle.barrier(channel=1)
        return out
