"""Data sheets: what a GPU has and can do, by product name, for people and for prompts.

Joined from two tables: ``peaks.toml`` has bandwidth and arithmetic, ``sheets.toml`` all else, per compute capability
and per product. What neither has is not known, and stays so.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from kernel_matrix.errors import UsageError
from kernel_matrix.platforms.peaks import Peak, peak_in_table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

THREADS_PER_BLOCK = 1024
"""Most threads of a block, on every compute capability there is a sheet of (CUDA C++ Programming Guide)."""
THREADS_PER_WARP = 32
SHARED_BYTES_UNASKED = 48 << 10
"""Shared memory that a block may have without asking for more, on all of them (CUDA C++ Programming Guide)."""

DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
"""What a sheet gives a dense rate of, where it is known."""

FEATURES = (
    *("tf32", "bf16", "fp8", "fp4", "structured_sparsity"),
    *("cp_async", "clusters", "tma", "wgmma", "tcgen05"),
)
"""What an architecture may have; ``sheets.toml`` says what each is."""

_VENDOR = re.compile(r"^(nvidia|tesla|geforce|quadro)\s+", re.IGNORECASE)
_TABLE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """What all GPUs of one compute capability have in common."""

    compute_capability: str
    architecture: str
    """Its name, ``Hopper``."""
    threads_per_sm: int
    blocks_per_sm: int | None = None
    shared_bytes_per_sm: int
    reserved_bytes_per_block: int
    """What the system takes of an SM's shared memory for each block on it."""
    registers_per_sm: int
    """Of 32 bits."""
    fp32_cores_per_sm: int
    tensor_cores: int
    """Their generation."""
    features: tuple[str, ...]
    """Of :data:`FEATURES`; the others it lacks."""
    source: str
    confidence: str

    @property
    def shared_bytes_per_block(self) -> int:
        """The most that one block may ask for."""
        return self.shared_bytes_per_sm - self.reserved_bytes_per_block


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """What is a product's own. Null: not known."""

    names: tuple[str, ...]
    """As the driver writes them; the first is its name here."""
    compute_capability: str
    sms: int | None = None
    l2_bytes: int | None = None
    memory_gb: int | None = None
    """As the vendor calls it."""
    memory_kind: str | None = None
    board_power_w: int | None = None
    nvlink_bytes_per_s: float | None = None
    """Both directions together; 0: it has none."""
    mig: bool | None = None
    ops_per_s: Mapping[str, float] = field(default_factory=dict)
    """Dense rates of dtypes that the table of peaks does not have."""
    source: str
    confidence: str
    """``documented`` or ``recalled``."""
    recalled: tuple[str, ...] = ()
    """Fields whose numbers such devices were seen to report, and no document promises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSheet:
    """All that is known of one product."""

    product: Product
    architecture: Architecture
    peak: Peak | None
    """Null where the table of peaks does not have it."""

    @property
    def name(self) -> str:
        """As the driver writes it."""
        return self.product.names[0]

    @property
    def bytes_per_s(self) -> float | None:
        """Of its memory; null: not known."""
        return self.peak.bytes_per_s if self.peak else None

    @property
    def ops_per_s(self) -> dict[str, float | None]:
        """Dense rate of each of :data:`DTYPES`, operations/s; null: not known."""
        known = {**(self.peak.flops_per_s if self.peak else {}), **self.product.ops_per_s}
        return {dtype: known.get(dtype) for dtype in DTYPES}

    @property
    def sources(self) -> tuple[str, ...]:
        """Where its numbers are from, each document once."""
        rows = (self.architecture.source, self.product.source, *([self.peak.reference] if self.peak else ()))
        return tuple(dict.fromkeys(part.strip() for row in rows for part in row.split(";")))

    def document(self) -> dict[str, Any]:
        """The sheet as JSON: every key is always there, null where nothing is known."""
        a, p = self.architecture, self.product
        return {
            "name": self.name,
            "also_named": list(p.names[1:]),
            "architecture": a.architecture,
            "compute_capability": a.compute_capability,
            "sms": p.sms,
            "fp32_cores_per_sm": a.fp32_cores_per_sm,
            "threads_per_sm": a.threads_per_sm,
            "blocks_per_sm": a.blocks_per_sm,
            "threads_per_block": THREADS_PER_BLOCK,
            "registers_per_sm": a.registers_per_sm,
            "shared_bytes_per_sm": a.shared_bytes_per_sm,
            "shared_bytes_per_block": a.shared_bytes_per_block,
            "l2_bytes": p.l2_bytes,
            "memory_gb": p.memory_gb,
            "memory_kind": p.memory_kind,
            "bytes_per_s": self.bytes_per_s,
            "ops_per_s": self.ops_per_s,
            "board_power_w": p.board_power_w,
            "nvlink_bytes_per_s": p.nvlink_bytes_per_s,
            "mig": p.mig,
            "tensor_cores": a.tensor_cores,
            "features": {feature: feature in a.features for feature in FEATURES},
            "sources": list(self.sources),
            "confidence": p.confidence,
            "recalled": list(p.recalled),
        }


@cache
def all_sheets() -> tuple[DataSheet, ...]:
    """Every product that there is a sheet of, in the order of the table: newest architecture first."""
    document = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    architectures = {row["compute_capability"]: Architecture(**_frozen(row)) for row in document["capabilities"]}
    products = (Product(**_frozen(row)) for row in document["gpus"])
    return tuple(
        DataSheet(product=it, architecture=architectures[it.compute_capability], peak=peak_in_table(it.names[0]))
        for it in products
    )


def sheets_of(model: str) -> tuple[DataSheet, ...]:
    """The sheets that ``model`` means, whatever its case: at least one.

    A product's name with or without what all names begin with (``h200``, ``RTX 4090``) means that product alone; else a
    glob, or the beginning of words (``a100``), or any part of a name, means all that fit.

    :raises kernel_matrix.errors.UsageError: when none does; names the closest.
    """
    wanted = " ".join(model.lower().split())
    for fits in (_is_name, _is_glob, _begins_words, _is_part):
        found = tuple(sheet for sheet in all_sheets() if any(fits(wanted, name) for name in _spellings(sheet)))
        if wanted and found:
            return found
    known = {name: sheet.name for sheet in all_sheets() for name in _spellings(sheet)}
    closest = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    hint = f"; closest: {', '.join(dict.fromkeys(known[name] for name in closest))}" if closest else ""
    raise UsageError(
        f"there is no data sheet of {model!r}{hint}",
        next_step=f"kernel-matrix gpus show names all {len(all_sheets())}",
    )


def _frozen(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def _spellings(sheet: DataSheet) -> Iterator[str]:
    """Its names in lower case, whole and without what all names begin with."""
    for name in sheet.product.names:
        yield name.lower()
        short = name
        while short != (short := _VENDOR.sub("", short)):
            yield short.lower()


def _is_name(wanted: str, name: str) -> bool:
    return wanted == name


def _is_glob(wanted: str, name: str) -> bool:
    return any(sign in wanted for sign in "*?[") and fnmatchcase(name, wanted)


def _begins_words(wanted: str, name: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){re.escape(wanted)}", name) is not None


def _is_part(wanted: str, name: str) -> bool:
    return wanted in name
