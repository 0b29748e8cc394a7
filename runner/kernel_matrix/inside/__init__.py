"""Everything that runs inside a container: standard library, torch and triton only, Python 3.9 syntax."""
