import ctypes

import torch
import torch.nn as nn

# The one that torch has loaded, found by its name.
CUBLAS = ctypes.CDLL(f"libcublas.so.{torch.version.cuda.split('.')[0]}") if torch.version.cuda else None
UPPER = 1
TRANSPOSED = 1


class ModelNew(nn.Module):
    """cublas<S|D>syrk."""

    def forward(self, a, c, alpha, beta):
        if c.is_cuda:
            return syrk(a, c, alpha, beta)
        return c.copy_((alpha * (a @ a.T) + beta * c).tril() + c.triu(1))


def syrk(a, c, alpha, beta):
    update, real = (
        (CUBLAS.cublasSsyrk_v2, ctypes.c_float)
        if c.dtype is torch.float32
        else (CUBLAS.cublasDsyrk_v2, ctypes.c_double)
    )
    n, k = a.shape
    factors = [ctypes.byref(real(alpha)), ctypes.byref(real(beta))]
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (a, c)]
    # By columns, as cuBLAS reads them, these are the transposes, of which c's upper triangle is asked for.
    status = update(handle, UPPER, TRANSPOSED, n, k, factors[0], pointers[0], k, factors[1], pointers[1], n)
    if status:
        raise RuntimeError(f"cublas<t>syrk returned {status}")
    return c
