"""What a node of a site has: found by a job there, so that cells are planned for what they will meet."""

from __future__ import annotations

import json
import platform
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kernel_matrix.errors import InfrastructureError, KernelMatrixError
from kernel_matrix.executors.engines import ENGINES, LOG_FILE, EngineSession, Job
from kernel_matrix.fleet import Site
from kernel_matrix.fleet.chunks import SlotKind
from kernel_matrix.hosts.code_versions import measurement_version
from kernel_matrix.hosts.survey import survey
from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.model.messages import from_json, to_json
from kernel_matrix.plan.host_inventory import HostInventory
from kernel_matrix.platforms.registry import PLATFORMS
from kernel_matrix.untrusted_json import UntrustedJsonError, read_object
from kernel_matrix.version import __version__

SPEC_FILE: Final = "node.json"
REPORT_FILE: Final = "report.json"
_LOOK_EVERY_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """A node, as a job on it saw it."""

    version: str
    """Of kernel-matrix there."""
    measurement_versions: Mapping[str, str]
    """Platform → version of the code that measures; times of different ones are not compared."""
    hostname: str
    inventory: HostInventory
    """With the devices that the engine gave to the job."""
    image_ids: Mapping[str, str]
    """Toolchain → id of its image there."""

    @property
    def devices(self) -> str:
        """The names of the devices."""
        return ", ".join(gpu.name for gpu in self.inventory.gpus) or "no device"


def describe_node(matrix: Path, *, sandbox: str, lock: Path | None, engine: str) -> NodeReport:
    """Describe this host, for cells of ``matrix``; called by a job.

    Raises:
        KernelMatrixError: The matrix cannot be read here, or the sandbox cannot be used.
    """
    host = survey(load_matrix(matrix), sandbox=sandbox, lock_path=lock)
    mine = ENGINES.load(engine).allocated(host.inventory.gpus)
    return NodeReport(
        version=__version__,
        measurement_versions={name: measurement_version(name) for name in PLATFORMS},
        hostname=platform.node(),
        inventory=replace(host.inventory, gpus=mine),
        image_ids={name: image.id for name, image in host.images.items()},
    )


def write_node_report(spec: Path) -> None:
    """Describe this host as ``spec`` asks, into a file beside it; called by a job."""
    asked = read_object(spec)
    lock = Path(asked["lock"]) if asked.get("lock") else None
    report: dict[str, Any]
    try:
        found = describe_node(Path(asked["matrix"]), sandbox=asked["sandbox"], lock=lock, engine=asked["engine"])
        report = to_json(found)
    except KernelMatrixError as error:
        report = {"error": str(error)}
    replace_file(spec.with_name(REPORT_FILE), json.dumps(report))


def ask_nodes(
    site: Site, session: EngineSession, *, prefix: str, order: Mapping[str, Any], limit_s: float, refresh: bool
) -> dict[SlotKind, NodeReport | str]:
    """Let a job on one GPU of each model of a site describe its node.

    Args:
        site: The site.
        session: Its engine, for jobs whose names begin with ``prefix``.
        prefix: Name of the store of results.
        order: What the reports depend on: what ``chunk.json`` holds besides the cells, and a digest of its files.
        limit_s: How long jobs may wait and take.
        refresh: Ask again where a report for the same ``order`` is there.

    Returns:
        Kind of GPU → the report, or why there is none.

    Raises:
        EngineError: The engine does not answer.
    """
    units = session.units()
    wanted = site.gpus or tuple(units)
    found: dict[SlotKind, NodeReport | str] = {
        SlotKind(site.name, resource): f"the site has no {resource}; it has {', '.join(units) or 'nothing'}"
        for resource in wanted
        if not units.get(resource)
    }
    asked: dict[SlotKind, Path] = {}
    for resource in wanted:
        slot, begin = SlotKind(site.name, resource), f"{prefix}-check-{resource}-"
        earlier = sorted((site.workspace / prefix).glob(f"{begin}??????"))
        known = None if refresh else next(filter(None, (_known(folder, order) for folder in earlier)), None)
        if known is not None:
            found[slot] = known
        elif slot not in found:
            for folder in earlier:
                shutil.rmtree(folder, ignore_errors=True)
            # Engines take a name once.
            token = f"{begin}{secrets.token_hex(3)}"
            folder = site.workspace / prefix / token
            folder.mkdir(parents=True)
            replace_file(folder / SPEC_FILE, json.dumps(dict(order)))
            command = (*site.start, "cell", "node", str(folder / SPEC_FILE))
            session.submit(Job(token=token, resource=resource, folder=folder, command=command))
            asked[slot] = folder
    over = _wait_for(session, {folder.name for folder in asked.values()}, limit_s)
    session.cancel(folder.name for folder in asked.values())
    return found | {slot: _read(folder, is_over=folder.name in over) for slot, folder in asked.items()}


def _known(folder: Path, order: Mapping[str, Any]) -> NodeReport | None:
    """Return the report that an earlier job with the same ``order`` has left."""
    try:
        if read_object(folder / SPEC_FILE) != order:
            return None
    except UntrustedJsonError:
        return None
    found = _read(folder, is_over=True)
    # One that would be refused may be out of date.
    return None if isinstance(found, str) or _measures_otherwise(found) else found


def _wait_for(session: EngineSession, tokens: set[str], limit_s: float) -> set[str]:
    """Wait until these jobs are over, and return the names of those that are."""
    end_s = time.monotonic() + limit_s
    while True:
        over = tokens & {token for token, status in session.statuses().items() if status.state.is_over}
        if over == tokens or time.monotonic() >= end_s:
            return over
        time.sleep(_LOOK_EVERY_S)


def _read(folder: Path, *, is_over: bool) -> NodeReport | str:
    try:
        document = read_object(folder / REPORT_FILE)
        return str(document["error"]) if "error" in document else from_json(NodeReport, document)
    except UntrustedJsonError as error:
        log = folder / LOG_FILE
        if log.is_file():
            said = log.read_text(errors="replace")[-500:].strip()
        elif is_over:
            said = f"its job has ended and left no output: does its node see {folder.parent}, as this machine does?"
        else:
            said = "its job did not begin in time"
        return f"no report: {error.reason}; {said}"
    except ValueError as error:
        return f"its report is refused: {error}"


def _measures_otherwise(report: NodeReport) -> bool:
    return any(report.measurement_versions.get(name) != measurement_version(name) for name in PLATFORMS)


def check_versions(reports: Mapping[SlotKind, NodeReport]) -> None:
    """Refuse nodes whose code measures in another way than this machine's.

    Raises:
        InfrastructureError: One does.
    """
    for slot, report in reports.items():
        if _measures_otherwise(report):
            what = f"site {slot.site}: {report.hostname} has kernel-matrix {report.version}, which measures otherwise"
            raise InfrastructureError(what, next_step=f"install {__version__} there, as here")
