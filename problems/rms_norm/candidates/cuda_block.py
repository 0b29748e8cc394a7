import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATION = "torch::Tensor rms_norm(torch::Tensor x, torch::Tensor weight, double eps);"

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

__device__ float sum_over_warp(float value) {
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  return value;
}

__global__ void rms_norm_kernel(const float* x, const float* weight, float* out, int columns, float eps) {
  __shared__ float partial[WARPS];
  const int64_t start = static_cast<int64_t>(blockIdx.x) * columns;
  float squares = 0.0f;
  for (int c = threadIdx.x; c < columns; c += THREADS) {
    squares += x[start + c] * x[start + c];
  }
  squares = sum_over_warp(squares);
  if (threadIdx.x % 32 == 0) {
    partial[threadIdx.x / 32] = squares;
  }
  __syncthreads();
  float total = 0.0f;
  for (int w = 0; w < WARPS; ++w) {
    total += partial[w];
  }
  const float scale = rsqrtf(total / columns + eps);
  for (int c = threadIdx.x; c < columns; c += THREADS) {
    out[start + c] = x[start + c] * scale * weight[c];
  }
}

torch::Tensor rms_norm(torch::Tensor x, torch::Tensor weight, double eps) {
  TORCH_CHECK(x.scalar_type() == torch::kFloat32, "this kernel computes in single precision only");
  x = x.contiguous();
  auto out = torch::empty_like(x);
  const auto rows = static_cast<unsigned>(x.size(0));
  const auto columns = static_cast<int>(x.size(1));
  rms_norm_kernel<<<rows, THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.data_ptr<float>(), weight.data_ptr<float>(), out.data_ptr<float>(), columns, static_cast<float>(eps));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""

extension = load_inline(name="rms_norm_block", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["rms_norm"])


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features))
        self.eps = eps

    def forward(self, x):
        return extension.rms_norm(x, self.weight, self.eps)
