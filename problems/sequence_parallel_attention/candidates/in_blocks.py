"""Keys and values of one rank after the other are sent to all, with a running softmax."""

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        top, total, out = q.new_full((*q.shape[:2], 1), -torch.inf).float(), 0, 0
        for rank in range(dist.get_world_size()):
            block = torch.stack([k, v])
            dist.broadcast(block, rank)
            keys, values = block.float().unbind(0)
            scores = q.float() @ keys.mT / q.shape[-1] ** 0.5
            higher = torch.maximum(top, scores.amax(-1, keepdim=True))
            kept, powers = (top - higher).exp(), (scores - higher).exp()
            top, total, out = higher, total * kept + powers.sum(-1, keepdim=True), out * kept + powers @ values
        return (out / total).to(q.dtype)
