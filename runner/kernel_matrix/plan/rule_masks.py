"""Which rules match which cells, as bit masks.

Bit ``i`` of a mask stands for rule ``i``. Each value of each axis gets the mask of the rules whose globs on that axis
it satisfies; the rules that match a cell are the bits left after AND-ing the masks of its five values. So globs are
matched once per axis value, never per cell.
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
    """The bits of all excludes."""
    includes: int
    overrides: int

    @classmethod
    def of(cls, matrix: Matrix) -> RuleMasks:
        """The rules of ``matrix``, each kind in its order."""
        rules: tuple[Rule, ...] = (*matrix.exclude, *matrix.include, *matrix.overrides)
        excludes, includes, overrides = (
            cls._mask(isinstance(rule, kind) for rule in rules) for kind in (Exclude, Include, Override)
        )
        return cls(rules, excludes, includes, overrides)

    def gpu_mask(self, name: str) -> int:
        """Rules that may match cells on this GPU axis value."""
        return self._mask(matches(name, rule.match.gpu) for rule in self.rules)

    def toolchain_mask(self, name: str) -> int:
        """Rules that may match cells of this toolchain."""
        return self._mask(matches(name, rule.match.toolchain) for rule in self.rules)

    def dtype_mask(self, dtype: Dtype) -> int:
        """Rules that may match cells of this dtype; an include speaks of the dtypes it adds."""
        return self._mask(
            matches(dtype.value, rule.match.dtype) and (not isinstance(rule, Include) or dtype in rule.dtypes)
            for rule in self.rules
        )

    def problem_mask(self, problem: Problem) -> int:
        """Rules that may match cells of this problem."""
        return self._mask(
            matches(problem.id, rule.match.problem) and matches(problem.category, rule.match.category)
            for rule in self.rules
        )

    def candidate_mask(self, candidate: Candidate) -> int:
        """Rules that may match cells of this candidate."""
        return self._mask(
            matches(candidate.id, rule.match.candidate) and matches(candidate.language.value, rule.match.language)
            for rule in self.rules
        )

    def exclusion_of(self, mask: int) -> Exclude | None:
        """The first exclude in ``mask``, unless an include is in it too: what is included is never excluded."""
        if mask & self.includes or not mask & self.excludes:
            return None
        return next(rule for rule in self._in(mask) if isinstance(rule, Exclude))

    def overrides_of(self, mask: int) -> tuple[Override, ...]:
        """The overrides in ``mask``, in the order of the file."""
        return tuple(rule for rule in self._in(mask) if isinstance(rule, Override))

    def _in(self, mask: int) -> Iterable[Rule]:
        return (rule for bit, rule in enumerate(self.rules) if mask >> bit & 1)

    @staticmethod
    def _mask(answers: Iterable[bool]) -> int:
        return sum(1 << bit for bit, answer in enumerate(answers) if answer)


def open_globs(match: Match) -> dict[str, tuple[str, ...]]:
    """The globs of ``match`` on what is known only once problems and candidates are read."""
    return {"problem": match.problem, "candidate": match.candidate, "category": match.category}
