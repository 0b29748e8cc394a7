import ctypes

import torch
import torch.nn as nn

# The one that torch has loaded, found by its name.
CUBLAS = ctypes.CDLL(f"libcublas.so.{torch.version.cuda.split('.')[0]}") if torch.version.cuda else None
LEFT = 0


class ModelNew(nn.Module):
    """cublas<S|D>dgmm."""

    def forward(self, a, x):
        if a.is_cuda:
            return dgmm(a, x)
        return a * x


def dgmm(a, x):
    scale = CUBLAS.cublasSdgmm if a.dtype is torch.float32 else CUBLAS.cublasDdgmm
    m, n = a.shape
    out = torch.empty_like(a)
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (a, x, out)]
    # By columns, as cuBLAS reads them, a and out are their transposes: out.T = diag(x) @ a.T.
    status = scale(handle, LEFT, n, m, pointers[0], n, pointers[1], 1, pointers[2], n)
    if status:
        raise RuntimeError(f"cublas<t>dgmm returned {status}")
    return out
