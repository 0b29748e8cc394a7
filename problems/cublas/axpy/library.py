import ctypes

import torch
import torch.nn as nn

# The one that torch has loaded, found by its name.
CUBLAS = ctypes.CDLL(f"libcublas.so.{torch.version.cuda.split('.')[0]}") if torch.version.cuda else None


class ModelNew(nn.Module):
    """cublas<S|D>axpy."""

    def forward(self, x, y, alpha):
        if y.is_cuda:
            return axpy(x, y, alpha)
        return y.add_(x, alpha=alpha)


def axpy(x, y, alpha):
    add, real = (
        (CUBLAS.cublasSaxpy_v2, ctypes.c_float)
        if y.dtype is torch.float32
        else (CUBLAS.cublasDaxpy_v2, ctypes.c_double)
    )
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, y)]
    status = add(handle, y.numel(), ctypes.byref(real(alpha)), pointers[0], 1, pointers[1], 1)
    if status:
        raise RuntimeError(f"cublas<t>axpy returned {status}")
    return y
