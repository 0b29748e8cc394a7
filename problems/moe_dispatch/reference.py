import torch
import torch.distributed as dist
from torch import nn

TOKENS = 8192
HIDDEN = 4096
EXPERTS = 8


class Model(nn.Module):
    """Each token goes to the rank that has its expert; each expert gets equally many tokens of each rank.

    ``order`` has the tokens of the first expert first. Returned are the tokens of this rank's experts.
    """

    def __init__(self, experts):
        super().__init__()
        self.experts = experts

    def forward(self, x, order):
        ranks = dist.get_world_size()
        sent = x[order]
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        by_rank = received.view(ranks, self.experts // ranks, -1, x.shape[1])
        return by_rank.transpose(0, 1).reshape(self.experts // ranks, -1, x.shape[1])


def get_inputs():
    return [torch.randn(TOKENS, HIDDEN), torch.randperm(TOKENS)]


def get_init_inputs():
    return [EXPERTS]
