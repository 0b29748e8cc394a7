"""The simulated driver, for the modules that run inside."""

from tests.inside.conftest import cuda, simulated_libcuda

__all__ = ["cuda", "simulated_libcuda"]
