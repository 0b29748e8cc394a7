import torch
import torch.nn as nn


class ModelNew(nn.Module):
    """torch's product of 8-bit floats, which is cuBLASLt's or CUTLASS's: with the scales where it takes them."""

    def forward(self, a, b, scale_a, scale_b):
        dtype = scale_a.dtype
        a, b = a.view(torch.float8_e4m3fn), b.view(torch.float8_e4m3fn)
        scale_a, scale_b = scale_a.float(), scale_b.float()
        if a.is_cuda and dtype is torch.bfloat16:
            return torch._scaled_mm(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=dtype)
        one = torch.ones((), device=a.device)
        product = torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.float32)
        return (product * scale_a * scale_b).to(dtype)
