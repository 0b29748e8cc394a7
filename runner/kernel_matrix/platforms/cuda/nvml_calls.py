"""How NVML is asked: its library opened, its devices found, its errors translated into ours.

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
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: "the driver's library does not know this form of the question",
    pynvml.NVML_ERROR_DEPRECATED: "the driver no longer tells it",
}
"""Codes that say that one question is never answered here, and nothing about the health of the device."""

GONE = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
"""Codes with which a device that was there says that it no longer works, whatever it is asked."""

_ABSENT = GONE | {pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_GPU_NOT_FOUND}
_NO_HANDLE = _ABSENT | {pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_INVALID_ARGUMENT}
"""A device that the driver cannot even name is gone, however the driver puts it."""

_ADVICE = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 was not found; if this machine has an NVIDIA GPU, install the NVIDIA driver"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "the driver's kernel module is not loaded; run `modprobe nvidia`, and see `dmesg` if that fails"
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "library and kernel module are of different versions, as after an update; restart the machine, or unload and "
        "load the nvidia modules"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not open /dev/nvidiactl; ask for the group that owns it",
    pynvml.NVML_ERROR_GPU_IS_LOST: "the GPU fell off the bus; look for `Xid` in `dmesg` and restart the machine",
    pynvml.NVML_ERROR_RESET_REQUIRED: "the GPU must be reset; look for `Xid` in `dmesg` and run `nvidia-smi -r`",
    pynvml.NVML_ERROR_NOT_FOUND: "the driver no longer knows this GPU; look for `Xid` in `dmesg`",
    pynvml.NVML_ERROR_NOT_SUPPORTED: "the driver does not offer this here (virtual GPUs and WSL hide much)",
}
"""NVML error code → what it means and what to do."""


class NoAnswerError(Exception):
    """A question that NVML answers with something that is no answer; the message says why."""


@dataclass(frozen=True, slots=True)
class NvmlAnswer:
    """What a device says to one question, or why it says nothing."""

    value: Any
    reason: str = ""
    """Why ``value`` is null, in words."""


@contextmanager
def opened() -> Iterator[None]:
    """Keep NVML open; calls nest, and inner ones cost nothing.

    Where the driver's persistence mode is off, an open library is also what keeps a GPU initialised, and with it
    every setting that was changed.

    :raises InfrastructureError: when library or driver are absent or do not fit together.
    """
    with translated("NVML"):
        pynvml.nvmlInit()
    try:
        yield
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


@contextmanager
def device(gpu: Gpu, *, asked: str = "") -> Iterator[Any]:
    """NVML's handle of ``gpu``, with the library open and its errors translated.

    :param asked: what is asked for, in words, when an error should name more than the device.
    :raises GpuLostError: when the device no longer answers.
    :raises InfrastructureError: when it cannot answer what is asked inside.
    """
    with opened(), about(gpu, asked=asked):
        yield handle_of(gpu)


@contextmanager
def about(gpu: Gpu, *, asked: str = "") -> Iterator[None]:
    """Turn NVML's errors into ours, about ``gpu``; for whoever keeps a handle of it.

    :raises GpuLostError: when the device no longer answers.
    :raises InfrastructureError: for everything else.
    """
    try:
        yield
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_UNKNOWN:
            handle_of(gpu)  # so answers a device that fell off the bus; then the driver cannot even name it
        raise our_error(f"{asked} {named(gpu)}".lstrip(), error) from error


def handle_of(gpu: Gpu) -> Any:
    """NVML's handle of ``gpu``.

    :raises GpuLostError: when the driver cannot name it.
    :raises InfrastructureError: when the driver may not be asked.
    """
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
    except pynvml.NVMLError as error:
        raise our_error(named(gpu), error, lost=_NO_HANDLE) from error


def named(gpu: Gpu) -> str:
    """How messages name ``gpu``."""
    return f"{gpu.uuid} ({gpu.name})"


def ask(query: Callable[..., Any], *args: Any) -> NvmlAnswer:
    """What ``query`` says, or why it says nothing: one question that fails never hides the others.

    :raises pynvml.NVMLError: only when the device is gone.
    """
    try:
        return NvmlAnswer(query(*args))
    except NoAnswerError as error:
        return NvmlAnswer(None, str(error))
    except pynvml.NVMLError as error:
        if error.value in GONE:
            raise
        return NvmlAnswer(None, NOT_OFFERED.get(error.value, _in_nvml_words(error)))


def value_of(query: Callable[..., Any], *args: Any) -> Any:
    """What ``query`` says, or null where this driver or device never answers it.

    :raises pynvml.NVMLError: when it should have been answered.
    """
    try:
        return query(*args)
    except NoAnswerError:
        return None
    except pynvml.NVMLError as error:
        # No data yet is no answer either, though the next one may be.
        if error.value in NOT_OFFERED or error.value == pynvml.NVML_ERROR_NO_DATA:
            return None
        raise


class NvmlQuery:
    """One question to a device, in several wordings: the first that the driver offers is asked.

    A wording that is never answered here is not tried again, so that a question asked many times a second costs
    nothing where it has no answer.
    """

    def __init__(self, *wordings: Callable[[], Any]) -> None:
        self._wordings = list(wordings)

    @property
    def offered(self) -> bool:
        """False once it is known that there is never an answer."""
        return bool(self._wordings)

    def __call__(self) -> Any:
        """The answer, or null where there is none.

        :raises pynvml.NVMLError: when it should have been answered.
        """
        if not self._wordings:
            return None
        try:
            return self._wordings[0]()
        except pynvml.NVMLError as error:
            if error.value not in NOT_OFFERED:
                raise
        del self._wordings[0]
        return self()


@contextmanager
def translated(subject: str) -> Iterator[None]:
    """Turn NVML's errors into ours, about ``subject``: for what is not about one device that has a UUID."""
    try:
        yield
    except pynvml.NVMLError as error:
        raise our_error(subject, error) from error


def our_error(subject: str, error: pynvml.NVMLError, *, lost: Collection[int] = _ABSENT) -> InfrastructureError:
    """What ``error`` means about ``subject``: the one place where NVML's codes get a meaning.

    :param lost: codes that mean that the device is gone.
    """
    kind = GpuLostError if error.value in lost else InfrastructureError
    advice = _ADVICE.get(error.value, "see whether `nvidia-smi` works, and `dmesg` if it does not")
    return kind(f"{subject}: {_in_nvml_words(error)}", next_step=advice)


def _in_nvml_words(error: pynvml.NVMLError) -> str:
    return f"{error} (NVML error {error.value})"
