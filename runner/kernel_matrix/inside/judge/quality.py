"""Quality of a quantised output as a whole: cosine, relative L1, RMSE and SNR.

Rows and columns are scaled to equal size before sums are taken, since a few large ones would otherwise dominate. A
quantisation scale that fits only those sets the others to zero, and this must be visible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import List, Mapping, Optional, Sequence

import torch

from kernel_matrix.model.messages import ContractSpec

SNR_CEILING = 300.0  # SNR of an answer without any error, decibels; more than float64 rounding allows

FEWEST = 16  # shorter rows and columns are not scaled, since their size would be that of single elements


@dataclass(frozen=True)
class Quality:
    """One output compared with the reference, after scaling both by the reference's rows and columns."""

    cosine: float
    """Cosine of the angle between the two as vectors."""
    relative_l1: float
    """Sum of absolute errors ÷ sum of absolute expected values."""
    rmse: float
    """Root mean square error ÷ root mean square of the expected values."""
    snr_db: float
    """Signal to noise: ``-20 log10(rmse)``, decibels."""


def measure_quality(got: torch.Tensor, expected: torch.Tensor) -> Quality:
    """Return the quality of ``got``, the worst possible if it has numbers that are not finite."""
    have, wanted = (_as_rows(t) for t in (got, expected))
    for dim in (1, 0):
        if wanted.shape[dim] >= FEWEST:
            size = _size(wanted, dim)
            have, wanted = have / size, wanted / size
    error = have - wanted
    norms = [torch.linalg.vector_norm(t) for t in (have, wanted, error)]
    sums = [error.abs().sum(), wanted.abs().sum(), (have * wanted).sum()]
    numbers: List[float] = torch.stack([*norms, *sums]).tolist()
    have_norm, wanted_norm, error_norm, l1, wanted_l1, dot = numbers
    if not math.isfinite(error_norm) or not wanted_norm:
        return Quality(cosine=-1.0, relative_l1=math.inf, rmse=math.inf, snr_db=-math.inf)
    rmse = error_norm / wanted_norm
    return Quality(
        cosine=dot / (have_norm * wanted_norm) if have_norm else 0.0,
        relative_l1=l1 / wanted_l1,
        rmse=rmse,
        snr_db=min(SNR_CEILING, -20 * math.log10(rmse)) if rmse else SNR_CEILING,
    )


def breach(contract: ContractSpec, quality: Quality) -> Optional[str]:
    """Describe which threshold of the contract ``quality`` misses; None if it meets all."""
    floors = (("cosine", quality.cosine, contract.cosine_min), ("SNR", quality.snr_db, contract.snr_db_min))
    ceilings = (
        ("relative L1", quality.relative_l1, contract.relative_l1_max),
        ("RMSE", quality.rmse, contract.rmse_max),
    )
    for name, value, least in floors:
        if value < least:
            return f"{name} is {value:.4g}; {contract.kind} asks for {least:g} at least"
    for name, value, most in ceilings:
        if value > most:
            return f"{name} is {value:.4g}; {contract.kind} allows {most:g} at most"
    if quality.snr_db > contract.snr_db_max:
        return (
            f"SNR is {quality.snr_db:.4g} dB; {contract.kind} arithmetic reaches {contract.snr_db_max:g} dB at most: "
            "nothing was quantised"
        )
    return None


def worst_of(qualities: Sequence[Quality]) -> Mapping[str, float]:
    """Return the worst of each figure for the record; empty without any."""
    if not qualities:
        return {}
    worst = {
        "cosine": min(q.cosine for q in qualities),
        "relative_l1": max(q.relative_l1 for q in qualities),
        "rmse": max(q.rmse for q in qualities),
        "snr_db": min(q.snr_db for q in qualities),
    }
    return {name: value for name, value in worst.items() if math.isfinite(value)}


def _as_rows(tensor: torch.Tensor) -> torch.Tensor:
    wide = tensor.double()
    return wide.reshape(-1, wide.shape[-1]) if wide.dim() else wide.reshape(1, 1)


def _size(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the root mean square along ``dim``, or one if that is zero."""
    size = tensor.square().mean(dim=dim, keepdim=True).sqrt()
    return torch.where(size > 0, size, 1.0)
