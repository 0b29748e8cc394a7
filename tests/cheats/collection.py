"""The cheats beside this file: what each tries and how it is meant to end, read from its docstring.

A cheat is one file ``<group>/<class>_<name>.py`` whose docstring says what it tries and then, in lines ``key: value``,
how it is meant to end:

==============  ======================================================================================================
``class``       of the catalogue, ``A1`` … ``D17``, or ``control`` for an honest one
``problem``     id of a shipped problem, or of one in ``problems`` beside this file
``expect``      statuses, any of which will do; ``timed`` (the default): accepted, its time is what it truly costs
``stopped-by``  one of :data:`STOPPED_BY`
``language``    ``torch`` unless it is named
``device``      ``cpu`` or ``cuda``, where it can be tried on one of them only
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

from kernel_matrix.model.enums import Language, Status

HERE = Path(__file__).parent
PROBLEMS = HERE / "problems"
"""Problems that only a cheat needs."""

GROUPS = {"A": "timer", "B": "skipping", "C": "answers", "D": "harness"}
"""Letter of the catalogue → folder."""

CLASSES = tuple(
    f"{letter}{number}" for letter, most in zip("ABCD", (19, 17, 11, 17), strict=True) for number in range(1, most + 1)
)

NOT_EXPRESSED = {
    "B12": "to leave out what makes no difference is for the problem to allow or to rule out by its inputs",
    "C4": "no counter of errors is in the candidate's process or context; C3 looks for anything of that kind",
    "D7": "one that got through would change the clocks of a machine that others use",
}
"""Classes without a cheat, and why."""

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

_DEFAULTS = {
    "expect": TIMED,
    "language": Language.TORCH.value,
    "device": "any",
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
        """Folder it lies in."""
        return self.path.parent.name

    @property
    def candidate(self) -> str:
        """Id as a candidate."""
        return f"{self.problem}/{self.path.stem}"

    def runs_on(self, device: str) -> bool:
        """Return True if it can be tried on ``device``, ``cpu`` or ``cuda``."""
        return self.device in ("any", device)


def cheats(device: str | None = None) -> list[Cheat]:
    """All cheats and controls, or those that run on ``device``; in the order of their names.

    :raises ValueError: for one whose docstring does not say what it must.
    """
    found = [read(path) for folder in GROUPS.values() for path in sorted((HERE / folder).glob("*.py"))]
    return [cheat for cheat in found if device is None or cheat.runs_on(device)]


def read(path: Path) -> Cheat:
    """One of them.

    :raises ValueError: as above.
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
