"""How close a fleet comes to the ideal time: a simulated one of many nodes, under the real dispatcher.

``python benchmarks/fleet.py [--nodes N] [--cells N] [--dying SHARE]``: virtual time; prints the makespan over the least
that any schedule could take, and what the dispatcher itself took.
"""

from __future__ import annotations

import argparse
import json
import resource
import time

from tests.fleet.simulated import SimulatedFleet, some_cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=400)
    parser.add_argument("--cells", type=int, default=1_000_000)
    parser.add_argument("--dying", type=float, default=0.05)
    asked = parser.parse_args()
    started = time.process_time()
    fleet = SimulatedFleet(nodes=asked.nodes, cells=some_cells(asked.cells), dying=asked.dying)
    fleet.run()
    took_s = time.process_time() - started
    print(
        json.dumps(
            {
                "makespan_over_bound": round(fleet.ended_s / fleet.least_s(), 4),
                "cells": len(fleet.records),
                "measured_twice": sum(number > 1 for number in fleet.records.values()),
                "given_up": len(fleet.dispatcher.given_up),
                "fleet_hours": round(fleet.ended_s / 3600, 2),
                "cpu_s": round(took_s, 1),
                "share_of_a_core": round(took_s / fleet.ended_s, 5),
                "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
