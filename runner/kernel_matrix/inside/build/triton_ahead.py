"""Compilation of a candidate's Triton kernels ahead of time, for an architecture of which no device is present.

A kernel's machine code depends on its arguments: types, alignments, and sizes that are constants. The candidate's own
``forward`` is therefore run on tensors without values (``FakeTensorMode``), under a fake driver that only knows its
target. Each launch compiles what a real launch would compile, also into ``TRITON_CACHE_DIR``, and launches nothing. All
configurations of an autotuned kernel are compiled.

This happens in the builder's process, which is trusted as little as the candidate.
"""

from __future__ import annotations

import contextlib
import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, ContextManager, Dict, Iterator, Mapping, Sequence, Tuple, Union
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernel_matrix.inside.arguments import decode_arguments
from kernel_matrix.inside.build.call_forms import CallForm, CompiledAhead, CompileTarget
from kernel_matrix.inside.build.empty_kernel import why_not_compiled_for
from kernel_matrix.inside.exception_kinds import classify
from kernel_matrix.inside.input_generation import PARAMETER_DTYPES, map_tensors
from kernel_matrix.inside.source_module import import_file
from kernel_matrix.inside.wire import CallFailure
from kernel_matrix.model.enums import Dtype

_DEVICES = ("cuda:0", "cpu")
"""Devices of the tensors without values, in the order in which they are tried.

A source may require the first one, but without a driver some operations (indexing) refuse it. It has an index so that
torch does not ask a driver for the current device.
"""

STOPPED = "the model did not run to its end without values: "
"""Start of the reason why kernels may be missing."""

_REGISTERS = 65536
"""32-bit registers of a multiprocessor, for candidates that ask for them."""

CompileLauncher = Callable[[Any], None]
"""Function that compiles the launcher of a kernel that Triton has compiled."""


@contextmanager
def no_launchers() -> Iterator[CompileLauncher]:
    """Yield a function that does nothing: the first launch compiles the launcher."""
    yield lambda _kernel: None


@dataclass(frozen=True)
class TritonTarget:
    """A kind of device as Triton and candidates see it."""

    backend: str
    """Name of Triton's backend."""
    arch: Union[int, str]
    """Architecture as the backend takes it."""
    name: str
    """Name of the device, for a candidate that asks for it."""
    capability: Tuple[int, int]
    """Version of the architecture, for a candidate that asks for it."""
    warp_size: int
    device: CompileTarget
    properties: Mapping[str, Any] = field(default_factory=dict)
    """Further properties that torch reports of such a device."""
    torch_versions: Mapping[str, Any] = field(default_factory=dict)
    """Variables of ``torch.version`` that differ in the build of torch for such devices."""
    launchers: Callable[[], ContextManager[CompileLauncher]] = no_launchers

    def gpu_target(self) -> Any:
        """Return the target as Triton's compiler takes it."""
        from triton.backends.compiler import GPUTarget  # noqa: PLC0415  # only Triton's candidates need it

        return GPUTarget(self.backend, self.arch, self.warp_size)


def compile_for(
    target: TritonTarget, source: Path, entry: str, forms: Sequence[CallForm], dtype: Dtype
) -> CompiledAhead:
    """Compile the kernels that calls of a candidate would compile on ``target``, into ``TRITON_CACHE_DIR``.

    Args:
        target: device to compile for.
        source: file of the candidate.
        entry: name of its class.
        forms: arguments of its calls without values, from :func:`call_form`, one for each workload.
        dtype: dtype of the cell.

    Raises:
        Exception: an error of the candidate's import, or of the compiler.
    """
    try:
        with fake_driver(target):
            entry_class = getattr(import_file(source, "candidate", {}), entry)
            reasons = [_run_without_values(entry_class, form, dtype) for form in forms]
    except Exception as error:
        # Is the candidate at fault, or can nothing be compiled for this architecture?
        reason = why_not_compiled_for(target.gpu_target()) if classify(error) is CallFailure.COMPILE else ""
        if not reason:
            raise
        return CompiledAhead(reason)
    return CompiledAhead(next(filter(None, reasons), ""))


def _run_without_values(entry: Callable[..., Any], form: CallForm, dtype: Dtype) -> str:
    """Call the model once, on the first device that works; return the reason if none does."""
    reasons = []
    for device in _DEVICES:
        try:
            _call(entry, form, dtype, device)
        except Exception as error:  # noqa: PERF203  # a forward may raise anything if values are missing
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
            _replace_tensors(model, PARAMETER_DTYPES[dtype], device)
        model(*decode_arguments(form.inputs, tensors))


def _replace_tensors(model: torch.nn.Module, dtype: torch.dtype, device: str) -> None:
    """Replace parameters and buffers by new ones on ``device``, because moving them would need its driver."""

    def recreate(old: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(old, device=device, dtype=dtype if old.is_floating_point() else old.dtype)

    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, torch.nn.Parameter(recreate(parameter), requires_grad=False))
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, recreate(buffer))


# ---- a fake driver that only knows its target


@contextmanager
def fake_driver(target: TritonTarget) -> Iterator[None]:
    """Make Triton compile for ``target`` and launch nothing, and ``torch.cuda`` report that device, in the context."""
    from triton.runtime import driver  # noqa: PLC0415  # only Triton's candidates need it
    from triton.runtime.autotuner import Autotuner  # noqa: PLC0415  # as above
    from triton.runtime.jit import JITFunction  # noqa: PLC0415  # as above

    with ExitStack() as undo:
        undo.enter_context(mock.patch.dict(os.environ, {"TRITON_INTERPRET": "0"}))
        undo.enter_context(mock.patch.dict(vars(driver)))  # the variable with the active driver depends on the version
        driver.set_active(_driver(target))
        compile_launcher = undo.enter_context(target.launchers())
        undo.enter_context(mock.patch.object(JITFunction, "run", _compiling_only(JITFunction.run, compile_launcher)))
        undo.enter_context(mock.patch.object(Autotuner, "run", _every_configuration))
        undo.enter_context(mock.patch.dict(vars(torch.version), target.torch_versions))
        for name, function in _fake_cuda_functions(target).items():
            undo.enter_context(mock.patch.object(torch.cuda, name, function))
        for kind in (torch.Tensor, torch.nn.Module):
            undo.enter_context(mock.patch.object(kind, "cuda", lambda self, *_device, **_options: self))
        undo.enter_context(mock.patch.object(torch.Tensor, "is_cuda", property(lambda _self: True)))
        yield


def _compiling_only(launch: Callable[..., Any], compile_launcher: CompileLauncher) -> Callable[..., Any]:
    """Make a ``JITFunction.run`` that only warms up: it compiles for its arguments and launches nothing."""

    def run(self: Any, *arguments: Any, grid: Any, warmup: bool = True, **options: Any) -> Any:  # noqa: ARG001  # as called
        given = {name: _pointer(value) for name, value in options.items()}
        kernel = launch(self, *map(_pointer, arguments), grid=grid, warmup=True, **given)
        compile_launcher(kernel)
        return kernel

    return run


def _every_configuration(self: Any, *arguments: Any, **options: Any) -> Any:
    """Compile each configuration in place of timing it, as ``Autotuner.run``; raise only if none compiles."""
    self.nargs = dict(zip(self.arg_names, arguments))
    kernel, failed = None, []
    for config in self.prune_configs(options):
        everything = {**self.nargs, **options, **config.all_kwargs()}
        if config.pre_hook is not None:
            config.pre_hook(everything)
        try:
            kernel = self.fn.run(*arguments, **{**options, **config.all_kwargs()})
        except Exception as error:  # raised below if no configuration compiles
            if classify(error) is not CallFailure.COMPILE:
                raise
            failed.append(error)
    self.nargs = None
    if kernel is None and failed:
        raise failed[-1]
    return kernel


class _Pointer:
    """Properties of a tensor that determine a kernel's signature: its type and the alignment of its address."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.dtype = tensor.dtype
        self.shape = tensor.shape
        self._offset: int = tensor.storage_offset() * tensor.element_size()

    def data_ptr(self) -> int:
        """Return the offset in the allocation, whose own alignment is larger than any that a kernel needs."""
        return self._offset

    @staticmethod
    def ptr_range() -> int:
        """Return 0: the number of bytes behind the address is unknown."""
        return 0


def _pointer(value: Any) -> Any:
    return map_tensors(value, _Pointer) if isinstance(value, (torch.Tensor, tuple, list)) else value


def _driver(target: TritonTarget) -> Any:
    properties = {
        "max_shared_mem": target.device.shared_bytes,
        "multiprocessor_count": target.device.multiprocessors,
        "max_num_regs": _REGISTERS,
        "warpSize": target.warp_size,
        "sm_clock_rate": 1,
        "mem_clock_rate": 1,
        "mem_bus_width": 1,
        "arch": target.name,
    }
    utils = SimpleNamespace(
        get_device_properties=lambda _device: dict(properties),
        load_binary=lambda *_arguments: (0, 0, 0, 0, 1024),
    )
    return SimpleNamespace(
        get_current_target=target.gpu_target,
        get_current_device=lambda: 0,
        set_current_device=lambda _device: None,
        get_current_stream=lambda _device=0: 0,
        get_device_capability=lambda _device=0: target.capability,
        get_active_torch_device=lambda: torch.device(_DEVICES[0]),
        get_device_interface=lambda: torch.cuda,
        get_benchmarker=lambda: lambda _call, **_options: [0.0, 0.0, 0.0],
        launcher_cls=lambda _source, _metadata: lambda *_arguments: None,
        utils=utils,
    )


def _fake_cuda_functions(target: TritonTarget) -> Dict[str, Any]:
    """Return name → function of ``torch.cuda`` that reports the device that is not present."""
    properties = SimpleNamespace(
        name=target.name,
        major=target.capability[0],
        minor=target.capability[1],
        multi_processor_count=target.device.multiprocessors,
        shared_memory_per_block_optin=target.device.shared_bytes,
        regs_per_multiprocessor=_REGISTERS,
        warp_size=target.warp_size,
        total_memory=16 << 30,
        **target.properties,
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
        "get_device_capability": lambda _device=None: target.capability,
        "get_device_name": lambda _device=None: target.name,
    }
