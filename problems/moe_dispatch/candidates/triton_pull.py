"""Every rank reads the tokens of its experts through peer memory, by their sender's order."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl
from torch import nn


@triton.jit
def pull_tokens(tokens, orders, out, share, first, width, block: tl.constexpr, ranks: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    expert, slot = row // (ranks * share), row % (ranks * share)
    source, place = slot // share, slot % share
    order = tl.load(orders + source).to(tl.pointer_type(tl.int64))
    token = tl.load(order + (first + expert) * share + place)
    peer = tl.load(tokens + source).to(tl.pointer_type(out.dtype.element_ty))
    column = tl.arange(0, block)
    values = tl.load(peer + token * width + column, mask=column < width)
    tl.store(out + row * width + column, values, mask=column < width)


class ModelNew(nn.Module):
    def __init__(self, experts):
        super().__init__()
        self.experts = experts
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

    def forward(self, x, order):
        ranks, (count, width) = dist.get_world_size(), x.shape
        tokens, handle, token_peers = self.shared(x.shape, x.dtype, x.device)
        orders, _, order_peers = self.shared(order.shape, order.dtype, order.device)
        tokens.copy_(x)
        orders.copy_(order)
        handle.barrier(channel=0)
        own, share = self.experts // ranks, count // self.experts
        out = x.new_empty(own, ranks * share, width)
        block = triton.next_power_of_2(width)
        grid = (own * ranks * share,)
        pull_tokens[grid](token_peers, order_peers, out, share, dist.get_rank() * own, width, block, ranks)
        handle.barrier(channel=1)
        return out
