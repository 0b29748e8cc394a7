"""A night of measuring: plan, run until a deadline, merge, compare with the baseline, report, tell somebody.

============= =================================================================================
``places``    which file is where in the results folder
``state``     what one night leaves for the next
``beginning`` the lock, the night's own folder, and which cells come first
``until``     a time of day as a deadline
``baselines`` frozen copies of merged tables, by name
``accepting`` adds to the corpus of accepted changes
``against``   the comparison with a baseline
``reporting`` the page
``summary``   what became of a night, for people and as JSON
``ending``    merge, compare and report, whatever became of the measuring
``telling``   runs the user's command
``schedules`` units of systemd and a line for cron
============= =================================================================================

The measuring itself is :mod:`kernel_matrix.executors.local`, as ``kernel-matrix run`` uses it. Nothing in here prints.
"""
