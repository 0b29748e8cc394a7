"""Things that dead runners left: changed settings of GPUs, containers and folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kernel_matrix.attempt.scratch import scratch_leftovers
from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.hosts.process_token import owner_alive
from kernel_matrix.lease.journal import UnreadableJournalError, journal_files, read_journal
from kernel_matrix.lease.locks import lock_folder
from kernel_matrix.platforms.check_result import CheckResult, fail, ok, warn
from kernel_matrix.sandboxes import open_sandbox

_SUBJECT = "leftovers"
_ADVICE = "kernel-matrix sweep removes it; every run does so first"


def check(host: Host) -> Iterator[CheckResult]:
    """Check that nothing is left, for example locked clocks, which would change the next measurement."""
    folder = lock_folder()
    uuids = (path.name.partition(".")[0] for path in journal_files(folder))
    settings = [line for uuid in uuids if (line := _orphaned_setting(folder, uuid))]
    for line in settings:
        yield fail(_SUBJECT, line, _ADVICE)
    things = [*scratch_leftovers(), *open_sandbox("process").leftovers()]
    if host.daemon is not None:
        things += open_sandbox("docker").leftovers()
    for line in things:
        yield warn(_SUBJECT, line, _ADVICE)
    if not settings and not things:
        yield ok(_SUBJECT, f"none; device locks are kept in {folder}")


def _orphaned_setting(folder: Path, uuid: str) -> str:
    """Return one line about the settings that a dead runner changed on a GPU and did not reset; empty if none."""
    try:
        journal = read_journal(folder, uuid)
    except UnreadableJournalError as error:
        return f"something was set on {uuid}, and the journal that says what {error}"
    if journal is None or owner_alive(journal.owner):
        return ""
    parts = {"SM clock": journal.sm, "memory clock": journal.memory, "compute mode": journal.compute_mode}
    changed = ", ".join(part for part, note in parts.items() if note is not None)
    return f"{changed} of {uuid}, set by run {journal.run_id or 'unknown'}, whose runner is gone"
