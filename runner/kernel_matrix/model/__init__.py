"""Enums and frozen dataclasses shared by the host and the processes inside; standard library, Python 3.9."""
