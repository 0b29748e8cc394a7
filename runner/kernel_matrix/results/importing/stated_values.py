"""GPU, toolchain and dtype of imported results: what the files say, and what the user says for files that do not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from kernel_matrix.errors import UsageError, suggestion
from kernel_matrix.model.enums import Dtype
from kernel_matrix.platforms.data_sheets import names_architecture, names_gpu
from kernel_matrix.sources.measurement import ImportedFile, ImportedMeasurement, find_dtype
from kernel_matrix.untrusted_json import escape_surrogates


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedValues:
    """Values that the user states for all files of an import; ``None`` for those that the user does not state."""

    gpu: str | None = None
    toolchain: str | None = None
    dtype: str | None = None


def check_stated(*, gpu: str | None, toolchain: str | None, dtype: str | None) -> StatedValues:
    """Return the values, with the dtype in our spelling.

    Raises:
        UsageError: The dtype is not known.
    """
    found = find_dtype(dtype) if dtype else None
    if dtype and found is None:
        allowed = [known.value for known in Dtype]
        raise UsageError(
            f"--dtype {dtype!r} is not known{suggestion(dtype, allowed)}", next_step=f"Use one of {', '.join(allowed)}."
        )
    return StatedValues(gpu=gpu or None, toolchain=toolchain or None, dtype=found.value if found else None)


def complete(file: ImportedFile, stated: StatedValues, *, folder_is_machine: bool) -> ImportedFile:
    """Return ``file`` with GPU, toolchain and dtype from wherever they are known.

    What a file says itself counts first, then what the user states. The GPU may also be the name of the folder, if that
    names one, or else what the hardware said. A stated GPU whose words are all in the file's name of it, as ``H100`` in
    ``NVIDIA H100 PCIe``, is a shorter name of the same GPU and replaces it. It also replaces the name of an instruction
    set, such as ``gfx942``, which several products have.
    """
    folder = escape_surrogates(file.machine) if folder_is_machine else ""
    folder_gpu = folder if names_gpu(folder) else None
    measured = tuple(_complete_one(one, stated, folder_gpu) for one in file.measured)
    notes = [*_unused(file, stated)]
    unknown = sum(one.gpu is None for one in measured)
    if folder_is_machine and unknown:
        notes.append(f"the GPU of {unknown} results is unknown: the folder {folder!r} does not name one; use --gpu")
    return replace(file, measured=measured, notes=(*file.notes, *notes))


def _complete_one(one: ImportedMeasurement, stated: StatedValues, folder_gpu: str | None) -> ImportedMeasurement:
    gpu = one.gpu or stated.gpu or folder_gpu or one.host.get("gpu_name")
    if stated.gpu and gpu and _names_the_same(stated.gpu, gpu):
        gpu = stated.gpu
    further = {
        name: value
        for name, value in (("toolchain", stated.toolchain), ("dtype", stated.dtype))
        if value is not None and one.columns.get(name) is None
    }
    return replace(one, gpu=gpu, columns={**one.columns, **further})


def _unused(file: ImportedFile, stated: StatedValues) -> Iterator[str]:
    """Yield a note for each stated value that contradicts the file."""
    for name in ("gpu", "toolchain", "dtype"):
        value = getattr(stated, name)
        others = {said for one in file.measured if (said := _said(one, name)) is not None and said != value}
        if name == "gpu" and value is not None:
            others = {said for said in others if not _names_the_same(value, said)}
        if value is not None and others:
            shown = ", ".join(sorted(others)[:3]) + (", …" if len(others) > 3 else "")
            yield f"--{name} {value} is not used where the file itself says {shown}"


def _names_the_same(stated: str, said: str) -> bool:
    return _words(stated) <= _words(said) or (names_architecture(said) and not names_architecture(stated))


def _words(gpu: str) -> set[str]:
    return set(re.findall(r"\w+", gpu.lower()))


def _said(one: ImportedMeasurement, name: str) -> Any:
    return one.gpu if name == "gpu" else one.columns.get(name)
