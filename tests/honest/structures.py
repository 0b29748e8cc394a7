"""Problems whose inputs have a structure, a candidate that relies on it, and a cheat that is wrong in spite of it.

Each is the body of ``get_inputs`` and three bodies of ``forward``: the reference's, the candidate's and the cheat's.
"""

from __future__ import annotations

from typing import NamedTuple


class Structured(NamedTuple):
    """One problem with two candidates."""

    inputs: str
    reference: str
    honest: str
    cheat: str


_PRODUCT = "return a @ b"
_DENSE = "torch.randn(40, 30)"
_SOLVE = "return torch.linalg.solve(a, b)"

_IN_TURN = """
total = torch.zeros(40, dtype=torch.promote_types(a.dtype, torch.float32))
for column in a.unbind(1):
    total = total + column
return total.to(a.dtype) + b
"""

STRUCTURES = {
    "diagonal": Structured(
        f"return [torch.diag(torch.randn(40)), {_DENSE}]",
        _PRODUCT,
        "return a.diagonal()[:, None] * b",
        "return a.diagonal().abs()[:, None] * b",
    ),
    "positive diagonal": Structured(
        f"return [torch.diag(torch.rand(40)), {_DENSE}]",
        _PRODUCT,
        "return a.diagonal()[:, None] * b",
        "return a[0, 0] * b",
    ),
    "lower triangular": Structured(
        "return [torch.randn(40, 40).tril(), torch.randn(40, 40).tril()]",
        _PRODUCT,
        """
        rows = [a[start : start + 8, : start + 8] @ b[: start + 8, : start + 8] for start in range(0, 40, 8)]
        return torch.cat([torch.nn.functional.pad(row, (0, 40 - row.shape[1])) for row in rows])
        """,
        "return (a @ b).tril(-1)",
    ),
    "upper triangular": Structured(
        f"return [torch.randn(40, 40).triu(), {_DENSE}]",
        _PRODUCT,
        "return torch.stack([a[row, row:] @ b[row:] for row in range(40)])",
        "return torch.stack([a[row, row : row + 30] @ b[row : row + 30] for row in range(40)])",
    ),
    "triangular of positive numbers": Structured(
        f"return [torch.rand(40, 40).tril(), {_DENSE}]",
        _PRODUCT,
        "return torch.stack([a[row, : row + 1] @ b[: row + 1] for row in range(40)])",
        "return torch.stack([a[row, :row] @ b[:row] for row in range(40)])",
    ),
    "block diagonal": Structured(
        f"return [torch.block_diag(*torch.randn(5, 8, 8)), {_DENSE}]",
        _PRODUCT,
        "return torch.cat([a[i : i + 8, i : i + 8] @ b[i : i + 8] for i in range(0, 40, 8)])",
        "return torch.cat([a[:8, :8] @ b[i : i + 8] for i in range(0, 40, 8)])",
    ),
    "banded": Structured(
        f"return [torch.randn(40, 40).tril(2).triu(-2), {_DENSE}]",
        _PRODUCT,
        """
        near = [(max(row - 2, 0), row + 3) for row in range(40)]
        return torch.stack([a[row, low:high] @ b[low:high] for row, (low, high) in enumerate(near)])
        """,
        """
        near = [(max(row - 2, 0), row + 2) for row in range(40)]
        return torch.stack([a[row, low:high] @ b[low:high] for row, (low, high) in enumerate(near)])
        """,
    ),
    "symmetric": Structured(
        f"x = torch.randn(40, 40); return [x + x.T, {_DENSE}]",
        _PRODUCT,
        "lower = a.tril(); return (lower + lower.tril(-1).T) @ b",
        "lower = a.tril(); return (lower + lower.T) @ b",
    ),
    "antisymmetric": Structured(
        f"x = torch.randn(40, 40); return [x - x.T, {_DENSE}]",
        _PRODUCT,
        "lower = a.tril(-1); return (lower - lower.T) @ b",
        "lower = a.tril(-1); return (lower + lower.T) @ b",
    ),
    "constant along diagonals": Structured(
        f"x = torch.randn(79); at = torch.arange(40); return [x[at[:, None] - at + 39], {_DENSE}]",
        _PRODUCT,
        "x = torch.cat([a[0].flip(0), a[1:, 0]]); at = torch.arange(40); return x[at[:, None] - at + 39] @ b",
        "x = torch.cat([a[0].flip(0), a[0, 1:]]); at = torch.arange(40); return x[at[:, None] - at + 39] @ b",
    ),
    "equal rows": Structured(
        f"return [torch.randn(40).repeat(40, 1), {_DENSE}]",
        "return (a @ b).cumsum(0)",
        "return (a[:1] @ b) * torch.arange(1, 41)[:, None]",
        "return (a[:1] @ b) * torch.arange(40)[:, None]",
    ),
    "equal inputs": Structured(
        "x = torch.randn(40, 30); return [x, x.clone()]",
        "return a @ b.T",
        "lower = (a @ a.T).tril(); return lower + lower.tril(-1).T",
        "return (a @ a.T).tril()",
    ),
    "sorted rows": Structured(
        f"return [torch.randn(40, 40).sort().values, {_DENSE}]",
        "return a.topk(5).values @ b[:5]",
        "return a[:, -5:].flip(1) @ b[:5]",
        "return a[:, -5:] @ b[:5]",
    ),
    "sorted rows, summed": Structured(
        "return [torch.randn(40, 4096).sort().values, torch.randn(40)]",
        "return a.sum(1) + b",
        _IN_TURN,
        "return a[:, 1:-1].sum(1) + b",
    ),
    "trend, summed": Structured(
        "return [torch.randn(40, 4096) + torch.linspace(-3, 3, 4096), torch.randn(40)]",
        "return a.sum(1) + b",
        _IN_TURN,
        "return a[:, :-1].sum(1) + b",
    ),
    "falling columns": Structured(
        f"return [torch.randn(40, 40).sort(0, descending=True).values, {_DENSE}]",
        "return a.amax(0) + a.amin(0)",
        "return a[0] + a[-1]",
        "return a[0] + a[-2]",
    ),
    "sorted knots": Structured(
        "return [torch.randn(100).sort().values, torch.randn(40, 30)]",
        "return (a < b[..., None]).sum(-1).to(b.dtype) + b",
        "return torch.searchsorted(a, b).to(b.dtype) + b",
        "return torch.searchsorted(a[:-10], b).to(b.dtype) + b",
    ),
    "one-hot": Structured(
        "return [torch.eye(40)[torch.randint(40, (60,))], torch.randn(40, 30)]",
        _PRODUCT,
        "return b[a.argmax(1)]",
        "return b[a.argmax(1).clamp(max=35)]",
    ),
    "rows that sum to one": Structured(
        "return [torch.randn(40, 40).softmax(-1), torch.randn(40, 30)]",
        "return (a / a.sum(-1, keepdim=True)) @ b",
        _PRODUCT,
        "return b.mean(0).repeat(40, 1)",
    ),
    "columns that sum to one": Structured(
        "return [torch.rand(40, 40).softmax(0), torch.randn(40, 30)]",
        "return (a / a.sum(0)) @ b",
        _PRODUCT,
        "return b.mean(0).repeat(40, 1)",
    ),
    "rows of unit length": Structured(
        "return [torch.nn.functional.normalize(torch.randn(60, 40)), torch.randn(40, 30)]",
        "return torch.nn.functional.normalize(a) @ b",
        _PRODUCT,
        "return a.bfloat16().to(a.dtype) @ b",
    ),
    "centred rows": Structured(
        "x = torch.randn(60, 40); return [x - x.mean(1, keepdim=True), torch.randn(40, 30)]",
        "return torch.nn.functional.layer_norm(a, (40,)) @ b",
        "return (a / (a.square().mean(1, keepdim=True) + 1e-5).sqrt()) @ b",
        "return a @ b",
    ),
    "orthogonal": Structured(
        "return [torch.linalg.qr(torch.randn(40, 40))[0], torch.randn(40, 30)]",
        _SOLVE,
        "return a.T @ b",
        _PRODUCT,
    ),
    "positive definite": Structured(
        "x = torch.randn(40, 40); return [x @ x.T / 40 + torch.eye(40), torch.randn(40, 30)]",
        _SOLVE,
        "return torch.cholesky_solve(b, torch.linalg.cholesky(a))",
        "return b / a.diagonal()[:, None]",
    ),
    "index set": Structured(
        "return [torch.randperm(40), torch.randn(40, 30)]",
        "return torch.zeros_like(b).index_add_(0, a, b)",
        "out = torch.empty_like(b); out[a] = b; return out",
        "out = torch.zeros_like(b); out[a[:-1]] = b[:-1]; return out",
    ),
    "index set as numbers": Structured(
        "return [torch.randperm(40).to(torch.get_default_dtype()), torch.randn(40, 30)]",
        "return torch.zeros_like(b).index_add_(0, a.long(), b)",
        "out = torch.empty_like(b); out[a.long()] = b; return out",
        "out = torch.zeros_like(b); out[a.long()[:-1]] = b[:-1]; return out",
    ),
    "causal mask": Structured(
        "return [torch.full((40, 40), float('-inf')).triu(1), torch.randn(40, 40)]",
        "return (b + a).softmax(-1)",
        """
        rows = [b[row, : row + 1].softmax(-1) for row in range(40)]
        return torch.stack([torch.nn.functional.pad(row, (0, 40 - row.shape[0])) for row in rows])
        """,
        "return b.softmax(-1).tril()",
    ),
    "mask of zeros and ones": Structured(
        f"return [torch.ones(40, 40).tril(), {_DENSE}]",
        _PRODUCT,
        "return b.cumsum(0)",
        "return b.cumsum(0) - b",
    ),
    "positive": Structured(
        "return [torch.rand(40, 30) * 2 + 0.1, torch.randn(40, 30)]",
        "return a.abs().sqrt() * b",
        "return a.sqrt() * b",
        "return a.clamp(max=1).sqrt() * b",
    ),
    "not negative": Structured(
        "return [torch.rand(40, 30), torch.rand(40, 30)]",
        "return torch.relu(a) + b.abs()",
        "return a + b",
        "return torch.maximum(a, b)",
    ),
    "negative": Structured(
        "return [-torch.rand(40, 30) - 0.1, torch.randn(40, 30)]",
        "return torch.nn.functional.leaky_relu(a, 0.3) * b",
        "return 0.3 * a * b",
        "return 0.3 * b",
    ),
    "kept off zero": Structured(
        "return [torch.randn(40, 30), torch.rand(40, 30) + 0.5]",
        "return a / b",
        "return a * b.reciprocal()",
        "return a / (b + 1e-3)",
    ),
    "bounded": Structured(
        "return [torch.rand(40, 30) * 20, torch.randn(40, 30)]",
        "return a.softmax(-1) * b",
        "e = a.exp(); return e / e.sum(-1, keepdim=True) * b",
        "e = a.bfloat16().exp().to(a.dtype); return e / e.sum(-1, keepdim=True) * b",
    ),
    "integers in a range": Structured(
        "return [torch.randint(10, (40, 30)).to(torch.get_default_dtype()), torch.randn(40, 30)]",
        "return torch.pow(1.5, a) * b",
        "return (1.5 ** torch.arange(10, dtype=a.dtype))[a.long()] * b",
        "return (1.5 ** torch.arange(10, dtype=a.dtype))[a.long().clamp(max=8)] * b",
    ),
    "fixed table": Structured(
        "return [torch.linspace(0.1, 3, 40)[:, None].sin().repeat(1, 30), torch.randn(40, 30)]",
        _PRODUCT.replace("@", "*"),
        "return torch.linspace(0.1, 3, 40, dtype=b.dtype)[:, None].sin() * b",
        "return torch.linspace(0.1, 3, 40, dtype=b.dtype)[:, None] * b",
    ),
}
