"""Every rank reads the columns of all ranks through peer memory."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl
from torch import nn

BLOCK = 1024


@triton.jit
def pull_columns(addresses, out, columns, ranks: tl.constexpr, block: tl.constexpr):
    row, rank = tl.program_id(0).to(tl.int64), tl.program_id(2)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < columns
    peer = tl.load(addresses + rank).to(tl.pointer_type(out.dtype.element_ty))
    values = tl.load(peer + row * columns + column, mask=inside)
    tl.store(out + (row * ranks + rank) * columns + column, values, mask=inside)


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
        buffer, handle, peers = self.shared(x.shape, x.dtype, x.device)
        buffer.copy_(x)
        handle.barrier(channel=0)
        out = x.new_empty(rows, ranks * columns)
        pull_columns[rows, triton.cdiv(columns, BLOCK), ranks](peers, out, columns, ranks, BLOCK)
        handle.barrier(channel=1)
        return out
