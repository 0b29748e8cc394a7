"""Claims against the judge's clock and the peak rates: false ones are found, and honest ones are not accused."""

import random
import statistics
from dataclasses import dataclass, field, replace

import pytest

from kernel_matrix.inside.judge.claims import (
    APART_SHARE,
    COARSE_NS,
    FEWEST,
    LEAST_NS,
    ClaimGaps,
    contradiction,
    hold_claims,
    least_time,
    wall_bound,
)
from kernel_matrix.inside.wire import MAX_DEVICE_NS
from kernel_matrix.model.enums import Regime, Role
from kernel_matrix.model.messages import BatchBlock, Block, PeakSpec, WorkloadSpec

US, MS = 1_000, 1_000_000
NO_SPEC, NO_PEAK = WorkloadSpec("default"), PeakSpec()
ROLES = {"eager": Role.BASELINE, "candidate": Role.CANDIDATE}

# --- sessions made up from a host's noise ----------------------------------------------------------------------------


@dataclass
class Host:
    """Time of a call beyond the device's work, microseconds: ``frames`` always, and noise by call and by block.

    ``blocks`` maps the names of a series' blocks, in order, to the time added to each call.
    """

    name: str
    call: object
    blocks: object = lambda _dice, names: [0.0] * len(names)
    frames: float = 57.0


def each(block):
    """Blocks that are independent of each other."""
    return lambda dice, names: [block(dice) for _ in names]


def cores(dice, names):
    """Move either process now and then to a core on which everything takes 90 µs longer, or back."""
    slow = {name: dice.random() < 0.5 for name in ROLES}
    for name in names:
        slow[name] ^= dice.random() < 0.1
        yield 90.0 * slow[name]


def burst(dice, names):
    """Stall three blocks of one side in a row, by other work of the host."""
    stalled = dice.choice(list(ROLES))
    places = [place for place, name in enumerate(names) if name == stalled]
    first = dice.randrange(len(places) - 2)
    return [8_000.0 * (place in places[first : first + 3]) for place in range(len(names))]


QUIET = Host("quiet", lambda dice: abs(dice.gauss(0, 0.7)), each(lambda dice: dice.gauss(0, 0.1)))
SPIKY = Host("spiky", lambda dice: abs(dice.gauss(0, 0.7)) + (dice.expovariate(0.01) if dice.random() < 0.15 else 0))
TWO_STATES = Host("two states", lambda dice: abs(dice.gauss(0, 0.7)) + 8 * (dice.random() < 0.5))
DRIFTING = Host("drifting", lambda dice: abs(dice.gauss(0, 0.7)), each(lambda dice: dice.expovariate(1 / 5)))
BUSY = Host(
    "busy",
    lambda dice: dice.expovariate(1 / 50),
    each(lambda dice: dice.expovariate(1 / 300) if dice.random() < 0.4 else 0.0),
)
TWO_CORES = Host("two cores", lambda dice: abs(dice.gauss(0, 3)), cores, frames=260.0)
BURSTS = Host("bursts", lambda dice: abs(dice.gauss(0, 3)), burst, frames=260.0)
HOSTS = (QUIET, SPIKY, TWO_STATES, DRIFTING, BUSY, TWO_CORES, BURSTS)


def honest(claim):
    """Return (claim, wall beyond the frames) of an honest call."""
    return claim, claim


@dataclass
class Series:
    """Blocks of one series of timed calls, with their hand-overs."""

    blocks: list = field(default_factory=list)
    handovers: dict = field(default_factory=lambda: {"eager": [], "candidate": []})
    deliveries: dict = field(default_factory=dict)
    device: str = "cuda"
    spec: WorkloadSpec = NO_SPEC
    peak: PeakSpec = NO_PEAK
    l2: int = 0
    output_bytes: int = 0
    batches: object = None

    def held(self, **changes):
        return hold_claims(
            self.blocks,
            self.spec,
            self.peak,
            self.l2,
            handovers=self.handovers,
            deliveries=self.deliveries,
            output_bytes=self.output_bytes,
            device=self.device,
            batches=self.batches,
            **changes,
        )

    def words(self):
        return contradiction(self.held(), self.blocks, handovers=self.handovers, device=self.device)


def series(dice, host, *, candidate=honest, eager=60.0, claim=50.0, late=lambda _dice: 0.0, rounds=3, calls=9, **rest):
    """Make a series as the timer takes it: A B B A, about 50 calls of either side.

    :param candidate: its claim and its real time, from the time that it honestly needs; µs.
    :param late: time of its hand-over beyond the baseline's, µs.
    """
    made = Series(**rest)
    firsts = [dice.sample(list(ROLES), 2) for _ in range(rounds)]
    names = [name for one, other in firsts for name in (one, other, other, one)]
    for name, shift in zip(names, host.blocks(dice, names), strict=True):

        def beyond(shift=shift):
            return host.frames + shift + host.call(dice)

        pairs = []
        for _ in range(dice.randrange(calls - 1, calls + 2)):
            needs = (eager if name == "eager" else claim) * dice.gauss(1, 0.01)
            claimed, took = honest(needs) if name == "eager" else candidate(needs)
            pairs.append((round(US * claimed), round(US * (took + beyond()))))
            extra = 0.0 if name == "eager" else late(dice)
            made.handovers[name].append(round(US * (30 + extra + host.call(dice))))
        made.blocks.append(block(name, *zip(*pairs, strict=True), index=len(made.blocks)))
    return made


def block(name, claims, walls, *, index=0, **rest):
    return Block(ROLES[name], index, 0, 1, tuple(claims), tuple(walls), contestant=name, **rest)


def accused(seed, host, **how):
    """Return True if a series is accused, and a second one confirms it."""
    dice = random.Random(seed)
    return bool(series(dice, host, **how).words()) and bool(series(dice, host, **how).words())


def share_accused(host, sessions=200, **how):
    return sum(accused(seed, host, **how) for seed in range(sessions)) / sessions


# --- honest ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_claims_honest_noise_passes_on_any_host(host):
    assert sum(accused(seed, host) for seed in range(2_000)) == 0


@pytest.mark.parametrize(("claim", "eager"), [(4.0, 4.0), (50.0, 5_000.0), (5_000.0, 50.0), (5_000.0, 5_000.0)])
def test_honest_noise_is_not_accused_at_any_size(claim, eager):
    assert share_accused(QUIET, claim=claim, eager=eager) == 0


@pytest.mark.parametrize(("late", "share"), [(80, 0.0), (110, 1.0)])
def test_claims_host_slower_after_long_wait_passes(late, share):
    """Two hundredths of a 3 ms call are 60 µs, which is as late as a host wakes up; half of the frames come on top."""
    assert share_accused(QUIET, sessions=50, candidate=lambda needs: (needs, needs + late), claim=3_000.0) == share


def test_who_claims_less_is_not_given_more_for_it():
    made = series(random.Random(1), QUIET, candidate=lambda needs: (needs / 2, needs), claim=3_000.0)
    assert made.held().resolution_ns == pytest.approx((30 + APART_SHARE * QUIET.frames) * US, rel=0.03)


def slow_core(made, by_us):
    """Make a series of a candidate on a core that is slower by this much per call."""
    late = round(by_us * US)
    for index, one in enumerate(made.blocks):
        if one.role is Role.CANDIDATE:
            made.blocks[index] = replace(one, wall_ns=tuple(ns + late for ns in one.wall_ns))
    return made


@pytest.mark.parametrize(("by_us", "found"), [(25, 0), (35, 50)])
def test_claims_slower_core_passes_up_to_half_of_the_frames(by_us, found):
    made = [slow_core(series(random.Random(seed), QUIET), by_us) for seed in range(50)]
    assert sum("are unexplained" in one.words() for one in made) == found


def test_claims_one_round_of_blocks_is_enough():
    """A round has two blocks of a side, and a protocol may ask for few samples."""
    assert sum(accused(seed, TWO_CORES, rounds=1) for seed in range(200)) == 0


def test_hand_overs_are_told_apart_no_better_than_calls_are():
    made = series(random.Random(1), QUIET, late=lambda _dice: 25)
    assert made.words() == ""
    assert made.held().resolution_ns > made.held().handover_ns > 22 * US


def test_resolution_includes_spread_of_baselines_calls():
    """Its blocks differ by a millisecond."""
    quiet, busy = (slow_core(series(random.Random(1), QUIET), 160) for _ in range(2))
    assert quiet.words()
    for index, one in enumerate(busy.blocks):
        late = MS * (index % 3)
        busy.blocks[index] = replace(one, wall_ns=tuple(ns + late for ns in one.wall_ns))
    assert busy.words() == ""


def test_one_call_that_was_interrupted_is_no_lie():
    made = series(random.Random(1), QUIET)
    made.blocks[-1] = replace(made.blocks[-1], wall_ns=(90 * MS, *made.blocks[-1].wall_ns[1:]))
    assert made.words() == ""


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: host.name)
def test_a_cpu_has_only_the_coarse_rule(host):
    made = series(random.Random(1), host, device="cpu")
    assert made.held().resolution_ns >= COARSE_NS
    assert share_accused(host, device="cpu", candidate=lambda needs: (needs, needs + 900)) == 0


FORGERIES = {
    "claims": (lambda needs: (needs / 20, needs), lambda _dice: 0.0),
    "hands over late": (lambda needs: (needs / 20, needs / 20), lambda _dice: 0.95 * 3_000),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_on_a_cpu_the_bound_holds_no_claim(name):
    candidate, late = FORGERIES[name]
    made = series(random.Random(1), QUIET, device="cpu", claim=3_000.0, candidate=candidate, late=late)
    assert made.held().bound_ns == pytest.approx(3_000 * US, rel=0.02)


def test_claims_bound_is_no_less_than_the_claim():
    made = series(random.Random(1), QUIET, device="cpu", claim=3_000.0, candidate=lambda needs: (needs, needs / 2))
    assert made.held().bound_ns == pytest.approx(3_000 * US, rel=0.02)


def test_claims_on_a_gpu_without_batches_have_no_bound():
    assert series(random.Random(1), QUIET).held().bound_ns is None


# --- batches ---------------------------------------------------------------------------------------------------------


def batches(name, call, *, start=40.0, handover=5.0, noise=0.0, delivered=30.0, count=16, short=False):
    """Make batches of one contestant, µs; every other one is slower by ``noise`` per call."""
    made = []
    for number in range(count):
        calls = 10 if short else 100
        wall = round((start + calls * (call + noise * (number % 2))) * US)
        late, deliveries = round(calls * handover * US), ((round(delivered * US),), (30 * US,))
        made.append(BatchBlock(name, 0, 1, True, short, (calls,), *deliveries, (wall,), (late,)))
    return made


def in_batches(call, **candidate):
    """Make a series of claims of 50 µs against 60 µs, whose batches take ``call`` µs per call against 60 µs."""
    made = series(random.Random(1), QUIET)
    eager = [*batches("eager", 60.0), *batches("eager", 60.0, short=True)]
    made.batches = [*batches("candidate", call, **candidate), *eager, *batches("library", 1.0)]
    return made


def test_claims_bound_of_batches_includes_their_start():
    held = in_batches(50.0).held()
    assert held.bound_ns == pytest.approx(50.4 * US)
    assert not held.low_resolution


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_claims_bound_is_that_of_batches(device):
    made = in_batches(50.0)
    made.device = device
    assert made.held().bound_ns == pytest.approx(50.4 * US)


def test_claims_bound_is_the_upper_end_of_the_interval():
    assert in_batches(50.0, noise=8.0).held().bound_ns == pytest.approx(58.4 * US)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_claims_bound_holds_what_waits_for_hand_over(share):
    call, usual = 50.0, 5.0
    late = usual + share * (call - usual)
    held = in_batches((1 - share) * call, handover=late, start=0.0).held()
    assert held.bound_ns == pytest.approx(call * US, rel=1e-3)
    assert not held.low_resolution, "the time of a call counts what waits, too"


def test_claims_bound_holds_what_was_done_in_the_delivery():
    assert in_batches(40.0, delivered=1_030.0).held().bound_ns == pytest.approx((40.4 + 1000 / 100) * US)


@pytest.mark.parametrize(("noise", "low"), [(21.0, False), (26.0, True)])
def test_claims_low_resolution_is_that_of_batches(noise, low):
    held = in_batches(50.0, noise=noise).held()
    estimate = (50 + noise / 2) * US
    assert held.low_resolution is low
    assert (held.bound_ns - estimate > estimate / 5) is low


@pytest.mark.parametrize("side", ["candidate", "eager"])
def test_claims_too_few_batches_have_a_bound_without_end(side):
    counts = {"candidate": 16, "eager": 16, side: 7}
    made = in_batches(50.0)
    made.batches = [block for name, count in counts.items() for block in batches(name, 50.0, count=count)]
    held = made.held()
    assert held.bound_ns == MAX_DEVICE_NS
    assert held.low_resolution


def test_claims_batches_without_memory_have_a_bound_without_end():
    made = in_batches(50.0)
    assert made.held(batches_broken=True).bound_ns == MAX_DEVICE_NS


def test_claims_batches_that_failed_leave_a_coarse_bound():
    made = in_batches(50.0)
    made.batches = []
    assert made.held().bound_ns == wall_bound(made.blocks, made.handovers)


@pytest.mark.parametrize(("device", "counts"), [("cuda", True), ("cpu", False)])
def test_claims_coarse_bound_holds_what_was_done_in_the_delivery(device, counts):
    made = series(random.Random(1), QUIET, device=device)
    made.batches = []
    usual = made.held().bound_ns
    sizes = {name: len(times) for name, times in made.handovers.items()}
    made.deliveries = {"eager": [900 * US] * sizes["eager"], "candidate": [940 * US] * sizes["candidate"]}
    assert made.held().bound_ns == usual + 40 * US * counts


@pytest.mark.parametrize(("later", "low"), [(0, False), (5, False), (20, True)])
def test_claims_low_resolution_is_that_of_the_coarse_bound(later, low):
    made = series(random.Random(1), QUIET)
    made.batches = []
    sizes = {name: len(times) for name, times in made.handovers.items()}
    made.deliveries = {"eager": [900 * US] * sizes["eager"], "candidate": [(900 + later) * US] * sizes["candidate"]}
    assert made.held().low_resolution is low


def test_claims_batches_accuse_of_nothing():
    made = in_batches(500.0, handover=900.0, delivered=10_000.0)
    assert made.words() == ""


def test_on_a_cpu_a_gross_lie_is_found():
    assert share_accused(QUIET, device="cpu", candidate=lambda needs: (needs, needs + 3_000)) == 1


def test_half_of_a_cpu_call_may_be_unexplained():
    def of(wall_ms):
        pair = [block("eager", [1 * MS] * 9, [2 * MS] * 9), block("candidate", [4 * MS] * 9, [wall_ms * MS] * 9)]
        return Series(blocks=pair, device="cpu").words()

    assert of(9) == ""
    assert "are unexplained" in of(11)


# --- lies ------------------------------------------------------------------------------------------------------------


def test_forty_microseconds_hidden_of_a_hundred_are_found():
    made = series(random.Random(1), QUIET, claim=60, candidate=lambda needs: (needs, needs + 40))
    assert made.held().resolution_ns < 1.2 * APART_SHARE * QUIET.frames * US
    assert made.held().unexplained_ns == pytest.approx(40 * US, abs=US)
    assert made.words().startswith("claims 60.")
    assert "more than the baseline's are unexplained" in made.words()
    assert share_accused(QUIET, claim=60, candidate=lambda needs: (needs, needs + 40)) == 1


LIES = {
    "on a side stream": lambda needs: (1.2, needs),
    "in a thread, before the device is synchronised": lambda needs: (needs * 0.1, needs * 1.1),
    "a forged clock": lambda needs: (needs / 2, needs),
    "a constant": lambda needs: (10.0, needs),
}


@pytest.mark.parametrize("claim", [80.0, 200.0, 5_000.0])
@pytest.mark.parametrize("name", LIES)
def test_work_outside_the_claim_is_found(name, claim):
    assert share_accused(QUIET, sessions=50, claim=claim, eager=claim, candidate=LIES[name]) == 1


def test_who_lies_in_most_calls_only_is_found():
    dice = random.Random(9)

    def lying(needs):
        return (needs - 45, needs) if dice.random() < 0.75 else honest(needs)

    assert share_accused(QUIET, candidate=lying) > 0.95


def test_noise_of_its_own_does_not_hide_a_candidate():
    dice = random.Random(9)

    def noisy(needs):
        return needs - 45, needs + dice.expovariate(1 / 500)

    made = series(random.Random(1), QUIET, candidate=noisy)
    assert made.held().resolution_ns < 1.2 * APART_SHARE * QUIET.frames * US
    assert share_accused(QUIET, candidate=noisy) == 1


def test_a_claim_beyond_the_wall_is_impossible():
    words = series(random.Random(1), QUIET, candidate=lambda needs: (needs + 100, needs)).words()
    assert words.startswith("claims 150.")
    assert "in a call that took 107." in words


@pytest.mark.parametrize(("claim", "impossible"), [(1_004, False), (1_006, True)])
def test_two_clocks_may_differ_by_little(claim, impossible):
    pair = [block(name, [claim * US] * 9, [MS] * 9) for name in ROLES]
    assert bool(Series(blocks=pair).words()) is impossible


def test_work_put_off_until_the_outputs_are_handed_over_is_found():
    words = series(random.Random(1), QUIET, late=lambda _dice: 40).words()
    assert words.startswith("hands over its outputs in 39.9 µs more")
    assert share_accused(QUIET, late=lambda _dice: 40) == 1
    assert share_accused(QUIET, late=lambda _dice: 12) == 0


@pytest.mark.parametrize(("took_us", "too_much"), [(1_070, False), (1_090, True)])
def test_large_outputs_may_take_a_little_longer_to_hand_over(took_us, too_much):
    made = series(random.Random(1), QUIET)
    made.handovers = {"eager": [1_000 * US] * 50, "candidate": [took_us * US] * 50}
    assert bool(made.words()) is too_much


def replays(claim, wall, *, calls=20, regime=Regime.WARM):
    """Make blocks of a regime whose baseline takes 60 µs a call, and 57 µs of frames for all calls of a sample."""
    dice, made = random.Random(4), []
    for name, (device, took) in {"eager": (60, 60), "candidate": (claim, wall)}.items():
        for _ in range(2):
            noise = [QUIET.call(dice) for _ in range(10)]
            walls = [round(US * (took + (57 + n) / calls)) for n in noise]
            made.append(block(name, [US * device] * 10, walls, regime=regime, calls_per_sample=calls))
    return made


def test_replays_are_held_against_the_clock_too():
    made = series(random.Random(1), QUIET)
    made.blocks += replays(50, 50)
    assert made.words() == ""
    made.blocks += replays(10, 50, regime=Regime.SUSTAINED)
    assert made.words().startswith("claims 200.0 µs for the calls of a sustained replay; 800.")


def test_launches_that_take_longer_on_a_slower_core_are_no_lie():
    made = series(random.Random(1), QUIET)
    made.blocks += replays(50, 53)
    assert made.words() == ""
    made.blocks += replays(50, 60, regime=Regime.SUSTAINED)
    assert "sustained replay" in made.words()


def test_a_regime_that_one_side_was_not_timed_in_says_nothing():
    made = series(random.Random(1), QUIET)
    made.blocks += [b for b in replays(10, 50) if b.contestant == "candidate"]
    assert made.words() == ""


# --- resolution ------------------------------------------------------------------------------------------------------


def test_the_resolution_is_that_of_the_host():
    found = {host.name: statistics.median(series(random.Random(s), host).held().resolution_ns for s in range(30))
             for host in HOSTS}  # fmt: skip
    least = LEAST_NS + APART_SHARE * QUIET.frames * US
    assert least <= found["quiet"] < 1.1 * least
    assert found["quiet"] < found["two states"] < found["busy"]


def test_resolution_has_a_share_of_the_claim():
    found = series(random.Random(1), QUIET, claim=5_000).held().resolution_ns
    assert found == pytest.approx((100 + APART_SHARE * QUIET.frames) * US, rel=0.02)


@pytest.mark.parametrize(("claim", "low"), [(4, True), (120, True), (200, False), (500, False)])
def test_a_claim_too_short_for_the_resolution_says_so(claim, low):
    assert series(random.Random(1), QUIET, claim=claim, eager=claim).held().low_resolution is low


@pytest.mark.parametrize(("count", "found"), [(FEWEST, False), (FEWEST + 1, True)])  # the first of a block is left out
def test_few_calls_tell_gross_lies_only(count, found):
    pair = [block("eager", [50 * US] * count, [100 * US] * count)]
    pair += [block("candidate", [50 * US] * count, [200 * US] * count)]
    assert bool(Series(blocks=pair).words()) is found
    pair[1] = block("candidate", [50 * US] * count, [20 * MS] * count)
    assert Series(blocks=pair).words()


def test_one_call_a_side_is_enough_to_look_at():
    pair = [block("eager", [US], [2 * US]), block("candidate", [US], [2 * US])]
    made = Series(blocks=pair)
    assert made.words() == ""
    assert (made.held().unexplained_ns, made.held().handover_ns) == (0, 0)


def test_blocks_that_differ_as_a_whole_count_as_few_samples():
    steps = tuple((level,) * 10 for level in (0, 10, 20, 30, 40, 50))
    mixed = tuple(tuple(range(block % 2, 60, 6)) for block in range(6))
    assert ClaimGaps(steps).noise(0.25) > 3 * ClaimGaps(mixed).noise(0.25)
    assert ClaimGaps(((5,) * 9, (5,) * 9)).noise(0.5) == 0


def test_claims_varying_calls_widen_the_resolution():
    blocks = (tuple(range(0, 900, 100)),) * 6
    assert ClaimGaps(blocks).noise(0.25) > ClaimGaps((tuple(range(0, 90, 10)),) * 6).noise(0.25) > 0


# --- physics ---------------------------------------------------------------------------------------------------------

GB = 1e9
H200 = PeakSpec(bytes_per_s=4800 * GB, flops_per_s=67e12)
L2 = 50 << 20
FLOORS = {
    # name: spec, peak, output bytes, (floor ns, reason)
    "bytes": (WorkloadSpec("w", bytes=9.6 * GB), H200, 0, (2_000_000, "bytes")),
    "outputs stay in the cache": (WorkloadSpec("w", bytes=9.6 * GB), H200, 10**9, (1_989_077, "bytes")),
    "flops": (WorkloadSpec("w", flops=67e9, bytes=48e6), H200, 0, (833_333, "flops")),
    "more bytes than flops": (WorkloadSpec("w", flops=67e9, bytes=9.6 * GB), H200, 0, (2_000_000, "bytes")),
    "outputs": (NO_SPEC, H200, 4800 * 10**6 + L2, (1_000_000, "outputs")),
    "small outputs": (NO_SPEC, H200, L2, (None, "all that must be moved fits into the cache")),
    "no peak": (WorkloadSpec("w", flops=67e9, bytes=48e6), NO_PEAK, 10**9, (None, "no peak rate is known")),
    "no rate for flops": (WorkloadSpec("w", flops=67e9), PeakSpec(bytes_per_s=GB), L2 + 10**9, (10**9, "outputs")),
}


@pytest.mark.parametrize("name", FLOORS)
def test_the_least_time_is_what_peak_rates_allow(name):
    spec, peak, output_bytes, expected = FLOORS[name]
    assert least_time(spec, peak, L2, output_bytes) == expected


@pytest.mark.parametrize(("claim", "impossible"), [(40, True), (94, True), (96, False), (110, False)])
def test_a_claim_below_what_the_device_can_do_is_impossible(claim, impossible):
    spec, peak = WorkloadSpec("w", bytes=100e3), PeakSpec(bytes_per_s=GB)
    dice = random.Random(1)
    made = series(dice, replace(QUIET, call=lambda _dice: 0.5), claim=claim, spec=spec, peak=peak)
    assert made.held().floor_ns == 100 * US
    assert bool(made.words()) is impossible
    assert not impossible or "100.0 µs is the least that its bytes take at peak rate" in made.words()
