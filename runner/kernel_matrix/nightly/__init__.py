"""Parts of a night of measuring; :mod:`kernel_matrix.api.nightly` puts them together.

=================== ============================================================================
``paths``           which file is where in the results folder
``state``           what one night leaves for the next
``start``           the lock, the night's own folder, and which cells come first
``deadline``        a time of day as a deadline
``baselines``       frozen copies of merged tables, by name
``accept_changes``  adds to the file of accepted changes
``night_summary``   what became of a night, as text and as JSON
``finish``          merge, compare and report, however the measuring ended
``notification``    runs the user's command
``webhook``         posts the text to chats
``prometheus``      writes metrics for node_exporter
``retention``       removes old nights
``schedules``       units of systemd and a line for cron
=================== ============================================================================
"""
