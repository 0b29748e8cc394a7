import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DECLARATION = """
std::vector<torch::Tensor> rotary(
    torch::Tensor q, torch::Tensor k, torch::Tensor cosine, torch::Tensor sine, double factor);
"""

SOURCE = r"""
#include <torch/extension.h>
#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

// Turns all heads of one token; cosine and sine point at the angles of its position.
template <typename T>
__device__ void turn(
    const T* x, T* out, const T* cosine, const T* sine, int heads, int half, at::opmath_type<T> factor) {
  using Wide = at::opmath_type<T>;
  for (int pair = threadIdx.x; pair < heads * half; pair += blockDim.x) {
    const int feature = pair % half;
    const int at = pair / half * 2 * half + feature;
    const Wide left = static_cast<Wide>(x[at]);
    const Wide right = static_cast<Wide>(x[at + half]);
    const Wide c = static_cast<Wide>(cosine[feature]);
    const Wide s = static_cast<Wide>(sine[feature]);
    out[at] = static_cast<T>((left * c - right * s) * factor);
    out[at + half] = static_cast<T>((right * c + left * s) * factor);
  }
}

template <typename T>
__global__ void rotary_kernel(
    const T* q, const T* k, const T* cosine, const T* sine, T* new_q, T* new_k, int length, int heads, int shared,
    int half, at::opmath_type<T> factor) {
  const int64_t token = blockIdx.x;
  const int64_t angle = token % length * half;
  const int64_t of_q = token * heads * 2 * half;
  const int64_t of_k = token * shared * 2 * half;
  turn(q + of_q, new_q + of_q, cosine + angle, sine + angle, heads, half, factor);
  turn(k + of_k, new_k + of_k, cosine + angle, sine + angle, shared, half, static_cast<at::opmath_type<T>>(1));
}

std::vector<torch::Tensor> rotary(
    torch::Tensor q, torch::Tensor k, torch::Tensor cosine, torch::Tensor sine, double factor) {
  q = q.contiguous();
  k = k.contiguous();
  cosine = cosine.contiguous();
  sine = sine.contiguous();
  auto new_q = torch::empty_like(q);
  auto new_k = torch::empty_like(k);
  const auto tokens = static_cast<unsigned>(q.size(0) * q.size(1));
  const auto length = static_cast<int>(q.size(1));
  const auto heads = static_cast<int>(q.size(2));
  const auto shared = static_cast<int>(k.size(2));
  const auto half = static_cast<int>(q.size(3) / 2);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, q.scalar_type(), "rotary", [&] {
    rotary_kernel<scalar_t><<<tokens, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        q.data_ptr<scalar_t>(), k.data_ptr<scalar_t>(), cosine.data_ptr<scalar_t>(), sine.data_ptr<scalar_t>(),
        new_q.data_ptr<scalar_t>(), new_k.data_ptr<scalar_t>(), length, heads, shared, half,
        static_cast<at::opmath_type<scalar_t>>(factor));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {new_q, new_k};
}
"""

extension = load_inline(name="rotary_scale_token", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["rotary"])


class ModelNew(nn.Module):
    def forward(self, q, k, cosine, sine):
        return tuple(extension.rotary(q, k, cosine, sine, q.shape[-1] ** -0.5))
