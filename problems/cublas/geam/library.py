import ctypes

import torch
import torch.nn as nn

# The one that torch has loaded, found by its name.
CUBLAS = ctypes.CDLL(f"libcublas.so.{torch.version.cuda.split('.')[0]}") if torch.version.cuda else None
AS_STORED = 0
TRANSPOSED = 1


class ModelNew(nn.Module):
    """cublas<S|D>geam."""

    def forward(self, a, b, alpha, beta):
        if b.is_cuda:
            return geam(a, b, alpha, beta)
        return (beta * b).add_(a, alpha=alpha)


def geam(a, b, alpha, beta):
    add, real = (
        (CUBLAS.cublasSgeam, ctypes.c_float) if b.dtype is torch.float32 else (CUBLAS.cublasDgeam, ctypes.c_double)
    )
    m, n = b.shape
    out = torch.empty_like(b)
    factors = [ctypes.byref(real(alpha)), ctypes.byref(real(beta))]
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (a, b, out)]
    # By columns, as cuBLAS reads them, b and out are their transposes, and a is what it is.
    status = add(
        *(handle, TRANSPOSED, AS_STORED, n, m, factors[0], pointers[0], m),
        *(factors[1], pointers[1], n, pointers[2], n),
    )
    if status:
        raise RuntimeError(f"cublas<t>geam returned {status}")
    return out
