"""The process that compiles a candidate, without a GPU."""
