"""Bit masks of the rules that match a cell.

Bit ``i`` of a mask stands for rule ``i``. Each value of each axis gets the mask of the rules whose globs on that axis
match it; the rules that match a cell are the intersection of the masks of its five values. So globs are matched once
per axis value, never per cell.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernel_matrix.matrix import Exclude, Include, Match, Matrix, Override
from kernel_matrix.matrix.globs import matches
from kernel_matrix.model.enums import Dtype
from kernel_matrix.sources import Candidate, Problem

Rule = Exclude | Include | Override


@dataclass(frozen=True, slots=True)
class RuleMasks:
    """All rules of a matrix, each with its bit."""

    rules: tuple[Rule, ...]
    excludes: int
    """Mask of all excludes."""
    includes: int
    overrides: int

    @classmethod
    def of(cls, matrix: Matrix) -> RuleMasks:
        """Return the rules of ``matrix``: excludes, includes and overrides, each in file order."""
        rules: tuple[Rule, ...] = (*matrix.exclude, *matrix.include, *matrix.overrides)
        excludes, includes, overrides = (
            cls._mask(isinstance(rule, kind) for rule in rules) for kind in (Exclude, Include, Override)
        )
        return cls(rules, excludes, includes, overrides)

    def gpu_mask(self, name: str) -> int:
        """Return the mask of rules that may match cells on this GPU axis value."""
        return self._mask(matches(name, rule.match.gpu) for rule in self.rules)

    def toolchain_mask(self, name: str) -> int:
        """Return the mask of rules that may match cells of this toolchain."""
        return self._mask(matches(name, rule.match.toolchain) for rule in self.rules)

    def dtype_mask(self, dtype: Dtype) -> int:
        """Return the mask of rules that may match cells of this dtype; an include matches the dtypes it adds."""
        return self._mask(
            matches(dtype.value, rule.match.dtype) and (not isinstance(rule, Include) or dtype in rule.dtypes)
            for rule in self.rules
        )

    def problem_mask(self, problem: Problem) -> int:
        """Return the mask of rules that may match cells of this problem."""
        return self._mask(
            matches(problem.id, rule.match.problem) and matches(problem.category, rule.match.category)
            for rule in self.rules
        )

    def candidate_mask(self, candidate: Candidate) -> int:
        """Return the mask of rules that may match cells of this candidate."""
        return self._mask(
            matches(candidate.id, rule.match.candidate) and matches(candidate.language.value, rule.match.language)
            for rule in self.rules
        )

    def exclusion_of(self, mask: int) -> Exclude | None:
        """Return the first exclude in ``mask``; ``None`` if there is none or an include is in ``mask`` too."""
        if mask & self.includes or not mask & self.excludes:
            return None
        return next(rule for rule in self._in(mask) if isinstance(rule, Exclude))

    def overrides_of(self, mask: int) -> tuple[Override, ...]:
        """Return the overrides in ``mask``, in file order."""
        return tuple(rule for rule in self._in(mask) if isinstance(rule, Override))

    def _in(self, mask: int) -> Iterable[Rule]:
        return (rule for bit, rule in enumerate(self.rules) if mask >> bit & 1)

    @staticmethod
    def _mask(answers: Iterable[bool]) -> int:
        return sum(1 << bit for bit, answer in enumerate(answers) if answer)


def open_globs(match: Match) -> dict[str, tuple[str, ...]]:
    """Return the globs of ``match`` on properties that are known only after problems and candidates are read."""
    return {"problem": match.problem, "candidate": match.candidate, "category": match.category}
