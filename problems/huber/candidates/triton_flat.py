import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def huber_kernel(predictions, targets, out, n, DELTA: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    prediction = tl.load(predictions + at, mask=inside, other=0.0).to(WIDE)
    apart = tl.abs(prediction - tl.load(targets + at, mask=inside, other=0.0).to(WIDE))
    loss = tl.where(apart < DELTA, 0.5 * apart * apart, DELTA * (apart - 0.5 * DELTA))
    tl.store(out + at, loss, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, delta):
        super().__init__()
        self.delta = delta

    def forward(self, predictions, targets):
        predictions, targets = predictions.contiguous(), targets.contiguous()
        out = torch.empty_like(predictions)
        n = out.numel()
        wide = tl.float64 if out.dtype == torch.float64 else tl.float32
        huber_kernel[(triton.cdiv(n, 1024),)](predictions, targets, out, n, DELTA=self.delta, WIDE=wide, BLOCK=1024)
        return out
