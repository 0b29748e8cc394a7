"""The simulated runtime, for the modules that run inside."""

from tests.inside.conftest import hip, simulated_libamdhip

__all__ = ["hip", "simulated_libamdhip"]
