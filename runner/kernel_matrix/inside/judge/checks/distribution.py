"""Check of random outputs: distributed like the reference's on the same inputs, at each place, and new with every call.

Each number is ranked among the reference's numbers at the same place in :data:`DRAWS` further runs on the same inputs;
the order of equal ones is random. If both have the same distribution, ranks are uniform, whatever the distribution is
and however it differs from place to place (Talts et al. 2018, "Validating Bayesian inference algorithms with
simulation-based calibration"). All bounds hold for every count of numbers, not only for large ones: that of the
Kolmogorov-Smirnov distance by Dvoretzky, Kiefer and Wolfowitz with Massart's constant (1990), those of sums by
Bernstein's inequality (Boucheron, Lugosi and Massart 2013, theorem 2.10).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch

from kernel_matrix.inside.input_generation import derive_seed
from kernel_matrix.inside.judge.bits import all_bits_set
from kernel_matrix.inside.judge.checks.failure import CheckFailure
from kernel_matrix.inside.judge.checks.values import ValueComparison
from kernel_matrix.inside.judge.tolerance import chunks, floats
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import Evidence

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.checks import CheckedCall

DRAWS = 16
"""Runs of the reference for the ranks; more of them would detect a shift only slightly better."""
SAMPLED = 1 << 20
"""Numbers of an output that are examined: half of them adjacent, half scattered over all others."""
ALARM = 1e-9
"""Largest probability that an honest output of one call is refused."""
STATISTICS = 16
"""Most statistics per output; each gets its share of :data:`ALARM`."""
PART = 256
"""Least size of a part that is examined by itself."""
PARTS = 256
"""Most such parts of an output."""
FEWEST = 16
"""Least count of numbers that allows any conclusion."""
MARGIN = 4.0
"""Factor by which the correlation of numbers may exceed that in one run of the reference."""
DOUBT = 1e-3
"""Probability of taking independent numbers of the reference for correlated, which only costs some sensitivity."""
CLIPPED = 3.0
"""Limit of an element's deviation from the other means, in standard deviations."""

UNCOMPARED = ValueComparison(0, 0, 0, 0, 0.0, 0.0, 0.0)
"""Comparison of an output that is not compared element by element."""

Outputs = Tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class RandomOutputs:
    """Inputs for judging one call of a problem with random outputs."""

    again: Callable[[], Outputs]
    """Function that runs the reference again, on the same inputs."""
    varies: Tuple[bool, ...]
    """Flags of the random outputs; all others are compared element by element."""
    seed: str
    """Secret seed of the examined places and of the order of equal numbers."""
    start: float
    """Start of the adjacent numbers, as a share of the output: the same in all calls of a session."""
    earlier: Dict[int, torch.Tensor]
    """Sums of the ranks of all earlier calls of the same contestant, by output; this call's are added."""


@dataclass(frozen=True)
class Departure:
    """The statistic by which an output differs most from the reference's distribution."""

    words: str
    value: float
    allowed: float
    numbers: int
    """Count of the numbers examined."""

    @property
    def ratio(self) -> float:
        """Value as a share of the limit."""
        return self.value / self.allowed


class _Sample(NamedTuple):
    """Examined numbers of one output, float32 or float64; the first ``side_by_side`` are adjacent."""

    got: torch.Tensor
    """Numbers of the call, shape (numbers,)."""
    control: torch.Tensor
    """Numbers of a run of the reference that is judged like the call, shape (numbers,)."""
    draws: torch.Tensor
    """Numbers of the runs that both are ranked among, shape (:data:`DRAWS`, numbers)."""
    side_by_side: int
    near: float
    """Largest change by rounding: relative to a number's size, and to the spread of all."""
    spread: float
    """Standard deviation of the control."""


def check(call: CheckedCall) -> Optional[CheckFailure]:
    """Return a failure for the first random output that is not finite, or not distributed like the reference's."""
    for index, departure in enumerate(call.departures):
        if departure is None:
            continue
        got = call.outputs[index]
        if _has_nonfinite(got) and not _has_nonfinite(call.expected.trusted[index]):
            return CheckFailure(Status.NONFINITE, Evidence(message=_describe_nonfinite(got, index), output=index))
        if departure.ratio > 1:
            evidence = Evidence(
                message=f"output {index} is not random as the reference's is: {departure.words}",
                output=index,
                error=departure.value,
                allowed=departure.allowed,
                elements=departure.numbers,
            )
            return CheckFailure(Status.INCORRECT_VALUES, evidence)
    return None


def departures(outputs: Sequence[torch.Tensor], randomness: RandomOutputs, rtol: float) -> List[Optional[Departure]]:
    """Return the distance of each random output from the reference's distribution; ``None`` for all others.

    Args:
        outputs: Outputs of the call.
        randomness: Inputs for judging them.
        rtol: Largest relative change of a floating number by rounding, as in
            :mod:`kernel_matrix.inside.judge.tolerance`.
    """
    chosen = [index for index, varies in enumerate(randomness.varies) if varies]
    samples = _samples({index: outputs[index] for index in chosen}, randomness, rtol)
    found: List[Optional[Departure]] = [None] * len(outputs)
    for index, sample in samples.items():
        found[index] = _departure(sample, randomness, index)
    return found


# ---- the numbers


def _samples(outputs: Dict[int, torch.Tensor], randomness: RandomOutputs, rtol: float) -> Dict[int, _Sample]:
    places = {index: _places(floats(output), randomness, index) for index, output in outputs.items()}
    runs: Dict[int, List[torch.Tensor]] = {index: [] for index in outputs}
    for _ in range(DRAWS + 1):
        answers = randomness.again()
        for index in outputs:
            runs[index].append(_numbers(answers[index], places[index][0]))
    samples = {}
    for index, output in outputs.items():
        at, side_by_side = places[index]
        control, draws = runs[index][0], torch.stack(runs[index][1:])
        finite = control[torch.isfinite(control)].double()
        spread = float(finite.std(correction=0)) if finite.numel() else 0.0
        rounds = output.is_floating_point() or output.is_complex()
        near = rtol if rounds else 0.0
        samples[index] = _Sample(_numbers(output, at), control, draws, side_by_side, near, spread)
    return samples


def _places(flat: torch.Tensor, randomness: RandomOutputs, index: int) -> Tuple[torch.Tensor, int]:
    """Return the distinct indices of the numbers to examine, and the count of adjacent ones at their start."""
    count = flat.numel()
    if count <= SAMPLED:
        return torch.arange(count, device=flat.device), count
    side_by_side = SAMPLED // 2
    first = int(randomness.start * (count - side_by_side))
    others = count - side_by_side
    # Take one number of each of equal parts, so that no part is missed and no number is taken twice.
    edges = torch.arange(SAMPLED - side_by_side + 1, device=flat.device) * others // (SAMPLED - side_by_side)
    dice = _dice(flat, randomness, index)
    share = torch.rand(SAMPLED - side_by_side, dtype=torch.float64, device=flat.device, generator=dice)
    scattered = edges[:-1] + (share * (edges[1:] - edges[:-1])).long()
    scattered += side_by_side * (scattered >= first)
    return torch.cat([torch.arange(first, first + side_by_side, device=flat.device), scattered]), side_by_side


def _dice(like: torch.Tensor, randomness: RandomOutputs, *purpose: int) -> torch.Generator:
    return torch.Generator(like.device).manual_seed(derive_seed(randomness.seed, *purpose))


def _numbers(output: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return numbers of ``output``; NaN counts as infinite, and equals other NaNs."""
    numbers = floats(output)[places]
    narrow = numbers.is_floating_point() and numbers.element_size() <= 4
    numbers = numbers.to(torch.float32 if narrow else torch.float64)
    return torch.where(torch.isnan(numbers), math.inf, numbers)


# ---- what is made of them


def _departure(sample: _Sample, randomness: RandomOutputs, index: int) -> Departure:
    count = sample.got.numel()
    if count < FEWEST:
        return Departure("", 0.0, 1.0, count)
    dice = _dice(sample.got, randomness, index, 1)
    near, usual = (_near(numbers, sample) for numbers in (sample.got, sample.control))
    mine, control = (_ranks(*one, sample.draws, dice) for one in ((sample.got, near), (sample.control, usual)))
    weights = _weights(sample.control, sample)
    bunch = _Bunches.of(*(signal[: sample.side_by_side] for signal in (control, _squared(control), control * weights)))
    slack = _moved_by_rounding(usual, sample)
    before = randomness.earlier.get(index)
    signal = mine[: sample.side_by_side]
    found = [
        _by_distance(mine, bunch, slack),
        *_by_moments(mine, bunch, slack),
        _by_means(mine, _weights(sample.got, sample), bunch, slack),
        _by_tails(sample, bunch),
        _by_strangers(~near.any(0), ~usual.any(0), bunch, slack),
        _by_neighbours(signal, bunch),
    ]
    if before is not None:
        found.append(_by_repetition(signal, before, bunch))
    randomness.earlier[index] = signal if before is None else before + signal
    return max(found, key=lambda departure: departure.ratio)


def _near(numbers: torch.Tensor, sample: _Sample) -> torch.Tensor:
    """Return which draws may equal each of ``numbers`` except for rounding, shape (:data:`DRAWS`, numbers)."""
    equal = sample.draws == numbers
    if not sample.near:
        return equal
    reach = sample.draws.abs().add_(sample.spread).mul_(sample.near)
    return equal | ((sample.draws - numbers).abs_() <= reach)


def _ranks(numbers: torch.Tensor, near: torch.Tensor, draws: torch.Tensor, dice: torch.Generator) -> torch.Tensor:
    """Return the rank of each number among the draws, with mean 0 and variance 1; near ones are ordered at random."""
    below = ((draws < numbers) & ~near).sum(0)
    chance = torch.rand(numbers.shape, device=numbers.device, generator=dice)
    rank = (below + chance * (near.sum(0) + 1)) / (len(draws) + 1)
    return math.sqrt(12) * (rank - 0.5)


def _moved_by_rounding(near: torch.Tensor, sample: _Sample) -> float:
    """Return the largest change by rounding in one direction of the average share of draws below a number.

    This is half of the share of draws that are near but not equal, because they lie on either side.
    """
    return float((near & (sample.control != sample.draws)).double().mean()) / 2 if sample.near else 0.0


class _Bunches(NamedTuple):
    """Correlation of the reference's own numbers."""

    products: torch.Tensor
    """Sums of products of ranks with those 1, 2, … places on."""
    size: float
    """Factor on the variance of a sum: 1 for independent numbers, the group size for groups of equal ones."""

    @staticmethod
    def of(*signals: torch.Tensor) -> _Bunches:
        """Return the correlation of adjacent numbers of a reference run: of their ranks and other summed values."""
        count = signals[0].numel()
        products = [_products(signal, signal)[1:count] for signal in signals]
        return _Bunches(products[0], max(1.0, *(1.0 + 2.0 * MARGIN * _reach(sums) / count for sums in products)))


def _reach(products: torch.Tensor) -> float:
    """Return the sum of ``products`` up to the last one beyond a normal deviate's tail of :data:`DOUBT`."""
    count = products.numel() + 1
    significant = (products > math.sqrt(2 * count * math.log(2 * count / DOUBT))).nonzero()
    return float(products[: int(significant[-1]) + 1].sum()) if significant.numel() else 0.0


def _by_distance(ranks: torch.Tensor, bunch: _Bunches, slack: float) -> Departure:
    """Return the Kolmogorov-Smirnov distance of ranks from the uniform distribution."""
    count = ranks.numel()
    ordered = (ranks.double() / math.sqrt(12) + 0.5).sort().values
    steps = torch.arange(count + 1, dtype=torch.float64, device=ranks.device) / count
    distance = float(torch.maximum(steps[1:] - ordered, ordered - steps[:-1]).max())
    allowed = math.sqrt(_evidence() * bunch.size / (2 * count)) + 2 * slack
    return Departure("its numbers follow another distribution", distance, allowed, count)


def _by_moments(ranks: torch.Tensor, bunch: _Bunches, slack: float) -> Iterator[Departure]:
    """Yield the means of the first two Legendre polynomials of ranks, of all and of each part (Neyman 1937).

    The effect of rounding is computed with the polynomials' average slope.
    """
    wide = ranks.double()
    rows = max(1, min(PARTS, ranks.numel() // PART))
    moments = (
        (wide, math.sqrt(3), math.sqrt(12), ("low", "high")),
        (_squared(wide), math.sqrt(5), 3 * math.sqrt(5), ("near to each other", "far apart")),
    )
    for values, largest, steep, words in moments:
        for parts in sorted({1, rows}):
            size = values.numel() // parts
            sums = values[: parts * size].view(parts, size).sum(1)
            place = int(sums.abs().argmax())
            where = "" if parts == 1 else f" in part {place + 1} of {parts}"
            message = f"its numbers lie too {words[int(sums[place] > 0)]}{where}"
            allowed = _most(size, largest, tests=parts, bunch=bunch) / size + slack * steep
            yield Departure(message, abs(float(sums[place])) / size, allowed, values.numel())


def _squared(ranks: torch.Tensor) -> torch.Tensor:
    """Return the second Legendre polynomial of ranks, with mean 0 and variance 1."""
    return math.sqrt(5) / 2 * (ranks.square() - 1)


def _weights(numbers: torch.Tensor, sample: _Sample) -> torch.Tensor:
    """Return the deviation of each place's mean from the others, in standard deviations of the means.

    Each mean is over ``numbers`` and the draws together. It does not show which of them is which, so ranks of honest
    numbers are independent of it.
    """
    means = (sample.draws.sum(0, dtype=torch.float64) + numbers) / (len(sample.draws) + 1)
    finite = torch.isfinite(means)
    means = torch.where(finite, means, means[finite].mean())
    spread = float(means.std(correction=0))
    return ((means - means.mean()) / spread).clamp_(-CLIPPED, CLIPPED) if spread > 0 else torch.zeros_like(means)


def _by_means(ranks: torch.Tensor, weights: torch.Tensor, bunch: _Bunches, slack: float) -> Departure:
    """Return the correlation of ranks with the means of their places.

    It differs from zero if numbers follow these means too closely or too little.
    """
    count = ranks.numel()
    sum_, squares = (float(s) for s in ((ranks * weights).sum(), weights.square().sum()))
    allowed = _most(max(squares, 1.0), CLIPPED * math.sqrt(3), bunch=bunch) / count + slack * math.sqrt(12)
    word = "closely" if sum_ > 0 else "little"
    return Departure(f"its numbers follow the means of their places too {word}", abs(sum_) / count, allowed, count)


def _by_tails(sample: _Sample, bunch: _Bunches) -> Departure:
    """Return the excess of numbers beyond the control's quantiles of 1/2, 1/4, 1/8, … on either side."""
    count, runs = sample.got.numel(), len(sample.draws)
    ordered = sample.control.sort().values
    ranks = [count >> halvings for halvings in range(1, count.bit_length())]
    places = torch.tensor([*ranks, *(count - 1 - rank for rank in ranks)], device=ordered.device)
    limits = ordered[places].unique()
    reach = sample.near * (limits.abs() + sample.spread)
    due = _beyond(sample.draws.reshape(-1), limits).double() / runs
    fewest, most = (_beyond(sample.got, limits + sign * reach).double() for sign in (1, -1))
    rare = torch.minimum(due, count - due) + 2
    excess = torch.maximum(fewest - due, due - most)
    tests = 2 * count.bit_length()
    allowed = torch.tensor([_most(each * (1 + 1 / runs), 1.0, tests=tests, bunch=bunch) for each in rare.tolist()])
    place = int((excess.cpu() / allowed).argmax())
    many = "many" if float(fewest[place]) > float(due[place]) else "few"
    words = f"too {many} of its numbers are larger than {float(limits[place]):.6g}"
    return Departure(words, max(0.0, float(excess[place])) / count, float(allowed[place]) / count, count)


def _by_strangers(strange: torch.Tensor, usual: torch.Tensor, bunch: _Bunches, slack: float) -> Departure:
    """Return the excess over the control of numbers that are near none of the draws (McNemar 1947)."""
    count = strange.numel()
    mine, its = (float((one & ~other).sum()) for one, other in ((strange, usual), (usual, strange)))
    allowed = _most(max(mine + its, 1.0), 1.0, bunch=bunch) + 2 * DRAWS * slack * count
    words = "too many of its numbers are none that the reference returns at their places"
    return Departure(words, max(0.0, mine - its) / count, allowed / count, count)


def _by_neighbours(ranks: torch.Tensor, bunch: _Bunches) -> Departure:
    """Return the largest correlation of ranks with those 1, 2, … places on, beyond the reference's own."""
    count = ranks.numel()
    excess = _products(ranks, ranks)[1:count] - bunch.products
    allowed = math.sqrt(2) * _most(count, 3.0, tests=count, bunch=bunch)
    lag = int(excess.abs().argmax())
    words = f"its numbers go with those {lag + 1} places on"
    return Departure(words, abs(float(excess[lag])) / count, allowed / count, count)


def _by_repetition(ranks: torch.Tensor, before: torch.Tensor, bunch: _Bunches) -> Departure:
    """Return the largest correlation of ranks with those of all earlier calls together, at any shift."""
    count = ranks.numel()
    products = _products(before, ranks).abs()
    largest = math.sqrt(3) * float(before.abs().max())
    squares = float(before.double().square().sum())
    allowed = _most(squares, largest, tests=2 * count, bunch=bunch)
    words = "its numbers go with those of an earlier call, as if they had been kept"
    return Departure(words, float(products.max()) / count, allowed / count, count)


# ---- arithmetic


def _evidence(tests: int = 1) -> float:
    """Return the negative logarithm of the allowed probability of chance, for ``tests`` statistics taken as one."""
    return math.log(2 * STATISTICS * tests / ALARM)


def _most(variance: float, largest: float, *, tests: int = 1, bunch: Optional[_Bunches] = None) -> float:
    """Return a bound that the sum of numbers of mean zero exceeds only by a rare chance (Bernstein's inequality).

    Args:
        variance: Variance of the sum if the numbers were independent.
        largest: Largest absolute value of the numbers.
        tests: Number of statistics taken as one.
        bunch: Correlation of the numbers; by default they are independent.
    """
    size = 1.0 if bunch is None else bunch.size
    evidence = _evidence(tests)
    linear = largest * size * evidence / 3
    return linear + math.sqrt(linear**2 + 2 * variance * size * evidence)


def _products(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return sums of products of ``one`` and ``other`` shifted by 0, 1, … places; by negative shifts from the end."""
    size = 1 << (2 * one.numel() - 1).bit_length()
    left, right = (torch.fft.rfft(numbers.float(), n=size) for numbers in (one, other))
    return torch.fft.irfft(left.conj() * right, n=size)


def _beyond(numbers: torch.Tensor, limits: torch.Tensor) -> torch.Tensor:
    """Return the count of numbers larger than each of ``limits``, which ascend."""
    # The bucket of a number is the count of limits below it, and it counts for each of them.
    below = torch.bincount(torch.bucketize(numbers, limits.contiguous()), minlength=limits.numel() + 1)
    return below.flip(0).cumsum(0).flip(0)[1:]


def _has_nonfinite(output: torch.Tensor) -> bool:
    """Return whether any number is not finite."""
    if not (output.is_floating_point() or output.is_complex()):
        return False
    return any(not bool(torch.isfinite(piece).all()) for _, (piece,) in chunks(output))


def _describe_nonfinite(output: torch.Tensor, index: int) -> str:
    message = f"output {index}: there are numbers that are not finite"
    if bool(all_bits_set(output).any()):
        message += "; some still hold the pattern the buffer was filled with: they were never written"
    return message
