"""As :mod:`tests.sim.launch`, its processes forked: ``python launch_forked.py VERB …``.

The process sandbox, too, shows roles no GPU, and forks them from a process that has torch (:mod:`tests.sim.preloaded`).
That torch says that it was built for every GPU.
"""

from dataclasses import replace

from kernel_matrix.cli import main
from kernel_matrix.environments import PythonEnvironment
from kernel_matrix.hosts import survey
from kernel_matrix.sandboxes import SANDBOXES
from tests.sim import launch  # noqa: F401  # changes this process

_read_environment = survey.read_environment


def _read_for_all_gpus(name: str) -> PythonEnvironment:
    return replace(_read_environment(name), torch_builds={"cuda": "13.0", "rocm": "7.2"})


SANDBOXES.built_in["process"] = "tests.sim.gpuless_processes"
survey.read_environment = _read_for_all_gpus  # for this process only

if __name__ == "__main__":
    main()
