"""KernelBench: problems, generated kernels, evaluation results and baseline timings."""
