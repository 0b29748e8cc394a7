"""Execution of cells on this host: a lane per device, a build pool beside them, retries, resume, and events.

Cells go to the lanes longest first. A lane takes the first cell of its device whose build is ready, so that a device
never waits for a compiler while another cell could run. On a GPU, the processes of its next cells start while the
present cell is measured. Nothing in here prints.

===================  ==================================================================================
``rerun``            selects the cells of a plan that still have to run
``cell_queue``       holds the cells that no lane has taken yet
``lane``             runs the cells of one device, one after the other
``compile_lane``     runs the cells that are only compiled, beside all lanes
``sandbox_outage``   waits for a sandbox that has stopped answering
``run``              runs all lanes and the build pool, and reports ``events``
===================  ==================================================================================
"""

from kernel_matrix.executors.events import EventKind, RunEvent
from kernel_matrix.executors.local.rerun import Rerun, UnitsLeft, cells_left, cells_to_run, longest_first, units_left
from kernel_matrix.executors.local.run import Run
from kernel_matrix.executors.run_policy import RunPolicy

__all__ = [
    "EventKind",
    "Rerun",
    "Run",
    "RunEvent",
    "RunPolicy",
    "UnitsLeft",
    "cells_left",
    "cells_to_run",
    "longest_first",
    "units_left",
]
