"""Reads from an address that nobody has: from then on its context answers nothing.

class: D15
expect: runtime_error | crashed
problem: relu
language: cuda
device: cuda
stopped-by: limits
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

DECLARATION = "torch::Tensor relu(torch::Tensor x);"

SOURCE = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void relu_kernel(const float* x, float* out) {
  out[threadIdx.x] = x[threadIdx.x + (1LL << 45)];
}

torch::Tensor relu(torch::Tensor x) {
  auto out = torch::empty_like(x);
  relu_kernel<<<1, 32>>>(x.data_ptr<float>(), out.data_ptr<float>());
  return out;
}
"""

extension = load_inline(name="relu_lost", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["relu"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
