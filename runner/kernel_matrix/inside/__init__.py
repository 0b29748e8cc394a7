"""Everything that runs inside a container: standard library, torch and triton only, Python 3.9 syntax.

``vocab`` and ``messages`` are also the host's vocabulary; they import no torch.
"""
