"""Every rank reads its heads of all tokens through peer memory."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl
from torch import nn


@triton.jit
def pull_heads(addresses, out, tokens, share, rank, ranks: tl.constexpr, block: tl.constexpr):
    row, start = tl.program_id(0).to(tl.int64), tl.program_id(1) * block
    source, token = row // tokens, row % tokens
    at = start + tl.arange(0, block)
    peer = tl.load(addresses + source).to(tl.pointer_type(out.dtype.element_ty))
    values = tl.load(peer + (token * ranks + rank) * share + at, mask=at < share)
    tl.store(out + row * share + at, values, mask=at < share)


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
        ranks, (tokens, heads, width) = dist.get_world_size(), x.shape
        buffer, handle, peers = self.shared(x.shape, x.dtype, x.device)
        buffer.copy_(x)
        handle.barrier(channel=0)
        out = x.new_empty(ranks * tokens, heads // ranks, width)
        share = heads // ranks * width
        block = min(triton.next_power_of_2(share), 4096)
        grid = (ranks * tokens, triton.cdiv(share, block))
        pull_heads[grid](peers, out, tokens, share, dist.get_rank(), ranks, block)
        handle.barrier(channel=1)
        return out
