"""``kernel-matrix`` whose process engine forks from a process that has torch: ``python launch.py VERB …``.

Differs from the real command in that alone (:mod:`tests.cheats.preloaded`).
"""

from kernel_matrix.cli import main
from kernel_matrix.sandboxes import ENGINES

ENGINES["process"] = "tests.cheats.preloaded"

if __name__ == "__main__":
    main()
