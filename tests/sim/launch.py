"""``kernel-matrix`` on a machine whose only GPUs are simulated: ``python launch.py VERB …``.

Differs from the real command in two places, and in this process only: processes on the GPU load the CPU's inside half,
and Docker shows containers no GPU (:mod:`tests.sim.gpuless`).
"""

from kernel_matrix.cli import main
from kernel_matrix.platforms import Gpu
from kernel_matrix.sandboxes import SANDBOXES

Gpu.inside = property(lambda gpu: "cpu")  # type: ignore[assignment, method-assign]  # for this process only
SANDBOXES.built_in["docker"] = "tests.sim.gpuless"

if __name__ == "__main__":
    main()
