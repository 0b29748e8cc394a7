import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gather_kernel(table, indices, out, features, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    feature = tl.arange(0, BLOCK)
    inside = feature < features
    row = tl.load(indices + token)
    tl.store(out + token * features + feature, tl.load(table + row * features + feature, mask=inside), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, rows, features):
        super().__init__()
        self.table = nn.Embedding(rows, features)

    def forward(self, indices):
        table = self.table.weight
        features = table.shape[1]
        out = torch.empty(*indices.shape, features, dtype=table.dtype, device=table.device)
        gather_kernel[(indices.numel(),)](table, indices, out, features, BLOCK=triton.next_power_of_2(features))
        return out
