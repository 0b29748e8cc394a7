"""Every label that a record or a table can carry: its class, its meaning, and what to do about it.

The code that runs inside appends labels by name and does not read this registry, so a changed sentence makes no record
stale. ``tests/results/test_labels.py`` finds every label that the package appends, and fails if it is not here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from kernel_matrix.model.enums import Status

COMMON: Final = 0.1
"""Share of the passed rows from which on a label of class *information* distinguishes nothing and is not printed."""


class LabelClass(str, Enum):
    """Effect of a label on the result that carries it."""

    INFORMATION = "information"
    """The result is as good as any other; the label says how it was made."""
    CAUTION = "caution"
    """A number or a check of the result is missing, or may mislead."""
    WITHHELD = "verdict withheld"
    """No speed-up and no verdict is given."""


class LabelScope(str, Enum):
    """The part of a record, or the document, that carries a label."""

    SESSION = "session"
    VERIFICATION = "workload, verification"
    TIMING = "workload, timing"
    IMPORT = "imported row"
    PROBLEM_CHECK = "check of a problem"


@dataclass(frozen=True, slots=True)
class Label:
    """Description of a label."""

    kind: LabelClass
    scope: LabelScope
    meaning: str
    advice: str
    """Action for a reader who needs more than the result says."""


_INFORMATION, _CAUTION, _WITHHELD = LabelClass
_SESSION, _VERIFICATION, _TIMING, _IMPORT, _PROBLEM_CHECK = LabelScope

LABELS: Final[Mapping[str, Label]] = {
    "budget_reached": Label(
        _INFORMATION,
        _TIMING,
        "the time for timed calls was over before the median was as precise as asked for",
        "Raise `protocol.budget_s` or `protocol.precision_s`; the interval shows how precise the time is.",
    ),
    "candidate_not_paused": Label(
        _CAUTION,
        _TIMING,
        "the host could not pause the candidate's processes while other contestants were timed",
        "Rely on the speed-up only if the candidate is trusted: it may have slowed down the baseline.",
    ),
    "changes_torch_state": Label(
        _CAUTION,
        _PROBLEM_CHECK,
        "the problem changes a global setting of torch and does not restore it",
        "Let the problem restore the setting, because other problems of the same process see the change.",
    ),
    "hard_outliers": Label(
        _CAUTION,
        _VERIFICATION,
        "on outlier inputs the reference itself exceeds the tolerance; up to twice its error was accepted",
        "Do not rely on the candidate for inputs with outliers without a check of its errors there.",
    ),
    "host_bound": Label(
        _CAUTION,
        _TIMING,
        "short calls could not be captured as a graph, so the judge's time of a call includes launching it",
        "Make the candidate capturable if it is to be judged by its time on the device alone.",
    ),
    "host_clock": Label(
        _CAUTION,
        _IMPORT,
        "imported: timed by the host's clock, launches included",
        "Compare it only with times that were taken in the same way.",
    ),
    "input_accepted": Label(
        _CAUTION,
        _VERIFICATION,
        "an input returned as it is passes too: the problem's inputs do not show the computation",
        "Let the problem draw inputs that the computation changes, for example negative ones for a ReLU.",
    ),
    "insensitive": Label(
        _CAUTION,
        _VERIFICATION,
        "the reference hardly depends on one of its inputs: a wrong answer may pass",
        "Look at `sensitivity` in the record, and change how the problem draws or uses that input.",
    ),
    "interpreted": Label(
        _WITHHELD,
        _SESSION,
        "Triton kernels ran through the interpreter: correctness is known, speed is not",
        "Run the cell on a GPU for its speed.",
    ),
    "left_out": Label(
        _INFORMATION,
        _VERIFICATION,
        "that mode of inputs was left out: it would break what the problem's own inputs have in every draw",
        "Nothing, unless other inputs matter: then add a problem that draws them.",
    ),
    "low_resolution": Label(
        _CAUTION,
        _TIMING,
        "the calls are so short that they can have taken much longer than shown, by the judge's own clock",
        "Use a workload with longer calls before relying on the speed-up.",
    ),
    "mean_not_median": Label(
        _CAUTION,
        _IMPORT,
        "imported: the time given as a median is a mean",
        "Allow for outliers when comparing it with medians.",
    ),
    "no_anchor": Label(
        _CAUTION,
        _SESSION,
        "the judge's own kernels could not be timed: the machine's drift is not known",
        "Do not attribute small changes since earlier runs to the code.",
    ),
    "no_batches": Label(
        _INFORMATION,
        _TIMING,
        "calls were not timed in batches: too little memory, calls of over 0.15 s, or inputs whose forms change",
        "Allow for a coarser bound on the candidate's time.",
    ),
    "no_clock_probe": Label(
        _INFORMATION,
        _SESSION,
        "the clock could not be read inside a kernel",
        "Nothing, unless locked clocks matter: then only the driver's reading says what they were.",
    ),
    "no_energy": Label(
        _INFORMATION,
        _TIMING,
        "the device has no energy counter, or its steps are too coarse for these calls: no energy per call",
        "Nothing; times do not depend on it.",
    ),
    "no_library": Label(
        _INFORMATION,
        _SESSION,
        "the problem names no library call to compare with",
        "Add a library call to the problem, or leave `library` out of `protocol.baselines`.",
    ),
    "no_sanitizer": Label(
        _CAUTION,
        _SESSION,
        "the image has no compute-sanitizer, or there is no GPU: that pass was left out",
        "Use an image that has it, or do not count the candidate's memory accesses as checked.",
    ),
    "no_trace": Label(
        _CAUTION,
        _SESSION,
        "no tracer recorded the candidate's kernels: it is not known which kernels ran",
        "Profile a call by hand if it matters which kernels ran.",
    ),
    "not_capturable": Label(
        _INFORMATION,
        _TIMING,
        "calls could not be captured as a graph, and were repeated one by one instead",
        "Include the cost of launches when reading the replayed times.",
    ),
    "not_replayable": Label(
        _INFORMATION,
        _TIMING,
        "the problem writes into its inputs, or memory is short: calls could not be repeated, only cold ones count",
        "Nothing for such a problem; where memory is short, a device with more of it.",
    ),
    "not_timed": Label(
        _WITHHELD,
        _IMPORT,
        "imported: judged, but not timed",
        "Import a file with times for its speed.",
    ),
    "precision_blind": Label(
        _CAUTION,
        _VERIFICATION,
        "the same computation one precision lower passes too: the problem cannot tell them apart",
        "Do not count a pass as evidence of the dtype's full precision.",
    ),
    "rival_failed": Label(
        _CAUTION,
        _SESSION,
        "a further baseline failed and was left out",
        "Leave that baseline out of `protocol.baselines` if it works for no cell of the problem.",
    ),
    "steadiness_unknown": Label(
        _INFORMATION,
        _TIMING,
        "the driver does not say whether clock and temperature had settled before timing",
        "Compare the spread between sessions, which includes a device that had not settled.",
    ),
    "too_few_samples": Label(
        _CAUTION,
        _TIMING,
        "the time for timed calls was over before the fewest that were asked for",
        "Raise `protocol.budget_s`, or use a smaller workload.",
    ),
    "unsteady": Label(
        _CAUTION,
        _TIMING,
        "clock or temperature had not settled when timing began",
        "Raise `protocol.steady_cap_s`, or cool the machine.",
    ),
}
"""Label → its description. ``rival_failed:compile`` is looked up by the part before the colon."""


def label_of(text: str) -> Label | None:
    """Return the description of a label, or None if this version does not know it."""
    return LABELS.get(text.partition(":")[0])


def describe_label(text: str) -> str:
    """Return class, meaning and advice of a label in two sentences; empty if this version does not know it."""
    label = label_of(text)
    return f"{label.kind.value}: {label.meaning}. {label.advice}" if label is not None else ""


def warns(text: str) -> bool:
    """Return whether a label is known and says more than *information*."""
    label = label_of(text)
    return label is not None and label.kind is not LabelClass.INFORMATION


def is_worth_printing(text: str, *, carried: int, passed: int) -> bool:
    """Return whether a label that ``carried`` of ``passed`` rows carry is known and distinguishes them."""
    return warns(text) or (label_of(text) is not None and carried < COMMON * passed)


def labels_worth_printing(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return the labels that say something about some of ``rows``, each with the number of rows that carry it.

    The rows need the keys ``labels`` and ``status``.
    """
    passed = 0
    carried: Counter[str] = Counter()
    carried_by_passed: Counter[str] = Counter()
    for row in rows:
        labels = set(row["labels"] or ())
        carried.update(labels)
        if row["status"] == Status.PASSED.value:
            passed += 1
            carried_by_passed.update(labels)
    return {
        label: number
        for label, number in sorted(carried.items())
        if is_worth_printing(label, carried=carried_by_passed[label], passed=passed)
    }


def labels_of_row(session: Mapping[str, Any], workload: Mapping[str, Any]) -> Iterator[str]:
    """Yield the labels of a row of a table: the workload's own, and those of its session that fit the workload.

    Args:
        session: A session of a checked record.
        workload: One of its workloads. Records of earlier versions have no labels there, but all at the session.
    """
    own = workload.get("labels")
    if own is None:
        yield from (label for label in session["labels"] if _fits(label, workload))
    else:
        yield from dict.fromkeys((*own, *session["labels"]))


def _fits(text: str, workload: Mapping[str, Any]) -> bool:
    """Return whether a session's label of an earlier version can be about ``workload``, as far as the record says."""
    label, clocks = label_of(text), workload.get("two_clocks")
    if text == "low_resolution" and clocks is not None:
        return bool(clocks["low_resolution"])
    if text == "precision_blind" and "traits" in workload:
        return workload["traits"].get("rejects_lower_precision") is False
    return bool(workload["blocks"]) if label is not None and label.scope is LabelScope.TIMING else True
