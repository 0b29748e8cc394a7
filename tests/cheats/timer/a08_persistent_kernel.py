"""A kernel that never ends does the work whenever a flag is raised; a call only raises the flag.

class: A8
expect: timeout
problem: relu
language: cuda
device: cuda
stopped-by: limits
"""

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

DECLARATION = "void start(torch::Tensor x, torch::Tensor out); void ask();"

SOURCE = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

static volatile int* flag = nullptr;

__global__ void relu_for_ever(const float* x, float* out, int64_t n, volatile int* flag) {
  while (true) {
    if (*flag) {
      for (int64_t i = threadIdx.x; i < n; i += blockDim.x) out[i] = fmaxf(x[i], 0.f);
      __threadfence_system();
      __syncthreads();
      if (threadIdx.x == 0) *flag = 0;
    }
  }
}

void start(torch::Tensor x, torch::Tensor out) {
  int* host;
  cudaHostAlloc(&host, sizeof(int), cudaHostAllocMapped);
  *host = 0;
  flag = host;
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  relu_for_ever<<<1, 256, 0, stream>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel(), host);
}

void ask() {
  *flag = 1;
}
"""

extension = load_inline(
    name="relu_persistent", cpp_sources=DECLARATION, cuda_sources=SOURCE, functions=["start", "ask"]
)


class ModelNew(nn.Module):
    out = None

    def forward(self, x):
        if self.out is None:
            self.out = torch.empty_like(x)
            extension.start(x, self.out)
        extension.ask()
        return self.out
