import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATION = """
std::vector<torch::Tensor> add_and_normalize(
    torch::Tensor branch, torch::Tensor stream, torch::Tensor weight, double eps);
"""

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

// The sum of all threads' values, known to each of them; to be called once in a kernel.
template <typename Wide>
__device__ Wide sum_over_block(Wide value) {
  __shared__ Wide partial[WARPS];
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  if (threadIdx.x % 32 == 0) {
    partial[threadIdx.x / 32] = value;
  }
  __syncthreads();
  Wide total = static_cast<Wide>(0);
  for (int w = 0; w < WARPS; ++w) {
    total += partial[w];
  }
  return total;
}

template <typename T>
__global__ void add_and_normalize_kernel(
    const T* branch, const T* stream, const T* weight, T* normalized, T* total, int columns,
    at::opmath_type<T> eps) {
  using Wide = at::opmath_type<T>;
  const int64_t start = static_cast<int64_t>(blockIdx.x) * columns;
  Wide squares = static_cast<Wide>(0);
  for (int c = threadIdx.x; c < columns; c += THREADS) {
    const Wide sum = static_cast<Wide>(stream[start + c]) + static_cast<Wide>(branch[start + c]);
    total[start + c] = static_cast<T>(sum);
    squares += sum * sum;
  }
  const Wide scale = static_cast<Wide>(1) / sqrt(sum_over_block(squares) / columns + eps);
  // Each thread reads what it wrote itself, which is still in the cache.
  for (int c = threadIdx.x; c < columns; c += THREADS) {
    const Wide sum = static_cast<Wide>(total[start + c]);
    normalized[start + c] = static_cast<T>(sum * scale * static_cast<Wide>(weight[c]));
  }
}

std::vector<torch::Tensor> add_and_normalize(
    torch::Tensor branch, torch::Tensor stream, torch::Tensor weight, double eps) {
  branch = branch.contiguous();
  stream = stream.contiguous();
  auto normalized = torch::empty_like(stream);
  auto total = torch::empty_like(stream);
  const auto rows = static_cast<unsigned>(stream.size(0));
  const auto columns = static_cast<int>(stream.size(1));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, stream.scalar_type(), "add_and_normalize", [&] {
    add_and_normalize_kernel<scalar_t><<<rows, THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        branch.data_ptr<scalar_t>(), stream.data_ptr<scalar_t>(), weight.data_ptr<scalar_t>(),
        normalized.data_ptr<scalar_t>(), total.data_ptr<scalar_t>(), columns,
        static_cast<at::opmath_type<scalar_t>>(eps));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {normalized, total};
}
"""

extension = load_inline(
    name="residual_rms_norm_block", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["add_and_normalize"]
)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features))
        self.eps = eps

    def forward(self, branch, stream):
        return tuple(extension.add_and_normalize(branch, stream, self.weight, self.eps))
