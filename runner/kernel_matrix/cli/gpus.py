"""``kernel-matrix gpus``: what this host has, what it does now, how fast it can be, and what data sheets say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernel_matrix.cli.options import Json, Lock, Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernel_matrix.api.gpus import Gpu

_JsonLines = Annotated[bool, typer.Option("--json", help="One JSON document per sample, each on a line.")]
_Which = Annotated[str | None, typer.Option("--gpu", metavar="UUID|INDEX", help="Only this one.")]
_Every = Annotated[float, typer.Option("--every", metavar="SECONDS", min=0.02, help="Time between two samples.")]
_Count = Annotated[int | None, typer.Option("--count", metavar="N", min=1, help="End after N samples of each GPU.")]
_Matrix = Annotated[Path, typer.Option("--matrix", metavar="FILE", help="The matrix whose toolchains to choose from.")]
_Toolchain = Annotated[str | None, typer.Option(metavar="NAME", help="Measure with this one; else the newest here.")]
_Model = Annotated[
    str | None, typer.Argument(metavar="MODEL", help="Name, part of one, or a glob: h200, 'rtx 4090', T4; else all.")
]
_Prompt = Annotated[bool, typer.Option("--prompt", help="Plain text of few lines, for a language model's prompt.")]
_Wait = Annotated[float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for a GPU in use.")]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    verbs = typer.Typer(help="GPUs: list, watch, calibrate this host's, show data sheets.", invoke_without_command=True)
    app.add_typer(verbs, name="gpus")

    @verbs.callback()
    def gpus(context: typer.Context, *, json: Json = False) -> None:
        """List the GPUs of this host; changes nothing."""
        if context.invoked_subcommand is None:
            _list(as_json=json)

    @verbs.command("list")
    def list_(*, json: Json = False) -> None:
        """List the GPUs of this host; changes nothing."""
        _list(as_json=json)

    @verbs.command()
    def show(model: _Model = None, *, json: Json = False, prompt: _Prompt = False) -> None:
        """Show what data sheets say of a GPU, here or not; without MODEL, a table of all that are known."""
        from kernel_matrix.cli.data_sheet_tables import show_sheets
        from kernel_matrix.errors import UsageError

        if json and prompt:
            raise UsageError("--json and --prompt are two forms of the same", next_step="give one of them")
        show_sheets(model, as_json=json, as_prompt=prompt)

    @verbs.command()
    def watch(*, gpu: _Which = None, every: _Every = 0.5, count: _Count = None, json: _JsonLines = False) -> None:
        """Show clocks, power, temperature and processes as they change, until Ctrl-C. Changes nothing."""
        from kernel_matrix.api.gpus import find_gpus
        from kernel_matrix.cli.gpu_watch import show_samples

        show_samples(find_gpus(gpu), every_s=every, count=count, as_json=json)

    @verbs.command()
    def calibrate(
        *,
        gpu: _Which = None,
        matrix: _Matrix = Path("matrix.toml"),
        toolchain: _Toolchain = None,
        sandbox: Sandbox = "auto",
        lock: Lock = None,
        wait: _Wait = 300.0,
        json: Json = False,
    ) -> None:
        """Measure how fast each GPU moves bytes and multiplies, and keep that on this host as its peak."""
        from kernel_matrix.api.gpus import calibrate_gpus, find_gpus

        chosen = find_gpus(gpu)
        measured = calibrate_gpus(chosen, matrix, toolchain=toolchain, sandbox=sandbox, lock=lock, wait_s=wait)
        _print_calibrations(zip(chosen, measured, strict=True), as_json=json)


def _print_calibrations(measured: Iterable[tuple[Gpu, dict[str, Any]]], *, as_json: bool) -> None:
    from kernel_matrix.cli.output import print_json

    if as_json:
        print_json([document for _, document in measured])
        return
    for gpu, document in measured:
        _print_calibration(gpu, document)


def _print_calibration(gpu: Gpu, document: dict[str, Any]) -> None:
    from kernel_matrix.cli.output import console

    screen = console()
    screen.print(f"GPU {gpu.index} ({gpu.name}), measured with {document['toolchain']}:", markup=False)
    screen.print(f"  memory  {document['bytes_per_s'] / 1e9:8.4g} GB/s")
    for dtype, rate in document["flops_per_s"].items():
        screen.print(f"  {dtype:<6}  {rate / 1e12:8.4g} TFLOP/s")
    screen.print(f"  kept in {document['kept']}", markup=False)


def _list(*, as_json: bool) -> None:
    from kernel_matrix.api.gpus import describe_gpu, inventory
    from kernel_matrix.cli.output import console, print_json

    found = inventory()
    gpus, reason = found.gpus, found.reason
    documents = [describe_gpu(gpu) for gpu in gpus]
    if as_json:
        print_json({"gpus": documents, "reason": reason})
        return
    screen = console()
    if gpus:
        _print_table(screen, documents)
    if reason:
        screen.print(f"{'not listed' if gpus else 'no GPU'}: {reason}", markup=False)


_COLUMNS = (
    *("GPU", "name", "UUID", "compute", "memory", "driver", "SM MHz", "memory MHz", "power", "temperature"),
    *("ECC", "MIG", "persistence", "processes"),
)


def _print_table(screen: Any, documents: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

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
        *({True: "on", False: "off", None: "–"}[modes.get(mode)] for mode in ("ecc", "mig", "persistence")),
        ", ".join(f"{p['pid']} ({p['name']})" for p in document.get("processes", ())) or "none",
    )


def _number(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{value:.0f}{unit}"


def _power(watts: float | None, limit: float | None) -> str:
    of = "" if limit is None else f" of {limit:.0f}"
    return "–" if watts is None else f"{watts:.0f}{of} W"
