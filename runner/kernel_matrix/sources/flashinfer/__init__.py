"""flashinfer-bench and SOL-ExecBench: definitions, workloads, solutions and evaluation traces."""
