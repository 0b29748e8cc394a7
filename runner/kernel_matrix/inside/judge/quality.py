"""Quality of a quantised output as a whole: cosine, relative L1, RMSE and SNR.

Rows and columns are scaled to equal size before sums are taken, since a few large ones would otherwise dominate. A
quantisation scale that fits only those sets the others to zero, and this must be visible.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Iterator, List, Mapping, Optional, Sequence, Tuple

import torch

from kernel_matrix.model.messages import ContractSpec

SNR_CEILING = 300.0  # SNR of an answer without any error, decibels; more than float64 rounding allows

PIECE = 1 << 21  # elements compared at once, if a row has no more: with all temporaries about 128 MiB

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
    have, wanted = _as_rows(got), _as_rows(expected)
    columns = _column_sizes(wanted)
    sums = [_sums(_by_rows(h, w) / columns, _by_rows(w, w) / columns) for h, w in _pieces(have, wanted)]
    numbers: List[float] = torch.stack(sums).sum(dim=0).tolist()
    have_norm, wanted_norm, error_norm = (math.sqrt(number) if number >= 0 else math.nan for number in numbers[:3])
    l1, wanted_l1, dot = numbers[3:]
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
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() else tensor.reshape(1, 1)


def _pieces(*tensors: torch.Tensor) -> Iterator[Tuple[torch.Tensor, ...]]:
    """Yield the same few rows of each tensor."""
    rows = max(1, PIECE // max(1, tensors[0].shape[1]))
    return zip(*(tensor.split(rows) for tensor in tensors))


def _by_rows(tensor: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` in float64, divided by the sizes of the rows of ``wanted`` if these are long enough."""
    if wanted.shape[1] < FEWEST:
        return tensor.double()
    return tensor.double() / _size(wanted.double().square().mean(dim=1, keepdim=True))


def _column_sizes(wanted: torch.Tensor) -> torch.Tensor:
    """Return the sizes of the columns after :func:`_by_rows`; one if they are too short."""
    if wanted.shape[0] < FEWEST:
        return torch.ones((), dtype=torch.float64, device=wanted.device)
    squares = [_by_rows(piece, piece).square().sum(dim=0) for (piece,) in _pieces(wanted)]
    return _size(torch.stack(squares).sum(dim=0) / wanted.shape[0])


def _sums(have: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """Return the sums over a piece that the figures are made of: three of squares, two of sizes, and the product."""
    error = have - wanted
    squares = [torch.linalg.vector_norm(t).square() for t in (have, wanted, error)]
    return torch.stack([*squares, error.abs().sum(), wanted.abs().sum(), (have * wanted).sum()])


def _size(mean_square: torch.Tensor) -> torch.Tensor:
    """Return the root, or one if that is zero."""
    size = mean_square.sqrt()
    return torch.where(size > 0, size, 1.0)
