"""``kernel-matrix`` whose process sandbox forks from a process that has torch: ``python launch_preloaded.py VERB …``.

Differs from the real command in that alone (:mod:`tests.sim.preloaded`).
"""

from kernel_matrix.cli import main
from kernel_matrix.sandboxes import SANDBOXES

SANDBOXES.built_in["process"] = "tests.sim.preloaded"

if __name__ == "__main__":
    main()
