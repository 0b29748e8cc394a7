"""cuBLAS as its manual has it, over memory of the CPU: matrices by columns, pointers, enumerations as numbers.

An instance stands in for the loaded library: ``CublasByColumns().cublasSscal_v2(handle, n, alpha, x, 1)``.
"""

# ruff: noqa: PLR0917  # the library's routines take what they take

import ctypes
import re

import numpy as np

HOST, DEVICE = 0, 1
LEFT, RIGHT = 0, 1
LOWER, UPPER = 0, 1
NON_UNIT = 0

_NAME = re.compile(r"cublas(?P<index>I?)(?P<letter>[SDsd])(?P<routine>[a-zA-Z0-9]+?)(?P<version>_v2)?\Z")
_UNVERSIONED = {"geam", "dgmm", "gemmBatched"}
"""Routines that have a single precision."""


class CublasByColumns:
    """Python versions of the routines that the libraries of the suite call, in both precisions."""

    def __init__(self):
        self.pointer_mode = HOST
        self.called = []

    def cublasSetPointerMode_v2(self, _handle, mode):  # noqa: N802  # the library's own name
        self.pointer_mode = mode
        return 0

    def __getattr__(self, name):
        found = _NAME.match(name)
        if found is None or bool(found["version"]) == (found["routine"] in _UNVERSIONED):
            raise AttributeError(name)
        routine = getattr(self, f"_{found['index'].lower()}{found['routine']}")
        real = ctypes.c_float if found["letter"].upper() == "S" else ctypes.c_double

        def call(handle, *arguments):
            assert isinstance(handle, ctypes.c_void_p)
            self.called.append(name)
            routine(real, *arguments)
            return 0

        return call

    def _axpy(self, real, n, alpha, x, incx, y, incy):
        _vector(real, y, n, incy)[:] += _number(real, alpha) * _vector(real, x, n, incx)

    def _scal(self, real, n, alpha, x, incx):
        _vector(real, x, n, incx)[:] *= _number(real, alpha)

    def _rot(self, real, n, x, incx, y, incy, cosine, sine):
        one, other = _vector(real, x, n, incx), _vector(real, y, n, incy)
        c, s = _number(real, cosine), _number(real, sine)
        one[:], other[:] = c * one + s * other, c * other - s * one

    def _nrm2(self, real, n, x, incx, result):
        self._result(real, result)[0] = np.linalg.norm(_vector(real, x, n, incx))

    def _asum(self, real, n, x, incx, result):
        self._result(real, result)[0] = np.abs(_vector(real, x, n, incx)).sum()

    def _iamax(self, real, n, x, incx, result):
        self._result(ctypes.c_int, result)[0] = np.abs(_vector(real, x, n, incx)).argmax() + 1

    def _ger(self, real, m, n, alpha, x, incx, y, incy, a, lda):
        outer = np.outer(_vector(real, x, m, incx), _vector(real, y, n, incy))
        _matrix(real, a, m, n, lda)[:] += _number(real, alpha) * outer

    def _dgmm(self, real, mode, m, n, a, lda, x, incx, c, ldc):
        numbers = _vector(real, x, m if mode == LEFT else n, incx)
        scale = numbers[:, None] if mode == LEFT else numbers
        _matrix(real, c, m, n, ldc)[:] = _matrix(real, a, m, n, lda) * scale

    def _geam(self, real, transa, transb, m, n, alpha, a, lda, beta, b, ldb, c, ldc):
        one = _number(real, alpha) * _operand(real, a, transa, m, n, lda)
        _matrix(real, c, m, n, ldc)[:] = one + _number(real, beta) * _operand(real, b, transb, m, n, ldb)

    def _gemmBatched(self, real, transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, count):  # noqa: N802
        pointers = [_vector(ctypes.c_int64, places, count, 1).tolist() for places in (a, b, c)]
        for at_a, at_b, at_c in zip(*pointers, strict=True):
            product = _operand(real, at_a, transa, m, k, lda) @ _operand(real, at_b, transb, k, n, ldb)
            out = _matrix(real, at_c, m, n, ldc)
            out[:] = _number(real, alpha) * product + _number(real, beta) * out

    def _syrk(self, real, uplo, trans, n, k, alpha, a, lda, beta, c, ldc):
        factor = _operand(real, a, trans, n, k, lda)
        out = _matrix(real, c, n, n, ldc)
        new = _number(real, alpha) * (factor @ factor.T) + _number(real, beta) * out
        asked = np.tri(n, dtype=bool) if uplo == LOWER else np.tri(n, dtype=bool).T
        out[asked] = new[asked]

    def _symm(self, real, side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc):
        order = m if side == LEFT else n
        half = _triangle(_matrix(real, a, order, order, lda), uplo)
        whole = half + half.T - np.diag(np.diag(half))
        other, out = _matrix(real, b, m, n, ldb), _matrix(real, c, m, n, ldc)
        product = whole @ other if side == LEFT else other @ whole
        out[:] = _number(real, alpha) * product + _number(real, beta) * out

    def _trmm(self, real, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb, c, ldc):
        triangle, other = self._triangular(real, side, uplo, trans, diag, m, n, a, lda), _matrix(real, b, m, n, ldb)
        product = triangle @ other if side == LEFT else other @ triangle
        _matrix(real, c, m, n, ldc)[:] = _number(real, alpha) * product

    def _trsm(self, real, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb):
        triangle, out = self._triangular(real, side, uplo, trans, diag, m, n, a, lda), _matrix(real, b, m, n, ldb)
        right = _number(real, alpha) * out
        out[:] = np.linalg.solve(triangle, right) if side == LEFT else np.linalg.solve(triangle.T, right.T).T

    @staticmethod
    def _triangular(real, side, uplo, trans, diag, m, n, a, lda):
        assert diag == NON_UNIT
        order = m if side == LEFT else n
        half = _triangle(_matrix(real, a, order, order, lda), uplo)
        return half.T if trans else half

    def _result(self, real, place):
        assert self.pointer_mode == DEVICE, "a result that is waited for on the host"
        return _vector(real, place, 1, 1)


def _number(real, pointer):
    """Read a factor in the precision of the routine through a pointer to host memory."""
    assert isinstance(pointer._obj, real)
    return pointer._obj.value


def _vector(real, pointer, count, step):
    address = pointer.value if isinstance(pointer, ctypes.c_void_p) else pointer
    return np.ctypeslib.as_array((real * ((count - 1) * step + 1)).from_address(address))[::step]


def _matrix(real, pointer, rows, columns, leading):
    """View memory as a matrix of ``rows`` by ``columns``; columns start ``leading`` elements apart."""
    assert leading >= rows
    flat = _vector(real, pointer, (columns - 1) * leading + rows, 1)
    steps = (flat.itemsize, leading * flat.itemsize)
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), steps)


def _operand(real, pointer, transposed, rows, columns, leading):
    if transposed:
        return _matrix(real, pointer, columns, rows, leading).T
    return _matrix(real, pointer, rows, columns, leading)


def _triangle(matrix, uplo):
    return np.tril(matrix) if uplo == LOWER else np.triu(matrix)
