import ctypes

import torch
import torch.nn as nn

# The one that torch has loaded, found by its name.
CUBLAS = ctypes.CDLL(f"libcublas.so.{torch.version.cuda.split('.')[0]}") if torch.version.cuda else None


class ModelNew(nn.Module):
    """cublas<S|D>ger."""

    def forward(self, a, x, y, alpha):
        if a.is_cuda:
            return ger(a, x, y, alpha)
        return a.addr_(x, y, alpha=alpha)


def ger(a, x, y, alpha):
    update, real = (
        (CUBLAS.cublasSger_v2, ctypes.c_float) if a.dtype is torch.float32 else (CUBLAS.cublasDger_v2, ctypes.c_double)
    )
    m, n = a.shape
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (y, x, a)]
    # By columns, as cuBLAS reads it, a is its transpose: a.T += alpha * y x^T.
    status = update(handle, n, m, ctypes.byref(real(alpha)), pointers[0], 1, pointers[1], 1, pointers[2], n)
    if status:
        raise RuntimeError(f"cublas<t>ger returned {status}")
    return a
