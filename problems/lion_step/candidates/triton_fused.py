import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def lion_kernel(
    parameters, gradients, momenta, new_parameters, new_momenta, n, rate, beta1, beta2, kept, BLOCK: tl.constexpr
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    p = tl.load(parameters + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gradients + at, mask=inside, other=0.0).to(tl.float32)
    m = tl.load(momenta + at, mask=inside, other=0.0).to(tl.float32)
    blend = beta1 * m + (1.0 - beta1) * g
    step = tl.where(blend > 0, rate, tl.where(blend < 0, -rate, 0.0))
    tl.store(new_parameters + at, kept * p - step, mask=inside)
    tl.store(new_momenta + at, beta2 * m + (1.0 - beta2) * g, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, learning_rate, beta1, beta2, weight_decay):
        super().__init__()
        self.scalars = (learning_rate, beta1, beta2, 1 - learning_rate * weight_decay)

    def forward(self, parameters, gradients, momentum):
        inputs = [tensor.contiguous() for tensor in (parameters, gradients, momentum)]
        outputs = [torch.empty_like(inputs[0]) for _ in range(2)]
        n = inputs[0].numel()
        lion_kernel[(triton.cdiv(n, 1024),)](*inputs, *outputs, n, *self.scalars, BLOCK=1024)
        return tuple(outputs)
