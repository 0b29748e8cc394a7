import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_and_normalize_kernel(
    branch, stream, weight, normalized, total, columns, EPS: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr
):
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    inside = column < columns
    row = tl.load(stream + start + column, mask=inside, other=0.0).to(WIDE)
    row += tl.load(branch + start + column, mask=inside, other=0.0).to(WIDE)
    tl.store(total + start + column, row, mask=inside)
    # The sum goes on from registers: it is written once and never read again.
    scale = tl.load(weight + column, mask=inside, other=0.0).to(WIDE)
    mean_square = tl.sum(row * row, axis=0) / columns
    tl.store(normalized + start + column, row / tl.sqrt(mean_square + EPS) * scale, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features))
        self.eps = eps

    def forward(self, branch, stream):
        branch, stream = branch.contiguous(), stream.contiguous()
        normalized, total = torch.empty_like(stream), torch.empty_like(stream)
        rows, columns = stream.shape
        wide = tl.float64 if stream.dtype == torch.float64 else tl.float32
        block = triton.next_power_of_2(columns)
        add_and_normalize_kernel[(rows,)](
            branch, stream, self.weight, normalized, total, columns, EPS=self.eps, WIDE=wide, BLOCK=block, num_warps=8
        )
        return normalized, total
