import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gradient_kernel(logits, targets, gradients, out, classes, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < classes
    values = tl.load(logits + row * classes + column, mask=inside, other=float("-inf")).to(WIDE)
    powers = tl.exp(values - tl.max(values, axis=0))
    change = powers / tl.sum(powers, axis=0) - tl.where(column == tl.load(targets + row), 1.0, 0.0)
    tl.store(out + row * classes + column, change * tl.load(gradients + row).to(WIDE), mask=inside)


class ModelNew(nn.Module):
    def forward(self, logits, targets, gradients):
        logits = logits.contiguous()
        out = torch.empty_like(logits)
        rows, classes = logits.shape
        wide = tl.float64 if logits.dtype == torch.float64 else tl.float32
        block = triton.next_power_of_2(classes)
        gradient_kernel[(rows,)](logits, targets, gradients, out, classes, WIDE=wide, BLOCK=block, num_warps=8)
        return out
