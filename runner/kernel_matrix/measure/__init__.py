"""What sessions of timed calls say: intervals, verdicts, grades, roofline and drift, as pure functions of numbers.

The unit of inference is the session, not the call: calls of one process share its memory layout, clock and
temperature, so that intervals from pooled calls are far too narrow.
"""
