import torch
import torch.nn as nn


def quantize(x, dim=-1):
    """Whole numbers from -127 to 127, held as float32, where sums of 1040 products are exact; and their scales."""
    scale = x.float().abs().amax(dim=dim, keepdim=True).clamp_min(1e-30) / 127
    return torch.round(x.float() / scale), scale


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        queries, query_scale = quantize(q)
        keys, key_scale = quantize(k)
        values, value_scale = quantize(v, dim=-2)
        scores = (queries @ keys.mT) * query_scale * key_scale.mT * q.shape[-1] ** -0.5
        chances, chance_scale = quantize(torch.softmax(scores, dim=-1))
        return ((chances @ values) * chance_scale * value_scale).to(q.dtype)
