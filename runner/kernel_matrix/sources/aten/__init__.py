"""Operators of PyTorch's own test database (OpInfo) as problems."""
