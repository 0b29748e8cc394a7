"""Known ways of cheating, and honest candidates beside them: files whose docstring says how each is meant to end.

A cheat is one file ``<group>/<class>_<name>.py``. Its docstring says what it tries, and then in lines ``key: value``:

==============  ======================================================================================================
``class``       of the catalogue, ``A1`` … ``E6``, or ``control`` for an honest one
``problem``     id of its problem
``expect``      statuses, any of which will do; ``timed`` (the default): accepted, its time is what it truly costs
``stopped-by``  one of :data:`STOPPED_BY`
``language``    ``torch`` unless it is named
``device``      ``cpu`` or ``cuda``, where it can be tried on one of them only; ``cuda`` is torch's name of any GPU
``costs-ms``    least device time that an accepted one may have
``earns``       largest speed-up over eager with which an accepted one may be called ``faster``
``finding``     rule of :mod:`kernel_matrix.scan` that must speak of its source
``boundary``    ``yes``: isolation alone stops it, so that every sandbox has to show that it does
==============  ======================================================================================================
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from kernel_matrix.bundled import bundled_path
from kernel_matrix.model.enums import Language, Status

BUNDLED_CHEATS = bundled_path("problems", "conformance")
"""Folder of those that every platform has to tell apart; they use torch and Triton only."""

CLASSES = tuple(
    f"{letter}{number}"
    for letter, most in zip("ABCDE", (19, 17, 11, 17, 6), strict=True)
    for number in range(1, most + 1)
)
CONTROL = "control"
TIMED = "timed"
STOPPED_BY = (
    *(
        "aliasing",
        "batches",
        "controls",
        "fresh inputs",
        "input check",
        "isolation",
        "limits",
        "own kernel",
        "red zones",
    ),
    *("hand-over", "quiet device", "structure", "two clocks", "values", "wire", "nothing"),
)
"""What stops a cheat; ``nothing``: it gains nothing, and is timed as what it costs."""

_ANY_DEVICE, _CPU = "any", "cpu"
_DEFAULTS = {
    "expect": TIMED,
    "language": Language.TORCH.value,
    "device": _ANY_DEVICE,
    "costs-ms": "0",
    "earns": "inf",
    "finding": "",
    "boundary": "no",
    "stopped-by": "nothing",
}
_NEEDED = {"class", "problem"}


@dataclass(frozen=True, kw_only=True)
class Cheat:
    """One file, and how it is meant to end."""

    path: Path
    kind: str
    """Class of the catalogue, or ``control``."""
    problem: str
    expect: frozenset[Status]
    stopped_by: str
    language: Language
    device: str
    costs_ms: float
    earns: float
    """Largest speed-up over eager that an accepted one may show as ``faster``; infinite where it does not matter."""
    finding: str
    boundary: bool
    tries: str

    @property
    def group(self) -> str:
        """Folder that it is in."""
        return self.path.parent.name

    @property
    def candidate(self) -> str:
        """Id as a candidate."""
        return f"{self.problem}/{self.path.stem}"

    @property
    def is_honest(self) -> bool:
        """True for a control."""
        return self.kind == CONTROL

    def runs_on(self, device: str) -> bool:
        """Return True if it can be tried on ``device``, the name that torch gives it."""
        return self.device in (_ANY_DEVICE, device)

    def runs_where(self, *, is_accelerator: bool) -> bool:
        """Return True if it can be tried on a GPU, or on a CPU."""
        return self.device == _ANY_DEVICE or (self.device != _CPU) == is_accelerator


def bundled_cheats() -> list[Cheat]:
    """Return those that come with the package, in the order of their names."""
    return [read_cheat(path) for path in sorted(BUNDLED_CHEATS.glob("*/*.py"))]


def read_cheat(path: Path) -> Cheat:
    """Read one of them.

    Raises:
        ValueError: Its docstring does not say what it must.
    """
    tries, _, lines = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")
    said = dict(line.split(": ", 1) for line in lines.splitlines())
    unknown, missing = said.keys() - _DEFAULTS.keys() - _NEEDED, _NEEDED - said.keys()
    if unknown or missing:
        raise ValueError(f"{path}: unknown keys {sorted(unknown)}, missing keys {sorted(missing)}")
    values = {**_DEFAULTS, **said}
    for key, allowed in (("class", (*CLASSES, CONTROL)), ("stopped-by", STOPPED_BY)):
        if values[key] not in allowed:
            raise ValueError(f"{path}: {key}: {values[key]!r} is none of {', '.join(allowed)}")
    return Cheat(
        path=path,
        kind=values["class"],
        problem=values["problem"],
        expect=frozenset(_status(name.strip()) for name in values["expect"].split("|")),
        stopped_by=values["stopped-by"],
        language=Language(values["language"]),
        device=values["device"],
        costs_ms=float(values["costs-ms"]),
        earns=float(values["earns"]),
        finding=values["finding"],
        boundary=values["boundary"] == "yes",
        tries=tries,
    )


def _status(name: str) -> Status:
    return Status.PASSED if name == TIMED else Status(name)
