import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATION = "torch::Tensor polynomial(torch::Tensor x, std::vector<double> coefficients);"

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

constexpr int MOST = 16;

// Handed to the kernel by value, so that nothing has to be copied to the device beforehand.
struct Coefficients {
  double values[MOST];
  int count;
};

template <typename T>
__global__ void polynomial_kernel(const T* x, T* out, int64_t n, Coefficients coefficients) {
  using Wide = at::opmath_type<T>;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) {
    const Wide value = static_cast<Wide>(x[i]);
    Wide result = static_cast<Wide>(0);
    for (int k = 0; k < coefficients.count; ++k) {
      result = result * value + static_cast<Wide>(coefficients.values[k]);
    }
    out[i] = static_cast<T>(result);
  }
}

torch::Tensor polynomial(torch::Tensor x, std::vector<double> coefficients) {
  TORCH_CHECK(coefficients.size() <= MOST, "at most ", MOST, " coefficients");
  Coefficients handed{};
  handed.count = static_cast<int>(coefficients.size());
  std::copy(coefficients.begin(), coefficients.end(), handed.values);
  x = x.contiguous();
  auto out = torch::empty_like(x);
  const int64_t n = out.numel();
  const int threads = 256;
  const auto blocks = static_cast<unsigned>((n + threads - 1) / threads);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "polynomial", [&] {
    polynomial_kernel<scalar_t><<<blocks, threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), n, handed);
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}
"""

extension = load_inline(name="polynomial_flat", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["polynomial"])


class ModelNew(nn.Module):
    def __init__(self, coefficients):
        super().__init__()
        self.coefficients = [float(coefficient) for coefficient in coefficients]

    def forward(self, x):
        return extension.polynomial(x, self.coefficients)
