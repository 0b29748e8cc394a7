import ctypes

import torch
import torch.nn as nn

# The one that torch has loaded, found by its name.
CUBLAS = ctypes.CDLL(f"libcublas.so.{torch.version.cuda.split('.')[0]}") if torch.version.cuda else None
RESULT_ON_HOST = 0
RESULT_ON_GPU = 1


class ModelNew(nn.Module):
    """cublas<S|D>asum, row by row."""

    def forward(self, x):
        if x.is_cuda:
            return asum(x)
        return x.abs().sum(dim=-1)


def asum(x):
    add = CUBLAS.cublasSasum_v2 if x.dtype is torch.float32 else CUBLAS.cublasDasum_v2
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    statuses = [CUBLAS.cublasSetPointerMode_v2(handle, RESULT_ON_GPU)]
    for row, place in zip(x, out):
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (row, place)]
        statuses.append(add(handle, x.shape[1], pointers[0], 1, pointers[1]))
    statuses.append(CUBLAS.cublasSetPointerMode_v2(handle, RESULT_ON_HOST))
    if any(statuses):
        raise RuntimeError(f"cublas<t>asum returned {statuses}")
    return out
