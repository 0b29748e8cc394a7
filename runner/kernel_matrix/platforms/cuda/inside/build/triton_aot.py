"""Compiling a candidate's Triton kernels for an architecture, without a device of it: ahead of time, and nothing runs.

A kernel's machine code depends on what it is called with: types, alignments, sizes that are constants. So the
candidate's own ``forward`` is run on tensors without values (``FakeTensorMode``), under a driver that only names its
target: each launch compiles what a real one would compile, into ``TRITON_CACHE_DIR`` as well, and launches nothing.
Of an autotuned kernel every configuration is compiled.

All of it happens in the builder's process, which is the candidate's as far as trust goes.
"""

from __future__ import annotations

import contextlib
import os
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, Sequence
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernel_matrix.inside.arguments import decode_arguments
from kernel_matrix.inside.build.call_forms import CallForm, CompiledAhead, CompileTarget
from kernel_matrix.inside.exception_kinds import classify
from kernel_matrix.inside.input_generation import PARAMETER_DTYPES, map_tensors
from kernel_matrix.inside.source_module import import_file
from kernel_matrix.inside.wire import CallFailure
from kernel_matrix.model.enums import Dtype
from kernel_matrix.platforms.cuda.inside.build.triton_launchers import CompileLauncher, compiled_ahead

_DEVICES = ("cuda:0", "cpu")
"""Where tensors without values are said to be, in the order tried.

A source may insist on the first, and on a machine without a driver some operations (indexing) refuse it. Its index is
named so that nobody asks a driver for it.
"""

STOPPED = "the model did not run to its end without values: "
"""How what is said begins when kernels may be missing."""

_WARP = 32


def compile_ahead(
    source: Path, entry: str, forms: Sequence[CallForm], dtype: Dtype, target: CompileTarget
) -> CompiledAhead:
    """Compile all that calls of the candidate in ``source`` would compile on ``target``, into ``TRITON_CACHE_DIR``.

    :param forms: what it is called with, as :func:`call_form` found it for each workload.
    :raises Exception: what importing the candidate raises, and a compiler's error.
    """
    with standing_in(target):
        entry_class = getattr(import_file(source, "candidate", {}), entry)
        reasons = [_run_without_values(entry_class, form, dtype) for form in forms]
    return CompiledAhead(next(filter(None, reasons), ""))


def _run_without_values(entry: Callable[..., Any], form: CallForm, dtype: Dtype) -> str:
    """Call the model once, if need be on another device; returns why it could be called on none."""
    reasons = []
    for device in _DEVICES:
        try:
            _call(entry, form, dtype, device)
        except Exception as error:  # noqa: PERF203  # a forward may raise anything where values are missing
            if classify(error) is CallFailure.COMPILE:
                raise
            reasons.append(f"{STOPPED}{type(error).__name__}: {error}"[:500])
        else:
            return ""
    return reasons[-1]


def _call(entry: Callable[..., Any], form: CallForm, dtype: Dtype, device: str) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        tensors = [shape.tensor(device) for shape in form.tensors]
        model = entry(*decode_arguments(form.init, tensors))
        if isinstance(model, torch.nn.Module):
            _place(model, PARAMETER_DTYPES[dtype], device)
        model(*decode_arguments(form.inputs, tensors))


def _place(model: torch.nn.Module, dtype: torch.dtype, device: str) -> None:
    """Parameters and buffers on ``device``: made anew, since moving them would ask for its driver."""

    def placed(old: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(old, device=device, dtype=dtype if old.is_floating_point() else old.dtype)

    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, torch.nn.Parameter(placed(parameter), requires_grad=False))
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, placed(buffer))


# ---- a driver that only names its target


@contextmanager
def standing_in(target: CompileTarget) -> Iterator[None]:
    """Inside, Triton compiles for ``target`` and launches nothing; ``torch.cuda`` answers what candidates ask of it."""
    from triton.runtime import driver  # noqa: PLC0415  # only Triton's candidates need it
    from triton.runtime.autotuner import Autotuner  # noqa: PLC0415  # as above
    from triton.runtime.jit import JITFunction  # noqa: PLC0415  # as above

    with ExitStack() as undo:
        undo.enter_context(mock.patch.dict(os.environ, {"TRITON_INTERPRET": "0"}))
        undo.enter_context(mock.patch.dict(vars(driver)))  # the present driver has other names in other Tritons
        driver.set_active(_driver(target))
        compile_launcher = undo.enter_context(compiled_ahead())
        undo.enter_context(mock.patch.object(JITFunction, "run", _compiling_only(JITFunction.run, compile_launcher)))
        undo.enter_context(mock.patch.object(Autotuner, "run", _every_configuration))
        for name, answer in _answers(target).items():
            undo.enter_context(mock.patch.object(torch.cuda, name, answer))
        for kind in (torch.Tensor, torch.nn.Module):
            undo.enter_context(mock.patch.object(kind, "cuda", lambda self, *_device, **_options: self))
        undo.enter_context(mock.patch.object(torch.Tensor, "is_cuda", property(lambda _self: True)))
        yield


def _compiling_only(launch: Callable[..., Any], compile_launcher: CompileLauncher) -> Callable[..., Any]:
    """``JITFunction.run`` that always warms up: it compiles for these very arguments and stops there."""

    def run(self: Any, *arguments: Any, grid: Any, warmup: bool = True, **options: Any) -> Any:  # noqa: ARG001  # as called
        given = {name: _pointer(value) for name, value in options.items()}
        kernel = launch(self, *map(_pointer, arguments), grid=grid, warmup=True, **given)
        compile_launcher(kernel)
        return kernel

    return run


def _every_configuration(self: Any, *arguments: Any, **options: Any) -> Any:
    """``Autotuner.run`` that compiles each configuration in place of timing it; some may not compile, not all."""
    self.nargs = dict(zip(self.arg_names, arguments))
    kernel, failed = None, []
    for config in self.prune_configs(options):
        everything = {**self.nargs, **options, **config.all_kwargs()}
        if config.pre_hook is not None:
            config.pre_hook(everything)
        try:
            kernel = self.fn.run(*arguments, **{**options, **config.all_kwargs()})
        except Exception as error:  # told when no configuration compiles
            if classify(error) is not CallFailure.COMPILE:
                raise
            failed.append(error)
    self.nargs = None
    if kernel is None and failed:
        raise failed[-1]
    return kernel


class _Pointer:
    """A tensor as a kernel's signature sees it: its type, and how its address is aligned."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.dtype = tensor.dtype
        self.shape = tensor.shape
        self._offset: int = tensor.storage_offset() * tensor.element_size()

    def data_ptr(self) -> int:
        """Allocations are aligned to far more than a kernel asks for; what is left is the offset in one."""
        return self._offset

    @staticmethod
    def ptr_range() -> int:
        """Bytes behind the address that may be touched; nothing is known of them."""
        return 0


def _pointer(value: Any) -> Any:
    return map_tensors(value, _Pointer) if isinstance(value, (torch.Tensor, tuple, list)) else value


def _driver(target: CompileTarget) -> Any:
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415  # only Triton's candidates need it

    properties = {"max_shared_mem": target.shared_bytes, "multiprocessor_count": target.multiprocessors}
    properties |= {
        "max_num_regs": 65536,
        "warpSize": _WARP,
        "sm_clock_rate": 1,
        "mem_clock_rate": 1,
        "mem_bus_width": 1,
    }
    utils = SimpleNamespace(
        get_device_properties=lambda _device: dict(properties),
        load_binary=lambda *_arguments: (0, 0, 0, 0, 1024),
    )
    return SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", target.number, _WARP),
        get_current_device=lambda: 0,
        set_current_device=lambda _device: None,
        get_current_stream=lambda _device=0: 0,
        get_device_capability=lambda _device=0: divmod(target.number, 10),
        get_active_torch_device=lambda: torch.device(_DEVICES[0]),
        get_device_interface=lambda: torch.cuda,
        get_benchmarker=lambda: lambda _call, **_options: [0.0, 0.0, 0.0],
        launcher_cls=lambda _source, _metadata: lambda *_arguments: None,
        utils=utils,
    )


def _answers(target: CompileTarget) -> Dict[str, Any]:
    """What ``torch.cuda`` says of the device that is not there."""
    major, minor = divmod(target.number, 10)
    properties = SimpleNamespace(
        name=f"sm_{target.number}",
        major=major,
        minor=minor,
        multi_processor_count=target.multiprocessors,
        shared_memory_per_block_optin=target.shared_bytes,
        regs_per_multiprocessor=65536,
        warp_size=_WARP,
        total_memory=16 << 30,
    )
    stream = SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
    return {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "device": lambda _device: contextlib.nullcontext(),
        "synchronize": lambda _device=None: None,
        "current_stream": lambda _device=None: stream,
        "get_device_properties": lambda _device=None: properties,
        "get_device_capability": lambda _device=None: (major, minor),
        "get_device_name": lambda _device=None: properties.name,
    }
