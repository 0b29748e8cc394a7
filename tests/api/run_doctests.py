"""Run the examples in the docstrings of a module, sessions forked as for tests: ``python run_doctests.py MODULE``."""

import doctest
import importlib
import sys

from kernel_matrix.sandboxes import SANDBOXES

SANDBOXES.built_in["process"] = "tests.sim.preloaded"

if __name__ == "__main__":
    sys.exit(doctest.testmod(importlib.import_module(sys.argv[1])).failed)
