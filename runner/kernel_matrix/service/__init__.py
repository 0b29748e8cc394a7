"""A service that judges candidates sent to it: its queue, its limits and its HTTP interface."""
