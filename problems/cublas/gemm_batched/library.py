import ctypes

import torch
import torch.nn as nn

# The one that torch has loaded, found by its name.
CUBLAS = ctypes.CDLL(f"libcublas.so.{torch.version.cuda.split('.')[0]}") if torch.version.cuda else None
AS_STORED = 0


class ModelNew(nn.Module):
    """cublas<S|D>gemmBatched, with pointers to the matrices computed on the GPU."""

    def forward(self, a, b, left, right, c, alpha, beta):
        if c.is_cuda:
            return gemm_batched(a, b, left, right, c, alpha, beta)
        return c.baddbmm_(a[left], b[right], alpha=alpha, beta=beta)


def gemm_batched(a, b, left, right, c, alpha, beta):
    gemm, real = (
        (CUBLAS.cublasSgemmBatched, ctypes.c_float)
        if c.dtype is torch.float32
        else (CUBLAS.cublasDgemmBatched, ctypes.c_double)
    )
    count, m, n = c.shape
    k = a.shape[2]
    size = c.element_size()
    places = torch.arange(count, device=c.device) * (m * n * size) + c.data_ptr()
    firsts, seconds = left * (m * k * size) + a.data_ptr(), right * (k * n * size) + b.data_ptr()
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (seconds, firsts, places)]
    factors = [ctypes.byref(real(alpha)), ctypes.byref(real(beta))]
    # By columns, as cuBLAS reads them, these are the transposes: c.T = alpha * b.T @ a.T + beta * c.T.
    status = gemm(
        *(handle, AS_STORED, AS_STORED, n, m, k, factors[0], pointers[0], n, pointers[1], k),
        *(factors[1], pointers[2], n, count),
    )
    if status:
        raise RuntimeError(f"cublas<t>gemmBatched returned {status}")
    return c
