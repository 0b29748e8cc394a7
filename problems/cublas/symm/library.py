import ctypes

import torch
import torch.nn as nn

# The one that torch has loaded, found by its name.
CUBLAS = ctypes.CDLL(f"libcublas.so.{torch.version.cuda.split('.')[0]}") if torch.version.cuda else None
RIGHT = 1
UPPER = 1


class ModelNew(nn.Module):
    """cublas<S|D>symm."""

    def forward(self, a, b, c, alpha, beta):
        if c.is_cuda:
            return symm(a, b, c, alpha, beta)
        return c.addmm_(a.tril() + a.tril(-1).T, b, alpha=alpha, beta=beta)


def symm(a, b, c, alpha, beta):
    multiply, real = (
        (CUBLAS.cublasSsymm_v2, ctypes.c_float)
        if c.dtype is torch.float32
        else (CUBLAS.cublasDsymm_v2, ctypes.c_double)
    )
    m, n = c.shape
    factors = [ctypes.byref(real(alpha)), ctypes.byref(real(beta))]
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (a, b, c)]
    # By columns, as cuBLAS reads them, these are the transposes: c.T = alpha * b.T @ a + beta * c.T.
    status = multiply(
        *(handle, RIGHT, UPPER, n, m, factors[0], pointers[0], m, pointers[1], n),
        *(factors[1], pointers[2], n),
    )
    if status:
        raise RuntimeError(f"cublas<t>symm returned {status}")
    return c
