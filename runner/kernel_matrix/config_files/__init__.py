"""Configuration files in TOML: read, and checked so that all faults are told at once, each with its line."""
