"""One name per problem: KernelBench writes ``level1/19`` in some files and ``level1/19_ReLU`` in others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernel_matrix.sources.measurement import ImportedFile

_NUMBERED = re.compile(r"(?P<number>level\d+/\d+)(?:_.*)?")
_SHOWN = 3


def join_spellings(files: Sequence[ImportedFile]) -> list[ImportedFile]:
    """Give the problems with a number alone the name that the import has for this number.

    Where it has several, as of two versions of KernelBench, it cannot be known which of them is meant: the number stays
    a problem of its own, and the file's notes say so.
    """
    names: dict[str, set[str]] = {}
    for file in files:
        for one in file.measured:
            match = _NUMBERED.fullmatch(one.problem)
            if match:
                names.setdefault(match["number"], set()).add(one.problem)
    full = {number: sorted(spelled - {number}) for number, spelled in names.items()}
    return [_rename(file, full) for file in files]


def _rename(file: ImportedFile, names: Mapping[str, Sequence[str]]) -> ImportedFile:
    """Return the file with full names of problems.

    Args:
        file: A file of the import.
        names: Number of a problem → its full names.
    """
    measured = tuple(
        replace(one, problem=names[one.problem][0]) if len(names.get(one.problem, ())) == 1 else one
        for one in file.measured
    )
    unclear = sorted({one.problem for one in file.measured if len(names.get(one.problem, ())) > 1})
    if not unclear:
        return replace(file, measured=measured)
    shown = "; ".join(f"{number} may be {' or '.join(names[number])}" for number in unclear[:_SHOWN])
    more = f"; and {len(unclear) - _SHOWN} more" if len(unclear) > _SHOWN else ""
    note = f"problems that the import has under several names stay apart: {shown}{more}"
    return replace(file, measured=measured, notes=(*file.notes, note))
