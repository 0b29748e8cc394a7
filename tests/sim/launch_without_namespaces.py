"""``kernel-matrix`` on a machine that refuses namespaces: ``python launch_without_namespaces.py VERB …``.

Differs from the real command in this process only: the process sandbox does not try the levels that need namespaces.
"""

from kernel_matrix.cli import main
from kernel_matrix.sandboxes import process

levels = process._candidate_levels
process._candidate_levels = lambda: [level for level in levels() if not level.is_private]

if __name__ == "__main__":
    main()
