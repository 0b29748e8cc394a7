"""Calls of NVML: open the library, find a device, translate errors into those of this program.

Devices are found by UUID, never by index: the driver's order, CUDA's order and a container's order differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pynvml

from kernel_matrix.errors import GpuLostError, InfrastructureError
from kernel_matrix.platforms import Gpu

NOT_OFFERED = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "this device or driver does not support it",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the driver's library is too old for it",
    pynvml.NVML_ERROR_NO_PERMISSION: "only root may see it",
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: "the driver's library does not know this form of the query",
    pynvml.NVML_ERROR_DEPRECATED: "the driver no longer reports it",
}
"""Code of a query that is never answered here → reason. It says nothing about the health of the device."""

GONE = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
"""Codes of a device that worked before and now fails every query."""

_ABSENT = GONE | {pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_GPU_NOT_FOUND}
_NO_HANDLE = _ABSENT | {pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_INVALID_ARGUMENT}
"""Codes that mean a lost device if they answer the request for its handle."""

_ADVICE = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 was not found; if this machine has an NVIDIA GPU, install the NVIDIA driver"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the driver's kernel module is not loaded; run `modprobe nvidia`, and see `dmesg` if that fails"
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "library and kernel module have different versions, as after an update; restart the machine, or unload and "
        "load the nvidia modules"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not open /dev/nvidiactl; ask for the group that owns it",
    pynvml.NVML_ERROR_GPU_IS_LOST: "the GPU fell off the bus; look for `Xid` in `dmesg` and restart the machine",
    pynvml.NVML_ERROR_RESET_REQUIRED: "the GPU must be reset; look for `Xid` in `dmesg` and run `nvidia-smi -r`",
    pynvml.NVML_ERROR_NOT_FOUND: "the driver no longer knows this GPU; look for `Xid` in `dmesg`",
    pynvml.NVML_ERROR_NOT_SUPPORTED: "the driver does not offer this here (virtual GPUs and WSL hide much)",
}
"""NVML error code → meaning and advice."""


class NoAnswerError(Exception):
    """NVML answered a query with a value that has no meaning; the message says why."""


@dataclass(frozen=True, slots=True)
class NvmlAnswer:
    """Answer to one query of a device."""

    value: Any
    reason: str = ""
    """Reason why ``value`` is ``None``."""


@contextmanager
def opened() -> Iterator[None]:
    """Keep NVML open; calls nest, and inner ones cost nothing.

    If the driver's persistence mode is off, the open library also keeps a GPU initialised, with its changed settings.

    Raises:
        InfrastructureError: if library or driver are absent, or their versions differ.
    """
    with translated("NVML"):
        pynvml.nvmlInit()
    try:
        yield
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


@contextmanager
def device(gpu: Gpu, *, subject: str = "") -> Iterator[Any]:
    """Yield NVML's handle of ``gpu``, with the library open and its errors translated.

    Args:
        gpu: the device.
        subject: words before the name of the device in error messages, such as ``clocks of``.

    Raises:
        GpuLostError: if the device no longer answers.
        InfrastructureError: if a query in the context fails.
    """
    with opened(), about(gpu, subject=subject):
        yield handle_of(gpu)


@contextmanager
def about(gpu: Gpu, *, subject: str = "") -> Iterator[None]:
    """Translate NVML's errors about ``gpu``, for callers that keep a handle of it.

    Args:
        gpu: the device.
        subject: words before the name of the device in error messages.

    Raises:
        GpuLostError: if the device no longer answers.
        InfrastructureError: for all other errors.
    """
    try:
        yield
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_UNKNOWN:
            # A device that fell off the bus may give this code. Then the request for a new handle raises.
            handle_of(gpu)
        raise our_error(f"{subject} {named(gpu)}".lstrip(), error) from error


def handle_of(gpu: Gpu) -> Any:
    """Return NVML's handle of ``gpu``.

    Raises:
        GpuLostError: if the driver does not find the device.
        InfrastructureError: if this process may not use the driver.
    """
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
    except pynvml.NVMLError as error:
        raise our_error(named(gpu), error, lost=_NO_HANDLE) from error


def named(gpu: Gpu) -> str:
    """Return the name of ``gpu`` in messages."""
    return f"{gpu.uuid} ({gpu.name})"


def ask(query: Callable[..., Any], *args: Any) -> NvmlAnswer:
    """Return the answer to ``query``; a failure is an answer with a reason, so that other queries can follow.

    Raises:
        pynvml.NVMLError: only if the device is lost.
    """
    try:
        return NvmlAnswer(query(*args))
    except NoAnswerError as error:
        return NvmlAnswer(None, str(error))
    except pynvml.NVMLError as error:
        if error.value in GONE:
            raise
        return NvmlAnswer(None, NOT_OFFERED.get(error.value, _describe(error)))


def value_of(query: Callable[..., Any], *args: Any) -> Any:
    """Return the value of ``query``, or ``None`` if this driver or device never answers it.

    Raises:
        pynvml.NVMLError: if the query fails although it is supported.
    """
    try:
        return query(*args)
    except NoAnswerError:
        return None
    except pynvml.NVMLError as error:
        # NO_DATA means that there is no value yet; a later query may succeed.
        if error.value in NOT_OFFERED or error.value == pynvml.NVML_ERROR_NO_DATA:
            return None
        raise


class NvmlQuery:
    """Query of a device in several forms, of which the first that the driver supports is used.

    An unsupported form is not tried again, so that a query that is made many times a second costs nothing if no form is
    supported.
    """

    def __init__(self, *forms: Callable[[], Any]) -> None:
        self._forms = list(forms)

    @property
    def offered(self) -> bool:
        """False after every form has turned out to be unsupported."""
        return bool(self._forms)

    def __call__(self) -> Any:
        """Return the answer, or ``None`` if no form is supported.

        Raises:
            pynvml.NVMLError: if a supported form fails.
        """
        if not self._forms:
            return None
        try:
            return self._forms[0]()
        except pynvml.NVMLError as error:
            if error.value not in NOT_OFFERED:
                raise
        del self._forms[0]
        return self()


@contextmanager
def translated(subject: str) -> Iterator[None]:
    """Translate NVML's errors about ``subject``, which is not a device with a known UUID."""
    try:
        yield
    except pynvml.NVMLError as error:
        raise our_error(subject, error) from error


def our_error(subject: str, error: pynvml.NVMLError, *, lost: Collection[int] = _ABSENT) -> InfrastructureError:
    """Translate an error of NVML. This is the only place that gives NVML's codes a meaning.

    Args:
        subject: start of the message.
        error: NVML's error.
        lost: codes that mean that the device is lost.
    """
    kind = GpuLostError if error.value in lost else InfrastructureError
    advice = _ADVICE.get(error.value, "check whether `nvidia-smi` works, and see `dmesg` if it does not")
    return kind(f"{subject}: {_describe(error)}", next_step=advice)


def _describe(error: pynvml.NVMLError) -> str:
    return f"{error} (NVML error {error.value})"
