"""``kernel-matrix`` whose process engine forks from a process that has torch: ``python launch.py VERB …``.

Differs from the real command in that alone (:mod:`tests.cheats.preloaded`).
"""

from runner.cli import main
from runner.engines import ENGINES

ENGINES["process"] = "tests.cheats.preloaded"

if __name__ == "__main__":
    main()
