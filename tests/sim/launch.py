"""``kernel-matrix`` on a machine whose only GPUs are simulated: ``python launch.py VERB …``.

Differs from the real command in three places, and in this process only: processes on the GPU load the CPU's inside
half, Docker shows containers no GPU, and judges' reports have clocks read inside a kernel (:mod:`tests.sim.gpuless`).
"""

from kernel_matrix.attempt import session_processes
from kernel_matrix.cli import main
from kernel_matrix.platforms import Gpu
from kernel_matrix.sandboxes import SANDBOXES
from tests.sim.gpuless import read_report_with_probes

Gpu.inside = property(lambda gpu: "cpu")  # type: ignore[assignment, method-assign]  # for this process only
SANDBOXES.built_in["docker"] = "tests.sim.gpuless_docker"
session_processes.read_report = read_report_with_probes  # for this process only

if __name__ == "__main__":
    main()
