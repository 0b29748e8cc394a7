import torch
import torch.nn as nn

TOKENS = 65536
CHOSEN = 8
EXPERTS = 128
BLOCK = 64


class Model(nn.Module):
    """(rows, owners, length), all int32, of the choices (tokens, chosen) of experts.

    rows: places in the flat choices, those of one expert together and in rising order, each expert's filled up to a
    multiple of block with the number of choices, which is no place; the same beyond length. owners: the expert of each
    block of rows, -1 beyond length. length: one number, how much of rows is in use.
    """

    def forward(self, choices, experts, block):
        flat = choices.flatten().long()
        total = flat.numel()
        size = total + experts * (block - 1)
        counts = torch.zeros(experts, dtype=torch.int64, device=flat.device)
        counts.scatter_add_(0, flat, torch.ones_like(flat))
        padded = (counts + block - 1) // block * block
        ends = padded.cumsum(0)
        order = flat.argsort(stable=True)
        expert = flat[order]
        within = torch.arange(total, device=flat.device) - (counts.cumsum(0) - counts)[expert]
        rows = torch.full((size,), total, dtype=torch.int32, device=flat.device)
        rows[(ends - padded)[expert] + within] = order.int()
        starts = torch.arange(-(-size // block), device=flat.device) * block
        owners = torch.searchsorted(ends, starts, right=True)
        owners = torch.where(starts < ends[-1], owners, -1)
        return rows, owners.int(), ends[-1:].int()


def get_inputs():
    # Some experts are liked better than others, and no token names one twice.
    liked = torch.rand(EXPERTS) + 0.1
    return [torch.multinomial(liked.expand(TOKENS, EXPERTS), CHOSEN).int(), EXPERTS, BLOCK]


def get_init_inputs():
    return []
