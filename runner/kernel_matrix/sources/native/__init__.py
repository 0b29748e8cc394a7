"""Candidates written as one C++, CUDA or HIP file."""
