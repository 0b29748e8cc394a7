"""Honest: a CUDA kernel of its own does all of the work.

class: control
problem: relu
language: cuda
device: cuda
"""

from torch import nn
from torch.utils.cpp_extension import load_inline

DECLARATION = "torch::Tensor relu(torch::Tensor x);"

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

__global__ void relu_kernel(const float* x, float* out, int64_t n) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) out[i] = fmaxf(x[i], 0.f);
}

torch::Tensor relu(torch::Tensor x) {
  auto out = torch::empty_like(x);
  const int64_t n = out.numel();
  relu_kernel<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), out.data_ptr<float>(), n);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""

extension = load_inline(name="relu_honest", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["relu"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.relu(x)
