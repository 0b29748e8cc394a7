import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cross_entropy_kernel(logits, targets, out, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    values = tl.load(logits + row * classes + column, mask=column < classes, other=float("-inf")).to(tl.float32)
    largest = tl.max(values, axis=0)
    log_sum = largest + tl.log(tl.sum(tl.exp(values - largest), axis=0))
    wanted = tl.load(logits + row * classes + tl.load(targets + row)).to(tl.float32)
    tl.store(out + row, log_sum - wanted)


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        logits = logits.contiguous()
        rows, classes = logits.shape
        out = torch.empty(rows, dtype=logits.dtype, device=logits.device)
        block = triton.next_power_of_2(classes)
        cross_entropy_kernel[(rows,)](logits, targets, out, classes, BLOCK=block, num_warps=8)
        return out
