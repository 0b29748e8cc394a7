"""How often verdicts are right: A/A and +2 % comparisons simulated from the variance of real sessions.

``python benchmarks/verdicts.py [--trials N] [--json]`` draws session speed-ups for each operator of the table below,
adds sessions as a run would until they are precise enough, and counts the verdicts. Three shapes of noise with the same
spread: normal, Student's t with four degrees of freedom, and a core with one stray session in twenty.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from kernel_matrix.measure.intervals import log_interval
from kernel_matrix.measure.verdict import compare, compare_within
from kernel_matrix.model.enums import Verdict

FALSE_LIMIT = 0.01
EQUIVALENT_LIMIT = 0.90
FOUND_LIMIT = 0.95
SLOWDOWN = 1.02

MIN_SESSIONS, MAX_SESSIONS, HALF_WIDTH = 5, 10, 0.005
"""Of the tier ``publish``."""
SCREEN_BLOCKS = 5
"""Blocks per side in a ``screen`` session of 50 calls."""
STRAY_SHARE = 0.05
TAIL_DEGREES = 4


@dataclass(frozen=True)
class Operator:
    """One row of the measured table: an H200 with nothing locked, 20 processes of identical code."""

    name: str
    time_us: float
    within_cv: float
    """Between calls of one session, as a share."""
    ratio_cv: float
    """Of the A/B ratio between sessions."""
    largest: float
    """Largest deviation of that ratio from 1."""


OPERATORS = (
    Operator("matmul 4096 bf16", 174.7, 0.0128, 0.0008, 0.0025),
    Operator("matmul 2048 fp32", 345.2, 0.0064, 0.0089, 0.0264),
    Operator("matmul 8192 bf16", 1585.6, 0.0309, 0.0098, 0.0316),
    Operator("softmax 4096 x 16384", 180.7, 0.0147, 0.0038, 0.0096),
    Operator("layer_norm 4096 x 16384", 226.9, 0.0066, 0.0012, 0.0032),
    Operator("add, 64 M", 130.1, 0.0061, 0.0006, 0.0018),
    Operator("add, 4096", 4.1, 0.0607, 0.0084, 0.0194),
    Operator("conv2d 3x3", 201.2, 0.0040, 0.0005, 0.0010),
    Operator("sum, 64 M", 78.2, 0.0100, 0.0013, 0.0039),
)
TICK_US = 0.032
"""Of the event clock of that GPU."""

Draw = Callable[[Operator, random.Random], float]
"""Log deviation of one session's ratio."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000, help="comparisons per operator, noise and truth")
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = list(simulate(options.trials, random.Random(options.seed)))
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        report(figures)


def simulate(trials: int, dice: random.Random) -> Iterator[dict[str, object]]:
    """Shares of verdicts per noise and operator."""
    for noise, draw in NOISES.items():
        for operator in OPERATORS:
            shares = {
                "aa": counted(partial(publish, operator, draw, 1.0, dice), trials),
                "slower": counted(partial(publish, operator, draw, SLOWDOWN, dice), trials),
                "screen_aa": counted(partial(screen, operator, draw, dice), trials),
            }
            yield {"noise": noise, "operator": operator.name, **told(shares)}


def counted(comparison: Callable[[], Verdict], trials: int) -> Counter[Verdict]:
    return Counter(comparison() for _ in range(trials))


def told(shares: dict[str, Counter[Verdict]]) -> dict[str, float]:
    def share(of: str, *verdicts: Verdict) -> float:
        return sum(shares[of][verdict] for verdict in verdicts) / shares[of].total()

    return {
        "false": share("aa", Verdict.FASTER, Verdict.SLOWER),
        "equivalent": share("aa", Verdict.EQUIVALENT),
        "found": share("slower", Verdict.SLOWER),
        "screen_false": share("screen_aa", Verdict.FASTER, Verdict.SLOWER),
    }


def publish(operator: Operator, draw: Draw, slowdown: float, dice: random.Random) -> Verdict:
    """Return the verdict once sessions are precise enough, or at the greatest number of sessions."""
    speedups: list[float] = []
    while len(speedups) < MIN_SESSIONS or (
        len(speedups) < MAX_SESSIONS and log_interval(speedups).half_width > HALF_WIDTH
    ):
        speedups.append(on_grid(operator, slowdown, draw(operator, dice)))
    return compare(speedups, grain=TICK_US / operator.time_us).verdict


def on_grid(operator: Operator, slowdown: float, deviation: float) -> float:
    """Return a speed-up from two medians on the clock's grid."""
    ours = round(operator.time_us * slowdown * math.exp(deviation) / TICK_US)
    return round(operator.time_us / TICK_US) / ours


def screen(operator: Operator, draw: Draw, dice: random.Random) -> Verdict:
    """Return the verdict of one session of identical code: its own deviation, and that of each pair of blocks."""
    session = draw(operator, dice)
    of_blocks = operator.within_cv / math.sqrt(5)  # medians of ten calls, two of them in each ratio
    pairs = [math.exp(session + dice.gauss(0, of_blocks)) for _ in range(SCREEN_BLOCKS)]
    return compare_within(math.exp(session), pairs, grain=TICK_US / operator.time_us).verdict


def normal(operator: Operator, dice: random.Random) -> float:
    return dice.gauss(0, operator.ratio_cv)


def tailed(operator: Operator, dice: random.Random) -> float:
    chi_squared = dice.gammavariate(TAIL_DEGREES / 2, 2)
    scale = operator.ratio_cv / math.sqrt(TAIL_DEGREES / (TAIL_DEGREES - 2))
    return scale * dice.gauss(0, 1) / math.sqrt(chi_squared / TAIL_DEGREES)


def stray(operator: Operator, dice: random.Random) -> float:
    if dice.random() < STRAY_SHARE:
        return dice.choice((-1, 1)) * operator.largest
    core = operator.ratio_cv**2 - STRAY_SHARE * operator.largest**2
    return dice.gauss(0, math.sqrt(max(core, 0) / (1 - STRAY_SHARE)))


NOISES: dict[str, Draw] = {"normal": normal, "tailed": tailed, "stray": stray}


def report(figures: list[dict[str, object]]) -> None:
    columns = ("false", "equivalent", "found", "screen_false")
    print(f"{'noise':8} {'operator':26}" + "".join(f"{name:>14}" for name in columns))
    for row in figures:
        print(f"{row['noise']:8} {row['operator']:26}" + "".join(f"{100 * row[name]:12.2f} %" for name in columns))
    limits = {"false": FALSE_LIMIT, "equivalent": EQUIVALENT_LIMIT, "found": FOUND_LIMIT, "screen_false": FALSE_LIMIT}
    for noise in NOISES:
        of_noise = [row for row in figures if row["noise"] == noise]
        means = {name: sum(row[name] for row in of_noise) / len(of_noise) for name in columns}
        said = ", ".join(f"{name} {100 * means[name]:.2f} % (limit {100 * limits[name]:.0f} %)" for name in columns)
        print(f"{noise}, all operators: {said}")


if __name__ == "__main__":
    main()
