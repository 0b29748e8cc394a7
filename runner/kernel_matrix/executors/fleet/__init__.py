"""Executor ``fleet``: cells run at sites, each behind an engine; records come home as files."""
