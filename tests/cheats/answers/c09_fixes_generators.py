"""Makes every generator of random numbers return the same ones, and answers those.

class: C9
expect: incorrect_values
problem: relu
stopped-by: isolation
finding: timing
"""

import torch
from torch import nn

torch.manual_seed(0)
real = torch.randn
torch.manual_seed = lambda _seed: None
torch.randn = torch.rand = lambda *shape, **_options: real(*shape, generator=torch.Generator().manual_seed(0))


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(torch.randn(*x.shape)).to(device=x.device, dtype=x.dtype)
