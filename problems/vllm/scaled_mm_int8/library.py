import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """torch's product of 8-bit integers, which is cuBLASLt's; the scales after it."""

    def forward(self, a, b, scale_a, scale_b):
        wide = torch.promote_types(scale_a.dtype, torch.float32)
        return (torch._int_mm(a, b).to(wide) * scale_a.to(wide) * scale_b.to(wide)).to(scale_a.dtype)
