"""Statistics of timed sessions: intervals, verdicts, grades, roofline and drift, as pure functions of numbers.

The unit of inference is the session, not the call. Calls of one process share its memory layout, clock and
temperature, so intervals from pooled calls are far too narrow.
"""
