import ctypes

import torch
import torch.nn as nn

# The one that torch has loaded, found by its name.
CUBLAS = ctypes.CDLL(f"libcublas.so.{torch.version.cuda.split('.')[0]}") if torch.version.cuda else None
RIGHT = 1
UPPER = 1
AS_STORED = 0
NOT_UNIT = 0


class ModelNew(nn.Module):
    """cublas<S|D>trmm."""

    def forward(self, a, b, alpha):
        if b.is_cuda:
            return trmm(a, b, alpha)
        return alpha * (a.tril() @ b)


def trmm(a, b, alpha):
    multiply, real = (
        (CUBLAS.cublasStrmm_v2, ctypes.c_float)
        if b.dtype is torch.float32
        else (CUBLAS.cublasDtrmm_v2, ctypes.c_double)
    )
    n, columns = b.shape
    out = torch.empty_like(b)
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (a, b, out)]
    # By columns, as cuBLAS reads them, these are the transposes: out.T = alpha * b.T @ tril(a).T.
    status = multiply(
        *(handle, RIGHT, UPPER, AS_STORED, NOT_UNIT, columns, n, ctypes.byref(real(alpha))),
        *(pointers[0], n, pointers[1], columns, pointers[2], columns),
    )
    if status:
        raise RuntimeError(f"cublas<t>trmm returned {status}")
    return out
