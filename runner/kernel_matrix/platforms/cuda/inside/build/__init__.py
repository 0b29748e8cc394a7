"""Compilation with nvcc and Triton: settings, machine code, and compilation without a GPU."""
