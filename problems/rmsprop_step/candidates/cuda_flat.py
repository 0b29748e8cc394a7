import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATION = """
std::vector<torch::Tensor> rmsprop(
    torch::Tensor parameters, torch::Tensor gradients, torch::Tensor squares, torch::Tensor momenta,
    double learning_rate, double alpha, double momentum, double eps);
"""

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

template <typename T>
struct State {
  T* parameters;
  T* squares;
  T* momenta;
};

template <typename T>
__global__ void rmsprop_kernel(
    State<const T> old, const T* gradients, State<T> updated, int64_t n, at::opmath_type<T> learning_rate,
    at::opmath_type<T> alpha, at::opmath_type<T> momentum, at::opmath_type<T> eps) {
  using Wide = at::opmath_type<T>;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) {
    const Wide gradient = static_cast<Wide>(gradients[i]);
    const Wide square = alpha * static_cast<Wide>(old.squares[i]) + (1 - alpha) * gradient * gradient;
    const Wide moment = momentum * static_cast<Wide>(old.momenta[i]) + gradient / (sqrt(square) + eps);
    updated.parameters[i] = static_cast<T>(static_cast<Wide>(old.parameters[i]) - learning_rate * moment);
    updated.squares[i] = static_cast<T>(square);
    updated.momenta[i] = static_cast<T>(moment);
  }
}

std::vector<torch::Tensor> rmsprop(
    torch::Tensor parameters, torch::Tensor gradients, torch::Tensor squares, torch::Tensor momenta,
    double learning_rate, double alpha, double momentum, double eps) {
  parameters = parameters.contiguous();
  gradients = gradients.contiguous();
  squares = squares.contiguous();
  momenta = momenta.contiguous();
  auto new_parameters = torch::empty_like(parameters);
  auto new_squares = torch::empty_like(parameters);
  auto new_momenta = torch::empty_like(parameters);
  const int64_t n = parameters.numel();
  const int threads = 256;
  const auto blocks = static_cast<unsigned>((n + threads - 1) / threads);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, parameters.scalar_type(), "rmsprop", [&] {
    using Wide = at::opmath_type<scalar_t>;
    const State<const scalar_t> old{
        parameters.data_ptr<scalar_t>(), squares.data_ptr<scalar_t>(), momenta.data_ptr<scalar_t>()};
    const State<scalar_t> updated{
        new_parameters.data_ptr<scalar_t>(), new_squares.data_ptr<scalar_t>(), new_momenta.data_ptr<scalar_t>()};
    rmsprop_kernel<scalar_t><<<blocks, threads, 0, c10::cuda::getCurrentCUDAStream()>>>(
        old, gradients.data_ptr<scalar_t>(), updated, n, static_cast<Wide>(learning_rate), static_cast<Wide>(alpha),
        static_cast<Wide>(momentum), static_cast<Wide>(eps));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {new_parameters, new_squares, new_momenta};
}
"""

extension = load_inline(name="rmsprop_flat", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["rmsprop"])


class ModelNew(nn.Module):
    def __init__(self, learning_rate, alpha, momentum, eps):
        super().__init__()
        self.scalars = (learning_rate, alpha, momentum, eps)

    def forward(self, parameters, gradients, squares, momentum):
        return tuple(extension.rmsprop(parameters, gradients, squares, momentum, *self.scalars))
