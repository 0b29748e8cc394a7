"""The thin runner beside a candidate (or a baseline): takes calls from the judge, knows nothing of what is right.

``python -m runner.core.worker --channel DIR --code DIR --device cuda [--artifact FILE]`` in a candidate's container;
the judge's baseline is served by the same :class:`Worker`. Everything this process says is a claim.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import tarfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple

from runner.core.wire import (
    MAX_FROM_JUDGE,
    MAX_OUTPUTS,
    Channel,
    Failure,
    Gone,
    Kind,
    OutputClaim,
    OutputsClaim,
    Structure,
    pack_done,
    pack_failed,
    pack_outputs,
)

if TYPE_CHECKING:
    import torch

    from runner.core.memory import Arena, TensorSpec

SOCKET_NAME = "judge.sock"
"""Name of the judge's socket in the channel folder."""

MTIME_HEADER = "KERNELMATRIX.mtime_ns"
"""PAX header in an artefact: a file's modification time in nanoseconds."""

MODULE_SEED = 42
"""Seed set before every model is constructed, on both sides: KernelBench's way of matching parameters."""


def classify(error: BaseException) -> Failure:
    """Which kind of failure an exception of candidate code is."""
    name = type(error).__name__
    module = type(error).__module__ or ""
    if isinstance(error, MemoryError) or name == "OutOfMemoryError":
        return Failure.MEMORY
    if isinstance(error, SyntaxError) or "Error building extension" in str(error):
        return Failure.COMPILE
    # The interpreter's error stands for the compiler's, which says the same of the same source on a GPU.
    if name in ("CompilationError", "InterpreterError") or module.startswith("triton.compiler"):
        return Failure.COMPILE
    return Failure.RUNTIME


class Worker:
    """Answers one judge until it says goodbye."""

    def __init__(self, channel: Channel, code: Path) -> None:
        self._channel = channel
        self._code = code
        self._module: Any = None
        self._settings: Any = None
        self._model: Any = None
        self._inputs: List[Any] = []
        self._output_specs: List[TensorSpec] = []
        self._output_views: List[torch.Tensor] = []
        self._arenas: List[Arena] = []
        self._flush: Optional[torch.Tensor] = None

    def serve(self) -> None:
        """Answer frames until the judge goes away."""
        steps = {Kind.LOAD: self._load, Kind.MODEL: self._construct, Kind.BUFFERS: self._take_buffers}
        while True:
            kind, sequence, payload, descriptors = self._channel.receive_with_descriptors()
            if kind is Kind.BYE:
                return
            if kind in (Kind.CALL, Kind.PROBE):
                self._answer_call(sequence, probe=kind is Kind.PROBE)
            else:
                self._answer(steps[kind], payload, descriptors)

    def _answer(self, step: Any, payload: bytes, descriptors: Sequence[int]) -> None:
        import json  # noqa: PLC0415  # the connection is made before anything else is imported

        try:
            step(json.loads(payload), descriptors)
        except Exception as error:  # noqa: BLE001  # whatever candidate code raises is its own failure, told in full
            kind = classify(error)
            self._fail(Failure.LOAD if kind is Failure.RUNTIME else kind)
        else:
            self._channel.send(Kind.READY)

    def _fail(self, failure: Failure) -> None:
        self._channel.send(Kind.FAILED, 0, pack_failed(failure, traceback.format_exc()))

    def _load(self, settings: Any, _descriptors: Sequence[int]) -> None:
        from runner.core.sourcefile import import_file  # noqa: PLC0415  # torch comes with it, after connecting

        self._settings = settings
        values = settings["values"] if settings["entry"] == "Model" else {}
        self._module = import_file(self._code / settings["file"], settings["module"], values)
        if not hasattr(self._module, settings["entry"]):
            raise AttributeError(f"{settings['file']} defines no class {settings['entry']}")

    def _construct(self, message: Any, descriptors: Sequence[int]) -> None:
        import torch  # noqa: PLC0415

        from runner.core.arguments import decode_arguments  # noqa: PLC0415
        from runner.core.memory import TensorSpec, open_arena  # noqa: PLC0415

        device = self._settings["device"]
        arena = open_arena(device, descriptors[0], message["nbytes"])
        specs = [TensorSpec.from_json(s) for s in message["tensors"]]
        tensors = [spec.view(arena.tensor).clone() for spec in specs]
        self._synchronize()  # the memory may go only when it has been copied
        arena.close()
        arguments = decode_arguments(message["init"], tensors)
        state = {name: tensors[index] for name, index in message["state"].items()}
        torch.manual_seed(MODULE_SEED)
        model = getattr(self._module, self._settings["entry"])(*arguments)
        if isinstance(model, torch.nn.Module):
            model = place_model(model, device, message["dtype"])
            _copy_state(model, state)
        self._model = model
        self._flush = torch.empty(message["flush_bytes"], dtype=torch.uint8, device=device)
        self._synchronize()

    def _take_buffers(self, message: Any, descriptors: Sequence[int]) -> None:
        from runner.core.arguments import decode_arguments  # noqa: PLC0415
        from runner.core.memory import TensorSpec, open_arena  # noqa: PLC0415

        device = self._settings["device"]
        self._inputs, self._output_views = [], []
        while self._arenas:
            self._arenas.pop().close()
        sizes = (message["input_bytes"], message["output_bytes"])
        self._arenas = [open_arena(device, fd, nbytes) for fd, nbytes in zip(descriptors, sizes)]
        specs = [TensorSpec.from_json(s) for s in message["inputs"]]
        self._inputs = decode_arguments(message["arguments"], [s.view(self._arenas[0].tensor) for s in specs])
        self._output_specs = [TensorSpec.from_json(s) for s in message["outputs"]]
        self._output_views = [s.view(self._arenas[1].tensor) for s in self._output_specs]

    def _answer_call(self, sequence: int, *, probe: bool) -> None:
        try:
            returned, device_ns = self._timed_call(probe=probe)
        except Exception as error:  # noqa: BLE001  # as above
            self._fail(classify(error))
            return
        self._channel.send(Kind.DONE, sequence, pack_done(device_ns))
        try:
            claim = self._copy_out(returned) if not probe else OutputsClaim(Structure.OTHER, ())
        except Exception as error:  # noqa: BLE001  # a lazy output may raise here
            self._fail(classify(error))
            return
        self._channel.send(Kind.OUTPUTS, sequence, pack_outputs(claim))

    def _timed_call(self, *, probe: bool) -> Tuple[Any, int]:
        """Run the model once; returns what it returned and the device time in nanoseconds."""
        import torch  # noqa: PLC0415

        with torch.no_grad():
            if self._settings["device"] == "cpu":
                self._write_flush()
                started = time.perf_counter_ns()
                returned = None if probe else self._model(*self._inputs)
                return returned, time.perf_counter_ns() - started
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            # The flush keeps the device busy while the host enqueues the call, so that launch latency is hidden.
            self._write_flush()
            begin.record()
            returned = None if probe else self._model(*self._inputs)
            end.record()
            torch.cuda.synchronize()
            return returned, round(begin.elapsed_time(end) * 1e6)

    def _write_flush(self) -> None:
        if self._flush is not None and self._flush.numel():
            self._flush.zero_()

    def _copy_out(self, returned: Any) -> OutputsClaim:
        import torch  # noqa: PLC0415

        structure, outputs = _flatten(returned)
        copied = len(outputs) == len(self._output_views)
        claims = []
        for index, output in enumerate(outputs[:MAX_OUTPUTS]):
            view = self._output_views[index] if copied else None
            with torch.no_grad():  # a parameter may be returned as it is; buffers record nothing
                claims.append(_copy_one(output, view))
        self._synchronize()
        return OutputsClaim(structure, tuple(claims))

    def _synchronize(self) -> None:
        import torch  # noqa: PLC0415

        if self._settings["device"] != "cpu":
            torch.cuda.synchronize()


_CASTS = {"float64": "double", "float32": "float", "float16": "half", "bfloat16": "bfloat16"}


def place_model(model: Any, device: str, dtype: str) -> Any:
    """``model`` on ``device`` with floating parameters and buffers in ``dtype``; all others stay what they are."""
    # Not Module.to(dtype=...), which makes complex buffers real.
    return getattr(model.to(device=device), _CASTS[dtype])()


def _copy_state(model: Any, state: Any) -> None:
    """Copy the reference's parameters and buffers where name and shape match."""
    own = model.state_dict()
    for name, value in state.items():
        if name in own and own[name].shape == value.shape:
            own[name].copy_(value)


def _flatten(returned: Any) -> Tuple[Structure, List[Any]]:
    import torch  # noqa: PLC0415

    # Subclasses are not tensors here: they can compute when they are looked at.
    if type(returned) in (torch.Tensor, torch.nn.Parameter):
        return Structure.TENSOR, [returned]
    if isinstance(returned, (tuple, list)) and all(type(r) in (torch.Tensor, torch.nn.Parameter) for r in returned):
        return (Structure.TUPLE if isinstance(returned, tuple) else Structure.LIST), list(returned)
    return Structure.OTHER, []


def _copy_one(output: Any, view: Optional[Any]) -> OutputClaim:
    from runner.core.memory import dtype_name  # noqa: PLC0415
    from runner.core.wire import MAX_DIMENSIONS  # noqa: PLC0415

    fits = view is not None and output.shape == view.shape and output.dtype == view.dtype
    same_device = view is None or output.device.type == view.device.type
    if fits and same_device and view is not None:
        view.copy_(output)
    shape = tuple(output.shape)[:MAX_DIMENSIONS]
    return OutputClaim(dtype_name(output.dtype), shape, same_device, fits and same_device)


def _connect(arguments: argparse.Namespace) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    deadline = time.monotonic() + arguments.connect_timeout
    while True:
        try:
            connection.connect(str(arguments.channel / SOCKET_NAME))
        except (FileNotFoundError, ConnectionRefusedError):  # noqa: PERF203  # waiting is what this loop is for
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)  # the judge starts at the same time; its socket is a file that appears
        else:
            return connection


def open_device(device: str) -> None:
    """Import torch and open the device while the judge does the same, before any candidate code is here."""
    import torch  # noqa: PLC0415  # the connection is made before anything else is imported

    if device == "cuda":
        torch.zeros(1, device=device)


def _unpack_artifact(artifact: Path) -> None:
    """Put what the builder compiled where ``load_inline`` looks for it."""
    target = Path(os.environ["TORCH_EXTENSIONS_DIR"])
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(artifact) as archive:
        archive.extractall(target)  # noqa: S202  # the candidate's own files, inside the candidate's own container
        for entry in archive.getmembers():
            exact = int(entry.pax_headers.get(MTIME_HEADER, 0))
            if exact and not entry.issym():
                os.utime(target / entry.name, ns=(exact, exact))


def serve(channel: Channel, code: Path) -> None:
    """Answer one judge until it says goodbye or goes away."""
    with suppress(Gone):
        Worker(channel, code).serve()


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Serve one judge; the exit code means nothing to it."""
    parser = argparse.ArgumentParser(prog="worker")
    parser.add_argument("--channel", type=Path, required=True)
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--artifact", type=Path)
    parser.add_argument("--connect-timeout", type=float, default=60.0)
    arguments = parser.parse_args(argv)
    channel = Channel(_connect(arguments), MAX_FROM_JUDGE)
    open_device(arguments.device)
    if arguments.artifact is not None:
        _unpack_artifact(arguments.artifact)
    serve(channel, arguments.code)
    return 0


if __name__ == "__main__":
    sys.exit(main())
