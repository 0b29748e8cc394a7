"""The loop over cells: a lane per device, a build pool beside them, retries, resume, and events for whoever watches.

Cells go to the lanes longest first. A lane takes the first cell of its device whose build is ready, so that a device
never waits for a compiler while something else could run; on a GPU, what it will run next is started while the present
cell is measured. Nothing in here prints.

=============  ========================================================================================
``choice``     which cells of a plan still have to run
``pending``    those that no lane has taken yet
``lane``       the cells of one device, one after the other
``compiling``  the cells that are only compiled, beside all lanes
``outage``     waiting for a sandbox that has stopped answering
``run``        all lanes and the build pool together, told as ``events``
=============  ========================================================================================
"""

from kernel_matrix.executors.events import EventKind, RunEvent
from kernel_matrix.executors.local.rerun import Rerun, cells_left, cells_to_run
from kernel_matrix.executors.local.run import Run
from kernel_matrix.executors.run_policy import RunPolicy

__all__ = ["EventKind", "Rerun", "Run", "RunEvent", "RunPolicy", "cells_left", "cells_to_run"]
