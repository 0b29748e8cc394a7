"""ParallelKernelBench: problems of several ranks, and solutions of them."""
