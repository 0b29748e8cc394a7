"""KernelBench-X and TritonBench-T: tasks, generated answers and metrics."""
