"""``kernel-matrix gpus``: what this host has, what it does now, how fast it can be, and what data sheets say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernel_matrix.cli.options import Json, Lock, Sandbox
from kernel_matrix.cli.table_options import TableOptions, table_verb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kernel_matrix.api.gpus import Gpu
    from kernel_matrix.cli.table_writer import TableColumn

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
    @table_verb
    def gpus(context: typer.Context, *, table: TableOptions) -> None:
        """List the GPUs of this host; changes nothing."""
        if context.invoked_subcommand is None:
            _list(table)

    @verbs.command("list")
    @table_verb
    def list_(*, table: TableOptions) -> None:
        """List the GPUs of this host; changes nothing."""
        _list(table)

    @verbs.command()
    @table_verb
    def show(model: _Model = None, *, prompt: _Prompt = False, table: TableOptions) -> None:
        """Show what data sheets say of a GPU, here or not; without MODEL, a table of all that are known."""
        from kernel_matrix.cli.data_sheet_tables import show_sheets
        from kernel_matrix.errors import UsageError

        if table.as_json and prompt:
            raise UsageError("--json and --prompt are two forms of the same", next_step="give one of them")
        show_sheets(model, table, as_prompt=prompt)

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


def _list(table: TableOptions) -> None:
    from kernel_matrix.api.gpus import describe_gpu, describe_gpu_links, inventory
    from kernel_matrix.cli.output import console, print_json
    from kernel_matrix.cli.table_writer import write_table

    found = inventory()
    gpus, reason = found.gpus, found.reason
    documents = [describe_gpu(gpu) for gpu in gpus]
    if table.as_json:
        print_json({"gpus": documents, "reason": reason})
        return
    screen = console()
    if gpus or not table.for_people:
        write_table(documents, _columns(), table)
    if not table.for_people:
        return
    for document in documents:
        if document["error"]:
            screen.print(f"GPU {document['index']} does not answer: {document['error']}", markup=False)
    for line in describe_gpu_links(gpus):
        screen.print(f"links: {line}", markup=False)
    if reason:
        screen.print(f"{'not listed' if gpus else 'no GPU'}: {reason}", markup=False)


def _columns() -> list[TableColumn]:
    from kernel_matrix.cli.table_writer import TableColumn

    texts: dict[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = {
        "index": ("GPU", lambda gpu: str(gpu["index"])),
        "name": ("", lambda gpu: gpu["name"]),
        "uuid": ("UUID", lambda gpu: gpu["uuid"]),
        "compute_capability": ("compute", lambda gpu: gpu["compute_capability"] or "?"),
        "memory": ("", lambda gpu: f"{gpu['memory_bytes'] / (1 << 30):.0f} GiB"),
        "driver": ("", lambda gpu: gpu["driver"] or "?"),
        "sm_clock": ("SM MHz", lambda gpu: _number(_part(gpu, "now", "sm_clock_mhz"), "")),
        "memory_clock": ("memory MHz", lambda gpu: _number(_part(gpu, "now", "mem_clock_mhz"), "")),
        "power": ("", lambda gpu: _power(_part(gpu, "now", "power_w"), _part(gpu, "details", "power_limit_w"))),
        "temperature": ("", lambda gpu: _number(_part(gpu, "now", "temperature_c"), " °C")),
        "ecc": ("ECC", lambda gpu: _mode(gpu, "ecc")),
        "mig": ("MIG", lambda gpu: _mode(gpu, "mig")),
        "persistence": ("", lambda gpu: _mode(gpu, "persistence")),
        "processes": ("", _processes),
    }
    less = ("uuid", "persistence", "mig", "ecc", "memory_clock", "driver", "sm_clock", "compute_capability")
    return [
        TableColumn(
            name=name,
            heading=heading,
            value=text,
            text=text,
            rank=len(less) - less.index(name) if name in less else 0,
            shortest=12 if name == "processes" else None,
        )
        for name, (heading, text) in texts.items()
    ]


def _part(document: Mapping[str, Any], part: str, name: str) -> Any:
    return document.get(part, {}).get(name)


def _mode(document: Mapping[str, Any], mode: str) -> str:
    return {True: "on", False: "off", None: "–"}[_part(document, "modes", mode)]


def _processes(document: Mapping[str, Any]) -> str:
    return ", ".join(f"{p['pid']} ({p['name']})" for p in document.get("processes", ())) or "none"


def _number(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{value:.0f}{unit}"


def _power(watts: float | None, limit: float | None) -> str:
    of = "" if limit is None else f" of {limit:.0f}"
    return "–" if watts is None else f"{watts:.0f}{of} W"
