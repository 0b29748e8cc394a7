"""Data sheets of GPUs by product name, for people and for prompts of language models.

A sheet joins two tables: ``peaks.toml`` has memory bandwidth and arithmetic rates, ``data_sheets.toml`` has everything
else, per vendor, compute capability and product. A value that neither table has is unknown and stays empty.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from kernel_matrix.errors import UsageError
from kernel_matrix.platforms.peaks import Peak, peak_in_table
from kernel_matrix.toml_text import parse_toml

THREADS_PER_BLOCK = 1024
"""Maximum number of threads of a block, the same for all data sheets (CUDA C++ Programming Guide; ROCm
documentation)."""

DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
"""Dtypes whose dense rate a sheet gives, if it is known."""

_DOCUMENT = parse_toml(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

BRANDS: tuple[str, ...] = tuple(_DOCUMENT["brands"])
"""Words before a product's name that people leave out."""
FEATURES: Mapping[str, str] = _DOCUMENT["features"]
"""Name of each feature that an architecture may have → text."""

_OTHER_MODELS = re.compile(r"[abhlp][1-9]\d?0[a-z]?|(?:gb|gh|gtx|rtx|rx|mi|gfx|gaudi)\d+[a-z]*")
"""Model numbers of GPUs without a data sheet, such as ``p100`` and ``gtx1080``, or in one word, as ``rtx4090``."""

_BRAND = re.compile(rf"^({'|'.join(BRANDS)})\s+", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """Properties that all GPUs of one vendor have in common, and the vendor's own words for them."""

    compute_capability: str
    """What the vendor calls the name that code is compiled for."""
    sm: str
    warp: str
    threads_per_warp: int
    shared_memory: str
    shared_bytes_unasked: int | None = None
    """Shared memory that a block may use without opting in to more; ``None`` if there is nothing to opt in to."""
    fp32_cores: str
    tensor_cores: str
    link: str | None = None
    """Name of the links between GPUs; ``None`` if sheets do not give their bandwidth."""
    instances: str | None = None
    """Name of the parts that a GPU can be divided into; ``None`` if sheets do not say whether it can."""
    features: tuple[str, ...]
    """Names of :data:`FEATURES` that a GPU of the vendor may have."""


VENDORS: Mapping[str, Vendor] = {
    name: Vendor(**{**row, "features": tuple(row["features"])}) for name, row in _DOCUMENT["vendors"].items()
}
"""Name of a vendor → its properties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Properties that all GPUs of one compute capability have in common."""

    compute_capability: str
    """Such as ``9.0``, or a name such as ``gfx942``."""
    vendor: str
    """Name of one of :data:`VENDORS`."""
    architecture: str
    """Name of the architecture, such as ``Hopper``."""
    threads_per_sm: int
    blocks_per_sm: int | None = None
    shared_bytes_per_sm: int
    reserved_bytes_per_block: int
    """Shared memory that the system reserves for each block."""
    registers_per_sm: int
    """Number of 32-bit registers."""
    fp32_cores_per_sm: int
    """Number of fp32 multiply-adds per clock."""
    tensor_cores: int | None = None
    """Generation of the tensor cores; ``None`` if the vendor does not number them."""
    features: tuple[str, ...]
    """Names of :data:`FEATURES` that the architecture has."""
    source: str
    confidence: str

    @property
    def shared_bytes_per_block(self) -> int:
        """Maximum shared memory of one block."""
        return self.shared_bytes_per_sm - self.reserved_bytes_per_block


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Properties of one product; ``None`` for unknown ones."""

    names: tuple[str, ...]
    """Product names, spelled as the driver does; the first is the name of the sheet."""
    compute_capability: str
    sms: int | None = None
    l2_bytes: int | None = None
    l3_bytes: int | None = None
    """Cache between L2 and memory; ``None`` also for a product without one."""
    memory_gb: int | None = None
    """Memory size as the vendor advertises it."""
    memory_kind: str | None = None
    bytes_per_s: float | None = None
    """Memory bandwidth of a product that the table of peaks does not have."""
    board_power_w: int | None = None
    nvlink_bytes_per_s: float | None = None
    """Bandwidth of both directions together; 0 for a product without NVLink."""
    mig: bool | None = None
    ops_per_s: Mapping[str, float] = field(default_factory=dict)
    """Dense rates of dtypes that the table of peaks does not have."""
    source: str
    confidence: str
    """``documented`` or ``recalled``."""
    recalled: tuple[str, ...] = ()
    """Fields whose numbers such devices report, but no document states."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSheet:
    """Everything that is known about one product."""

    product: Product
    architecture: Architecture
    peak: Peak | None
    """``None`` if the product is not in the table of peaks."""

    @property
    def name(self) -> str:
        """Product name, spelled as the driver does."""
        return self.product.names[0]

    @property
    def vendor(self) -> Vendor:
        """The product's vendor."""
        return VENDORS[self.architecture.vendor]

    @property
    def bytes_per_s(self) -> float | None:
        """Memory bandwidth; ``None`` if unknown."""
        return self.peak.bytes_per_s if self.peak else self.product.bytes_per_s

    @property
    def ops_per_s(self) -> dict[str, float | None]:
        """Dtype of :data:`DTYPES` → dense rate in operations/s; ``None`` if unknown."""
        known = {**(self.peak.flops_per_s if self.peak else {}), **self.product.ops_per_s}
        return {dtype: known.get(dtype) for dtype in DTYPES}

    @property
    def sources(self) -> tuple[str, ...]:
        """Documents that the numbers come from, each one once."""
        rows = (self.architecture.source, self.product.source, *([self.peak.reference] if self.peak else ()))
        return tuple(dict.fromkeys(part.strip() for row in rows for part in row.split(";")))

    def document(self) -> dict[str, Any]:
        """Return the sheet as a JSON object. It always has all keys; unknown values are null."""
        a, p = self.architecture, self.product
        return {
            "name": self.name,
            "also_named": list(p.names[1:]),
            "vendor": a.vendor,
            "architecture": a.architecture,
            "compute_capability": a.compute_capability,
            "sms": p.sms,
            "fp32_cores_per_sm": a.fp32_cores_per_sm,
            "threads_per_sm": a.threads_per_sm,
            "blocks_per_sm": a.blocks_per_sm,
            "threads_per_block": THREADS_PER_BLOCK,
            "threads_per_warp": self.vendor.threads_per_warp,
            "registers_per_sm": a.registers_per_sm,
            "shared_bytes_per_sm": a.shared_bytes_per_sm,
            "shared_bytes_per_block": a.shared_bytes_per_block,
            "l2_bytes": p.l2_bytes,
            "l3_bytes": p.l3_bytes,
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
def _architectures() -> Mapping[str, Architecture]:
    return {row["compute_capability"]: Architecture(**_frozen(row)) for row in _DOCUMENT["capabilities"]}


def architecture_of(compute_capability: str) -> Architecture | None:
    """Return what GPUs of a compute capability have in common; ``None`` if the table does not have it."""
    return _architectures().get(compute_capability)


@cache
def all_sheets() -> tuple[DataSheet, ...]:
    """Return all data sheets in the order of the table: newest architecture first."""
    architectures = _architectures()
    products = (Product(**_frozen(row)) for row in _DOCUMENT["gpus"])
    return tuple(
        DataSheet(product=it, architecture=architectures[it.compute_capability], peak=peak_in_table(it.names[0]))
        for it in products
    )


def sheets_of(model: str) -> tuple[DataSheet, ...]:
    """Return the sheets that ``model`` names, at least one; upper and lower case are the same.

    A product's name, with or without words such as "NVIDIA GeForce" before it (``h200``, ``RTX 4090``), selects only
    that product. Otherwise a glob, the beginning of words (``a100``) or any part of a name selects all that match.

    Raises:
        kernel_matrix.errors.UsageError: if no sheet matches; the message names the closest ones.
    """
    wanted = " ".join(model.lower().split())
    is_glob = any(sign in wanted for sign in "*?[")
    word_start = re.compile(rf"(?<![a-z0-9]){re.escape(wanted)}")
    rules: tuple[Callable[[str], object], ...] = (
        lambda name: name == wanted,
        lambda name: is_glob and fnmatchcase(name, wanted),
        word_start.search,
        lambda name: wanted in name,
    )
    for matches in rules:
        found = tuple(sheet for sheet in all_sheets() if any(map(matches, _spellings(sheet))))
        if wanted and found:
            return found
    known = {name: sheet.name for sheet in all_sheets() for name in _spellings(sheet)}
    closest = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    hint = f"; closest: {', '.join(dict.fromkeys(known[name] for name in closest))}" if closest else ""
    raise UsageError(
        f"there is no data sheet of {model!r}{hint}",
        next_step=f"`kernel-matrix gpus show` lists all {len(all_sheets())}",
    )


def names_gpu(text: str) -> bool:
    """Return whether ``text``, which may be the name of a folder, has a GPU's model number, or the word ``cpu``.

    ``H100_PCIe_LambdaLabs``, ``a100`` and ``rtx-4090`` name a GPU; ``old``, ``results`` and ``run12`` do not.
    """
    words = set(_words(text))
    other = any(word == "cpu" or _OTHER_MODELS.fullmatch(word) for word in words)
    return other or any(model <= words for model in _model_words())


def names_architecture(text: str) -> bool:
    """Return whether ``text`` names an instruction set in place of a product, as some harnesses do: ``gfx942``.

    What a driver appends, as in ``gfx942:sramecc+:xnack-``, does not count.
    """
    name = text.strip().lower().partition(":")[0]
    return not name[:1].isdigit() and name in _architectures()


@cache
def _model_words() -> frozenset[frozenset[str]]:
    """Return the words of each product's name that tell it from other things.

    They are the first word with a digit, which in ``RTX 4090`` needs the word before it, or else all but the brand.
    """
    found = set()
    for name in (name for sheet in all_sheets() for name in sheet.product.names):
        words = [word for word in _words(name) if word not in map(str.lower, BRANDS)]
        place = next((place for place, word in enumerate(words) if re.search(r"\d", word)), None)
        if place is None:
            found.add(frozenset(words))
        else:
            found.add(frozenset([words[place], words[0]] if words[place].isdecimal() else [words[place]]))
    return frozenset(found)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _frozen(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}


def _spellings(sheet: DataSheet) -> Iterator[str]:
    """Yield the product's names in lower case, complete and without :data:`BRANDS`."""
    for name in sheet.product.names:
        yield name.lower()
        short = name
        while short != (short := _BRAND.sub("", short)):
            yield short.lower()
