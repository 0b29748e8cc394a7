"""The product is computed in memory that peers can read; each rank adds up its rows of all products."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl
from torch import nn

BLOCK = 2048


@triton.jit
def add_shares(addresses, out, start, numel, ranks: tl.constexpr, block: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = at < numel
    total = tl.zeros((block,), tl.float32)
    for rank in tl.static_range(ranks):
        peer = tl.load(addresses + rank).to(tl.pointer_type(out.dtype.element_ty))
        total += tl.load(peer + start + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


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

    def forward(self, x, w):
        ranks = dist.get_world_size()
        product, handle, peers = self.shared((x.shape[0], w.shape[1]), x.dtype, x.device)
        torch.mm(x, w, out=product)
        handle.barrier(channel=0)
        out = x.new_empty(x.shape[0] // ranks, w.shape[1])
        grid = (triton.cdiv(out.numel(), BLOCK),)
        add_shares[grid](peers, out, dist.get_rank() * out.numel(), out.numel(), ranks, BLOCK, num_warps=8)
        handle.barrier(channel=1)
        return out
