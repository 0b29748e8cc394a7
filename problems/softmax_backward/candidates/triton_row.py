import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_backward_kernel(gradients, probabilities, out, columns, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    inside = column < columns
    gradient = tl.load(gradients + start + column, mask=inside, other=0.0).to(WIDE)
    p = tl.load(probabilities + start + column, mask=inside, other=0.0).to(WIDE)
    tl.store(out + start + column, p * (gradient - tl.sum(gradient * p, axis=0)), mask=inside)


class ModelNew(nn.Module):
    def forward(self, gradient, p):
        gradient, p = gradient.contiguous(), p.contiguous()
        out = torch.empty_like(p)
        rows, columns = p.shape
        wide = tl.float64 if p.dtype == torch.float64 else tl.float32
        block = triton.next_power_of_2(columns)
        softmax_backward_kernel[(rows,)](gradient, p, out, columns, WIDE=wide, BLOCK=block, num_warps=8)
        return out
