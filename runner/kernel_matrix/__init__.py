"""kernel-matrix: run every candidate GPU kernel on every GPU, toolchain and dtype you own, and believe the result."""

__version__ = "0.1.0"
