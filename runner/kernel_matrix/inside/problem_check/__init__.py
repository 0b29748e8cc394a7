"""Checking problems without a candidate: their references run on the CPU, with the judge's controls."""
