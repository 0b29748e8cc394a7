import torch
import torch.nn as nn

BITS = 30


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.columns = columns

    def forward(self, lows, widths):
        wide = torch.promote_types(lows.dtype, torch.float32)
        whole = torch.randint(1 << BITS, (lows.shape[0], self.columns), device=lows.device)
        return (lows + widths * (whole.to(wide) / (1 << BITS))).to(lows.dtype)
