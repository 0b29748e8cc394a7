import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATION = "torch::Tensor soft_maximum(torch::Tensor x, torch::Tensor temperature);"

SOURCE = r"""
#include <cfloat>
#include <torch/extension.h>
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;

// The sum of exp(y) over some numbers y, as exp(largest) * total: it would overflow as it is.
template <typename Wide>
struct Powers {
  Wide largest;
  Wide total;
};

template <typename Wide>
__device__ Powers<Wide> joined(Powers<Wide> one, Powers<Wide> other) {
  const Wide largest = one.largest > other.largest ? one.largest : other.largest;
  return {largest, one.total * exp(one.largest - largest) + other.total * exp(other.largest - largest)};
}

template <typename T>
__global__ void soft_maximum_kernel(const T* x, const T* temperatures, T* out, int columns) {
  using Wide = at::opmath_type<T>;
  __shared__ Powers<Wide> partial[WARPS];
  const int64_t start = static_cast<int64_t>(blockIdx.x) * columns;
  const Wide temperature = static_cast<Wide>(temperatures[blockIdx.x]);
  // Finite, for the difference of two infinities is no number; a thread without elements has a total of zero.
  Powers<Wide> powers{static_cast<Wide>(-FLT_MAX), static_cast<Wide>(0)};
  for (int c = threadIdx.x; c < columns; c += THREADS) {
    powers = joined(powers, {static_cast<Wide>(x[start + c]) / temperature, static_cast<Wide>(1)});
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    const Wide largest = __shfl_xor_sync(0xffffffffu, powers.largest, offset);
    const Wide total = __shfl_xor_sync(0xffffffffu, powers.total, offset);
    powers = joined(powers, {largest, total});
  }
  if (threadIdx.x % 32 == 0) {
    partial[threadIdx.x / 32] = powers;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < WARPS; ++w) {
      powers = joined(powers, partial[w]);
    }
    out[blockIdx.x] = static_cast<T>(temperature * (powers.largest + log(powers.total)));
  }
}

torch::Tensor soft_maximum(torch::Tensor x, torch::Tensor temperature) {
  x = x.contiguous();
  temperature = temperature.contiguous();
  auto out = torch::empty({x.size(0)}, x.options());
  const auto rows = static_cast<unsigned>(x.size(0));
  const auto columns = static_cast<int>(x.size(1));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "soft_maximum", [&] {
    soft_maximum_kernel<scalar_t><<<rows, THREADS, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), temperature.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), columns);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""

extension = load_inline(
    name="soft_maximum_online", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["soft_maximum"]
)


class ModelNew(nn.Module):
    def forward(self, x, temperature):
        return extension.soft_maximum(x, temperature)
