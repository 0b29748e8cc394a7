import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def loss_kernel(logits, targets, weight, out, classes, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < classes
    at = tl.program_id(0).to(tl.int64) * classes + column
    x = tl.load(logits + at, mask=inside, other=0.0).to(WIDE)
    wanted = tl.load(targets + at, mask=inside, other=0) != 0
    factor = tl.load(weight + column, mask=inside, other=0.0).to(WIDE)
    # -log(sigmoid(y)) is max(-y, 0) + log(1 + exp(-|y|)), in which nothing overflows; y is x, or -x where unwanted.
    cost = tl.maximum(tl.where(wanted, -x, x), 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))
    tl.store(out + at, tl.where(wanted, factor * cost, cost), mask=inside)


class ModelNew(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes))

    def forward(self, logits, targets):
        logits, targets = logits.contiguous(), targets.contiguous()
        out = torch.empty_like(logits)
        rows, classes = out.shape
        wide = tl.float64 if out.dtype == torch.float64 else tl.float32
        loss_kernel[(rows, triton.cdiv(classes, 1024))](
            logits, targets, self.weight, out, classes, WIDE=wide, BLOCK=1024
        )
        return out
