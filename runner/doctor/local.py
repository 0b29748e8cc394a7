"""Cells as processes of this machine: what runs them where no container does."""

from __future__ import annotations

from collections.abc import Iterator

from runner.core import confine
from runner.doctor.finding import Finding, Verdict, ok, warn
from runner.doctor.host import Host
from runner.engines import EngineStatus, open_engine
from runner.facts import installed

_SUBJECT = "local processes"


def check(host: Host) -> Iterator[Finding]:
    """Torch is beside the runner, and the kernel lets it confine what it starts."""
    if host.engine == "docker":
        return
    status = open_engine("process").status()
    if status.available:
        yield _confined(status)
        return
    if host.daemon is None:
        advice = "pip install 'kernel-matrix[local]'" + ("" if host.engine == "process" else ", or start Docker")
        yield Finding(subject=_SUBJECT, verdict=Verdict.FAIL, found=status.reason, advice=advice)
    else:
        yield ok(_SUBJECT, "no torch beside the runner, and none needed: cells run in containers")


def _confined(status: EngineStatus) -> Finding:
    namespaces = status.details["namespaces"]
    torch = installed("torch") or "of unknown version"
    found = f"torch {torch}, confined by {'namespaces' if namespaces != confine.NONE else 'limits only'}"
    if namespaces != confine.NONE:
        return ok(_SUBJECT, found)
    refused = "; ".join(status.details["refused"])
    return warn(_SUBJECT, f"{found} ({refused})", "run candidates you do not trust in containers only")
