import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rmsprop_kernel(
    parameters,
    gradients,
    squares,
    momenta,
    new_parameters,
    new_squares,
    new_momenta,
    n,
    learning_rate,
    alpha,
    momentum,
    eps,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    p = tl.load(parameters + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gradients + at, mask=inside, other=0.0).to(tl.float32)
    s = alpha * tl.load(squares + at, mask=inside, other=1.0).to(tl.float32) + (1.0 - alpha) * g * g
    m = momentum * tl.load(momenta + at, mask=inside, other=0.0).to(tl.float32) + g / (tl.sqrt(s) + eps)
    tl.store(new_parameters + at, p - learning_rate * m, mask=inside)
    tl.store(new_squares + at, s, mask=inside)
    tl.store(new_momenta + at, m, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, learning_rate, alpha, momentum, eps):
        super().__init__()
        self.scalars = (learning_rate, alpha, momentum, eps)

    def forward(self, parameters, gradients, squares, momentum):
        inputs = [tensor.contiguous() for tensor in (parameters, gradients, squares, momentum)]
        outputs = [torch.empty_like(inputs[0]) for _ in range(3)]
        n = inputs[0].numel()
        rmsprop_kernel[(triton.cdiv(n, 1024),)](*inputs, *outputs, n, *self.scalars, BLOCK=1024)
        return tuple(outputs)
