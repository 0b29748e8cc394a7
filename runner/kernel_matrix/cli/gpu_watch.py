"""``kernel-matrix gpus watch``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict

from rich.live import Live
from rich.table import Table
from rich.text import Text

from kernel_matrix.api.gpus import Gpu, TelemetrySample, describe_processes, watch_gpus
from kernel_matrix.cli.output import console, print_json_line, write_line
from kernel_matrix.model.instants import utc_now

_GIB = 1 << 30

Samples = Mapping[Gpu, TelemetrySample]


def show_samples(gpus: Sequence[Gpu], *, every_s: float, count: int | None, as_json: bool) -> None:
    """Show samples of ``gpus`` until ``count`` of each were shown, or without end."""
    with _screen(as_json=as_json) as show, closing(watch_gpus(gpus, every_s=every_s, count=count)) as samples:
        for one in samples:
            show(one)


@contextmanager
def _screen(*, as_json: bool) -> Iterator[Callable[[Samples], None]]:
    """Yield a function that shows one sample of each GPU: a live table on a terminal, lines elsewhere."""
    if as_json:
        yield _print_documents
    elif sys.stdout.isatty():
        with Live(console=console(), auto_refresh=False) as live:
            yield lambda samples: live.update(_table(samples), refresh=True)
    else:
        yield _print_lines


def _print_documents(samples: Samples) -> None:
    for gpu, sample in samples.items():
        values = asdict(sample)
        processes = describe_processes(values.pop("pids"))
        print_json_line({"index": gpu.index, "uuid": gpu.uuid, "at": utc_now(), **values, "processes": processes})


def _print_lines(samples: Samples) -> None:
    at = utc_now()
    for gpu, sample in samples.items():
        words = "  ".join(f"{heading} {text}" for heading, text in _fields(sample).items() if text)
        write_line(f"{at}  GPU {gpu.index}  {words}")


def _table(samples: Samples) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("GPU", "name", *_fields(next(iter(samples.values())))):
        table.add_column(heading)
    for gpu, sample in samples.items():
        table.add_row(str(gpu.index), Text(gpu.name), *map(Text, _fields(sample).values()))
    return table


def _fields(sample: TelemetrySample) -> dict[str, str]:
    """Heading → what to show; empty where the driver does not say."""
    memory = sample.memory_used_bytes
    return {
        "SM": _with_unit(sample.sm_clock_mhz, "MHz"),
        "memory clock": _with_unit(sample.mem_clock_mhz, "MHz"),
        "power": _with_unit(sample.power_w, "W"),
        "temperature": _with_unit(sample.temperature_c, "°C"),
        "busy": _with_unit(sample.utilization_percent, "%"),
        "memory used": "" if memory is None else f"{memory / _GIB:.1f} GiB",
        "clock because of": ", ".join(reason.value for reason in sample.reasons or ()),
        "processes": ", ".join(f"{one['pid']} ({one['name']})" for one in describe_processes(sample.pids)) or "none",
    }


def _with_unit(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.0f} {unit}"
