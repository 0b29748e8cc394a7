"""What nvcc and Triton compile: their command lines, their machine code, and compiling without a GPU."""
