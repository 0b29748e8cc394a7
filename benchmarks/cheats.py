"""Every known cheat through the command line: how each ended, why, and what it cost.

::

    python benchmarks/cheats.py                                              # on the CPU, as processes
    python benchmarks/cheats.py --without-namespaces                         # as on a machine that refuses them
    python benchmarks/cheats.py --service                                    # sent to a service
    python benchmarks/cheats.py --device cuda --sandbox docker --lock images/images.lock
    python benchmarks/cheats.py --device cuda --only 'd15_*' --only 'control_*'

Wanted: every cheat stopped, or timed as what it costs; every control accepted; no cell over 10 s, its build and its
wait for the device left out. The exit code is 1 when that is missed.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kernel_matrix.conformance.cheats import CONTROL, Cheat

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the cheats lie beside the tests, which are no package that is installed

from kernel_matrix.platforms.registry import get_platform  # noqa: E402  # as above
from tests.cheats.collection import GROUPS, cheats  # noqa: E402  # as above
from tests.cheats.night import Ended, Night, Stand, on_gpu, spend, spend_in_service  # noqa: E402  # as above

WANTED_S = 10.0
RANKS = GROUPS["E"]
WITHOUT_NAMESPACES = ROOT / "tests" / "sim" / "launch_without_namespaces.py"


def main() -> int:
    """Run and print one row per cheat."""
    arguments = read_arguments()
    chosen = [cheat for cheat in cheats(arguments.device) if is_wanted(cheat, arguments.only)]
    if not can_run_ranks(arguments):
        chosen = [cheat for cheat in chosen if cheat.group != RANKS]
    night = (spend_in_service if arguments.service else spend)(chosen, stand(arguments))
    print(night.stderr, end="")
    print(f"{'class':8} {'cheat':42} {'status':20} {'s':>6}  what stopped it, and the evidence")
    missed = sum([tell(cheat, night) for cheat in chosen])
    left = ", ".join(night.leftovers) or "nothing"
    print(f"{len(chosen)} cheats and controls, {missed} not as wanted; left behind: {left}")
    return int(missed > 0 or night.code != 0)


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--sandbox", choices=("docker", "unpacked", "process"), default="process")
    parser.add_argument("--without-namespaces", action="store_true", help="confine processes by Landlock and a filter")
    parser.add_argument("--service", action="store_true", help="send them to `kernel-matrix serve`")
    parser.add_argument("--lock", type=Path, help="images lock, for sandboxes with images")
    parser.add_argument("--toolchain", default="cu130", help="name of the image, for sandboxes with images on a GPU")
    parser.add_argument("--cuda", default="13.0", help="its CUDA version")
    parser.add_argument("--only", action="append", metavar="GLOB", help="names of the cheats to run")
    return parser.parse_args()


def is_wanted(cheat: Cheat, globs: Sequence[str] | None) -> bool:
    return globs is None or any(fnmatch.fnmatch(cheat.path.stem, glob) for glob in globs)


def can_run_ranks(arguments: argparse.Namespace) -> bool:
    """Return True if processes have a network of their own, and there is a device for each of two ranks."""
    if arguments.without_namespaces:
        return False
    return arguments.device == "cpu" or len(get_platform(arguments.device).inventory().gpus) > 1


def stand(arguments: argparse.Namespace) -> Stand:
    """Return the stand that the cheats run on, from the command line."""
    if arguments.device == "cpu":
        found = Stand(sandbox=arguments.sandbox, lock=arguments.lock)
    else:
        found = on_gpu(arguments.sandbox, toolchain=arguments.toolchain, cuda=arguments.cuda, lock=arguments.lock)
    return replace(found, program=(str(WITHOUT_NAMESPACES),)) if arguments.without_namespaces else found


def tell(cheat: Cheat, night: Night) -> bool:
    """Print one row; whether something is not as wanted."""
    ended = night.ended.get(cheat.candidate)
    if ended is None:
        print(f"{cheat.kind:8} {cheat.candidate:42} NOT RUN")
        return True
    faults = [fault for fault in (ended.wrong(), ended.unread(), slow(ended)) if fault]
    said = f"{cheat.stopped_by}: {ended.evidence}" if cheat.kind != CONTROL else ended.evidence
    print(f"{cheat.kind:8} {cheat.candidate:42} {ended.status.value:20} {ended.seconds:6.1f}  {said[:120]}")
    for fault in faults:
        print(f"{'':8} NOT AS WANTED: {fault}")
    return bool(faults)


def slow(ended: Ended) -> str:
    if ended.seconds <= WANTED_S:
        return ""
    host = ended.record["host"]["phases_s"]
    inside = [session["durations_s"] for session in ended.record["sessions"]]
    return f"took {ended.seconds:.1f} s; on the host {longest(host)}; inside {', '.join(map(longest, inside))}"


def longest(seconds: Mapping[str, float]) -> str:
    """Return the parts that took longest."""
    parts = sorted(((took, name) for name, took in seconds.items() if name != "total"), reverse=True)
    return " ".join(f"{name} {took:.1f}" for took, name in parts[:5])


if __name__ == "__main__":
    sys.exit(main())
