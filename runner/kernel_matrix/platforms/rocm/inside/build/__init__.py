"""Compilers for AMD GPUs, and what they made."""
