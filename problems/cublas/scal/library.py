import ctypes

import torch
import torch.nn as nn

# The one that torch has loaded, found by its name.
CUBLAS = ctypes.CDLL(f"libcublas.so.{torch.version.cuda.split('.')[0]}") if torch.version.cuda else None


class ModelNew(nn.Module):
    """cublas<S|D>scal."""

    def forward(self, x, alpha):
        if x.is_cuda:
            return scal(x, alpha)
        return x.mul_(alpha)


def scal(x, alpha):
    scale, real = (
        (CUBLAS.cublasSscal_v2, ctypes.c_float)
        if x.dtype is torch.float32
        else (CUBLAS.cublasDscal_v2, ctypes.c_double)
    )
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x,)]
    status = scale(handle, x.numel(), ctypes.byref(real(alpha)), pointers[0], 1)
    if status:
        raise RuntimeError(f"cublas<t>scal returned {status}")
    return x
