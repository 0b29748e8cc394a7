"""Ranks read targets, and then three numbers per token, from their peers."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl
from torch import nn

BLOCK = 4096


@triton.jit
def sum_classes(logits, addresses, found, rank, tokens, share, width, block: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    top, total = -float("inf"), 0.0
    for start in range(0, width, block):
        at = start + tl.arange(0, block)
        values = tl.load(logits + token * width + at, mask=at < width, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, tl.max(values, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(values - higher), 0)
        top = higher
    targets = tl.load(addresses + token // share).to(tl.pointer_type(tl.int64))
    place = tl.load(targets + token % share) - rank * width
    own = (place >= 0) & (place < width)
    tl.store(found + token, top)
    tl.store(found + tokens + token, total)
    tl.store(found + 2 * tokens + token, tl.load(logits + token * width + place, mask=own, other=0.0).to(tl.float32))


@triton.jit
def join_losses(addresses, out, tokens, ranks: tl.constexpr, block: tl.constexpr):
    token = tl.program_id(0) * block + tl.arange(0, block)
    inside = token < tokens
    top = tl.full((block,), -float("inf"), tl.float32)
    for rank in tl.static_range(ranks):
        peer = tl.load(addresses + rank).to(tl.pointer_type(tl.float32))
        top = tl.maximum(top, tl.load(peer + token, mask=inside, other=0.0))
    total = tl.zeros((block,), tl.float32)
    picked = tl.zeros((block,), tl.float32)
    for rank in tl.static_range(ranks):
        peer = tl.load(addresses + rank).to(tl.pointer_type(tl.float32))
        scale = tl.exp(tl.load(peer + token, mask=inside, other=0.0) - top)
        total += scale * tl.load(peer + tokens + token, mask=inside, other=1.0)
        picked += tl.load(peer + 2 * tokens + token, mask=inside, other=0.0)
    tl.store(out + token, (tl.log(total) + top - picked).to(out.dtype.element_ty), mask=inside)


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

    def forward(self, logits, targets):
        ranks, (tokens, width) = dist.get_world_size(), logits.shape
        mine, target_handle, target_peers = self.shared(targets.shape, targets.dtype, targets.device)
        found, handle, peers = self.shared((3, tokens), torch.float32, logits.device)
        mine.copy_(targets)
        target_handle.barrier(channel=0)
        block = min(triton.next_power_of_2(width), BLOCK)
        rank, share = dist.get_rank(), len(targets)
        sum_classes[(tokens,)](logits, target_peers, found, rank, tokens, share, width, block, num_warps=8)
        handle.barrier(channel=1)  # also after it, no peer reads targets
        out = logits.new_empty(tokens)
        join_losses[(triton.cdiv(tokens, 256),)](peers, out, tokens, ranks, 256)
        handle.barrier(channel=2)
        return out
