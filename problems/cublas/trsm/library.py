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
    """cublas<S|D>trsm."""

    def forward(self, a, b, alpha):
        if b.is_cuda:
            return trsm(a, b, alpha)
        return b.copy_(torch.linalg.solve_triangular(a, alpha * b, upper=False))


def trsm(a, b, alpha):
    solve, real = (
        (CUBLAS.cublasStrsm_v2, ctypes.c_float)
        if b.dtype is torch.float32
        else (CUBLAS.cublasDtrsm_v2, ctypes.c_double)
    )
    n, columns = b.shape
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (a, b)]
    # By columns, as cuBLAS reads them, these are the transposes: x.T @ tril(a).T = alpha * b.T.
    status = solve(
        *(handle, RIGHT, UPPER, AS_STORED, NOT_UNIT, columns, n, ctypes.byref(real(alpha))),
        *(pointers[0], n, pointers[1], columns),
    )
    if status:
        raise RuntimeError(f"cublas<t>trsm returned {status}")
    return b
