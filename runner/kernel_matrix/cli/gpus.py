"""``kernel-matrix gpus``: what this host has, what it does now, how fast it can be, and what data sheets say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernel_matrix.cli.options import Engine, Lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernel_matrix.platforms import Gpu

_Json = Annotated[bool, typer.Option("--json", help="One JSON document with everything the driver says.")]
_JsonLines = Annotated[bool, typer.Option("--json", help="One JSON document per sample, each on a line.")]
_Which = Annotated[str | None, typer.Option("--gpu", metavar="UUID|INDEX", help="Only this one.")]
_Every = Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.02, help="Time between two samples.")]
_Count = Annotated[int | None, typer.Option("--count", metavar="N", min=1, help="End after N samples of each GPU.")]
_Matrix = Annotated[Path, typer.Option("--matrix", metavar="FILE", help="The matrix whose toolchains to choose from.")]
_Toolchain = Annotated[str | None, typer.Option(metavar="NAME", help="Measure with this one; else the newest here.")]
_Model = Annotated[
    str | None, typer.Argument(metavar="MODEL", help="Name, part of one, or a glob: h200, 'rtx 4090', T4; else all.")
]
_JsonSheets = Annotated[bool, typer.Option("--json", help="One JSON document; null is what is not known.")]
_Prompt = Annotated[bool, typer.Option("--prompt", help="Plain text of few lines, for a language model's prompt.")]
_Wait = Annotated[float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for a GPU in use.")]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    verbs = typer.Typer(help="GPUs: list, watch, calibrate this host's, show data sheets.", invoke_without_command=True)
    app.add_typer(verbs, name="gpus")

    @verbs.callback()
    def gpus(context: typer.Context, *, json: _Json = False) -> None:
        """List the GPUs of this host; changes nothing."""
        if context.invoked_subcommand is None:
            _list(as_json=json)

    @verbs.command("list")
    def list_(*, json: _Json = False) -> None:
        """List the GPUs of this host; changes nothing."""
        _list(as_json=json)

    @verbs.command()
    def show(model: _Model = None, *, json: _JsonSheets = False, prompt: _Prompt = False) -> None:
        """Show what data sheets say of a GPU, here or not; without MODEL, a table of all that are known."""
        from kernel_matrix.cli.data_sheet_tables import show_sheets  # noqa: PLC0415  # --help must not wait for it
        from kernel_matrix.errors import UsageError  # noqa: PLC0415  # same

        if json and prompt:
            raise UsageError("--json and --prompt are two forms of the same", next_step="give one of them")
        show_sheets(model, as_json=json, as_prompt=prompt)

    @verbs.command()
    def watch(*, gpu: _Which = None, every: _Every = 0.5, count: _Count = None, json: _JsonLines = False) -> None:
        """Show clocks, power, temperature and processes as they change, until Ctrl-C. Changes nothing."""
        from kernel_matrix.cli.gpu_watch import watch_gpus  # noqa: PLC0415  # --help must not wait for it

        watch_gpus(chosen_gpus(gpu), every_s=every, count=count, as_json=json)

    @verbs.command()
    def calibrate(
        *,
        gpu: _Which = None,
        matrix: _Matrix = Path("matrix.toml"),
        toolchain: _Toolchain = None,
        engine: Engine = "auto",
        lock: Lock = None,
        wait: _Wait = 300.0,
        json: _Json = False,
    ) -> None:
        """Measure how fast each GPU moves bytes and multiplies, and keep that on this host as its peak."""
        from kernel_matrix.cli.gpu_calibrate import CalibrateOptions, calibrate_gpus  # noqa: PLC0415  # --help must not wait for it

        request = CalibrateOptions(matrix=matrix, toolchain=toolchain, engine=engine, lock=lock, wait_s=wait, json=json)
        calibrate_gpus(chosen_gpus(gpu), request)


def chosen_gpus(which: str | None) -> tuple[Gpu, ...]:
    """The GPU that ``which`` names by UUID (or its beginning) or index; without a name, all.

    :raises kernel_matrix.errors.NothingSelectedError: when this host has none, with the reason.
    :raises kernel_matrix.errors.UsageError: when none is so called, or several are.
    """
    from kernel_matrix.errors import NothingSelectedError, UsageError  # noqa: PLC0415  # --help starts without it

    gpus, reason = _inventory()
    if not gpus:
        raise NothingSelectedError(f"this host has no GPU: {reason}", next_step="kernel-matrix doctor says more")
    if which is None:
        return gpus
    found = tuple(gpu for gpu in gpus if which == str(gpu.index) or gpu.uuid.startswith(which))
    if len(found) != 1:
        known = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus)
        what = f"--gpu {which} names {'none' if not found else 'more than one'} of {known}"
        raise UsageError(what, next_step="give an index or a whole UUID")
    return found


def _inventory() -> tuple[tuple[Gpu, ...], str]:
    """Every device of this host that is no CPU, and why there are not more."""
    from kernel_matrix.platforms import host_inventory  # noqa: PLC0415  # --help starts without it

    inventories = [inventory for name, inventory in host_inventory().items() if name != "cpu"]
    gpus = tuple(gpu for inventory in inventories for gpu in inventory.gpus)
    return gpus, "; ".join(inventory.reason for inventory in inventories if inventory.reason)


# ---- list


def _list(*, as_json: bool) -> None:
    from kernel_matrix.cli.output import console, print_json  # noqa: PLC0415  # rich is loaded only when something is printed

    gpus, reason = _inventory()
    documents = [_document(gpu) for gpu in gpus]
    if as_json:
        print_json({"gpus": documents, "reason": reason})
        return
    screen = console()
    if gpus:
        _print_table(screen, documents)
    if reason:
        screen.print(f"{'not listed' if gpus else 'no GPU'}: {reason}", markup=False)


def _document(gpu: Gpu) -> dict[str, Any]:
    """Everything that is known of ``gpu`` now; ``error`` where it does not answer."""
    from dataclasses import asdict  # noqa: PLC0415  # --help starts without it

    from kernel_matrix.errors import InfrastructureError  # noqa: PLC0415  # same
    from kernel_matrix.platforms.peaks import peak_of  # noqa: PLC0415  # same

    document = {**asdict(gpu), "peak": asdict(peak_of(gpu)), "error": ""}
    try:
        return document | _asked(gpu)
    except InfrastructureError as error:
        return document | {"error": str(error)}


def _asked(gpu: Gpu) -> dict[str, Any]:
    """What only the driver can say.

    :raises kernel_matrix.errors.InfrastructureError: when the GPU does not answer.
    """
    from dataclasses import asdict  # noqa: PLC0415  # --help starts without it

    from kernel_matrix.platforms import vendor  # noqa: PLC0415  # same

    asked = vendor(gpu.vendor)
    with asked.opened():
        details = asked.details(gpu)
        return {
            "now": asked.snapshot(gpu),
            "modes": asdict(asked.modes(gpu)),
            "processes": process_documents(asked.processes(gpu)),
            "details": dict(details.values),
            "missing": dict(details.missing),
        }


def process_documents(pids: Sequence[int]) -> list[dict[str, Any]]:
    """Processes on a device, each with what the kernel calls its program."""
    from kernel_matrix.platforms.process_names import command  # noqa: PLC0415  # --help starts without it

    return [{"pid": pid, "name": command(pid)} for pid in pids]


_COLUMNS = (
    *("GPU", "name", "UUID", "compute", "memory", "driver", "SM MHz", "memory MHz", "power", "temperature"),
    *("ECC", "MIG", "persistence", "processes"),
)


def _print_table(screen: Any, documents: list[dict[str, Any]]) -> None:
    from rich.table import Table  # noqa: PLC0415  # rich is loaded only when something is printed
    from rich.text import Text  # noqa: PLC0415  # same

    table = Table(*_COLUMNS, box=None, pad_edge=False)
    for document in documents:
        table.add_row(*map(Text, _row(document)))
    screen.print(table)
    for document in documents:
        if document["error"]:
            screen.print(f"GPU {document['index']} does not answer: {document['error']}", markup=False)


def _row(document: dict[str, Any]) -> tuple[str, ...]:
    now, modes, details = (document.get(part, {}) for part in ("now", "modes", "details"))
    return (
        str(document["index"]),
        document["name"],
        document["uuid"],
        document["compute_capability"] or "?",
        f"{document['memory_bytes'] / (1 << 30):.0f} GiB",
        document["driver"] or "?",
        _number(now.get("sm_clock_mhz"), ""),
        _number(now.get("mem_clock_mhz"), ""),
        _power(now.get("power_w"), details.get("power_limit_w")),
        _number(now.get("temperature_c"), " °C"),
        *(_switch(modes.get(mode)) for mode in ("ecc", "mig", "persistence")),
        ", ".join(f"{p['pid']} ({p['name']})" for p in document.get("processes", ())) or "none",
    )


def _number(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{value:.0f}{unit}"


def _power(watts: float | None, limit: float | None) -> str:
    of = "" if limit is None else f" of {limit:.0f}"
    return "–" if watts is None else f"{watts:.0f}{of} W"


def _switch(on: bool | None) -> str:
    return {True: "on", False: "off", None: "–"}[on]
