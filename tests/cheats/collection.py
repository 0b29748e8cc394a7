"""All cheats: those beside this file, and those of the package.

:mod:`kernel_matrix.conformance.cheats` says what their docstrings hold. The ones of the package, in
``problems/conformance``, are those that ``kernel-matrix platform prove`` runs too.
"""

from __future__ import annotations

from pathlib import Path

from kernel_matrix.conformance.cheats import BUNDLED_CHEATS, Cheat, read_cheat

HERE = Path(__file__).parent
PROBLEMS = HERE / "problems"
"""Problems that only a cheat needs."""

GROUPS = {"A": "timer", "B": "skipping", "C": "answers", "D": "harness", "E": "ranks"}
"""Letter of the catalogue → folder."""

NOT_EXPRESSED = {
    "B12": "to leave out what makes no difference is for the problem to allow or to rule out by its inputs",
    "C4": "no counter of errors is in the candidate's process or context; C3 looks for anything of that kind",
    "D7": "one that got through would change the clocks of a machine that others use",
}
"""Classes without a cheat, and why."""


def cheats(device: str | None = None) -> list[Cheat]:
    """All cheats and controls, or those that run on ``device``; by group, in the order of their names.

    :raises ValueError: for one whose docstring does not say what it must.
    """
    found = [
        read_cheat(path)
        for folder in GROUPS.values()
        for path in sorted(
            (*(HERE / folder).glob("*.py"), *(BUNDLED_CHEATS / folder).glob("*.py")), key=lambda path: path.name
        )
    ]
    return [cheat for cheat in found if device is None or cheat.runs_on(device)]
