import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def adamw_kernel(
    parameters,
    gradients,
    first,
    second,
    new_parameters,
    new_first,
    new_second,
    n,
    learning_rate,
    beta1,
    beta2,
    eps,
    kept,
    correction1,
    correction2,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    g = tl.load(gradients + at, mask=inside, other=0.0).to(tl.float32)
    m = tl.load(first + at, mask=inside, other=0.0).to(tl.float32)
    v = tl.load(second + at, mask=inside, other=1.0).to(tl.float32)
    p = tl.load(parameters + at, mask=inside, other=0.0).to(tl.float32)
    m = beta1 * m + (1.0 - beta1) * g
    v = beta2 * v + (1.0 - beta2) * g * g
    direction = (m / correction1) / (tl.sqrt(v / correction2) + eps)
    tl.store(new_parameters + at, kept * p - learning_rate * direction, mask=inside)
    tl.store(new_first + at, m, mask=inside)
    tl.store(new_second + at, v, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, learning_rate, beta1, beta2, eps, weight_decay, step):
        super().__init__()
        kept = 1 - learning_rate * weight_decay
        self.scalars = (learning_rate, beta1, beta2, eps, kept, 1 - beta1**step, 1 - beta2**step)

    def forward(self, parameters, gradients, first, second):
        inputs = [t.contiguous() for t in (parameters, gradients, first, second)]
        outputs = [torch.empty_like(inputs[0]) for _ in range(3)]
        n = inputs[0].numel()
        adamw_kernel[(triton.cdiv(n, 1024),)](*inputs, *outputs, n, *self.scalars, BLOCK=1024)
        return tuple(outputs)
