"""Ranks gather one logarithm of a sum per token, and the logit of its target."""

import torch
import torch.distributed as dist
from torch import nn


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        ranks, width = dist.get_world_size(), logits.shape[1]
        every = [torch.empty_like(targets) for _ in range(ranks)]
        dist.all_gather(every, targets)
        place = torch.cat(every) - dist.get_rank() * width
        wide = logits.double()
        picked = wide.gather(1, place.clamp(0, width - 1)[:, None])[:, 0]
        picked[(place < 0) | (place >= width)] = -torch.inf
        own = torch.stack([torch.logsumexp(wide, dim=1), picked])
        found = [torch.empty_like(own) for _ in range(ranks)]
        dist.all_gather(found, own)
        sums, targets_of = torch.stack(found).unbind(1)
        return (torch.logsumexp(sums, dim=0) - targets_of.amax(0)).to(logits.dtype)
