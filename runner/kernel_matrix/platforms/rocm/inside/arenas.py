"""Arenas on an AMD GPU: memory of the judge that a worker maps, each proved before it is used.

Some releases of ROCm map other memory than was exported, and report success. Behind its tensors each arena therefore
has a stamp: a random number, and a hash of it and of the identity of the descriptor, which both processes see alike.
The judge imports its own arena once more and reads the stamp there; if it cannot, it goes on through the host's memory.
The worker reads the stamp of each arena that it opens.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import secrets
from typing import Any

import torch

from kernel_matrix.inside import torch_gpu
from kernel_matrix.inside.gpu_arenas import GpuArenas
from kernel_matrix.inside.memory import Arena, is_shared_file
from kernel_matrix.inside.platform import DeviceError
from kernel_matrix.platforms.rocm.inside.libamdhip import DRIVER, runtime_version

_NUMBER_BYTES = 32
STAMP_BYTES = _NUMBER_BYTES + hashlib.sha256().digest_size

_TAKES_VALUES_FROM = 70100000
"""First version of the runtime that takes a descriptor's number in place of an address; before, its address."""


class WrongMemoryError(DeviceError):
    """The runtime has mapped other memory than the judge exported."""


class HipArenas(GpuArenas):
    """Arenas of this process."""

    def __init__(self) -> None:
        super().__init__(DRIVER, "rocm")
        self._refusal = ""
        """Why arenas are staged although that was not chosen."""

    def transport(self) -> str:
        """Return the name of the way in which memory is shared, and the reason if it was not chosen."""
        return super().transport() + self._refusal

    def is_staged(self) -> bool:
        """Return whether data is copied through the host."""
        return bool(self._refusal) or super().is_staged()

    def create_shared(self, nbytes: int) -> Arena:
        """Allocate and export memory, and prove it; make a staged arena if the runtime does not share it rightly."""
        try:
            return self._create_proved(nbytes)
        except WrongMemoryError:
            self._refusal = "-wrong-memory"
        except DeviceError as error:
            self._refusal = "-refused" if error.code is None else f"-refused-{error.code}"
        return self.create_staged(nbytes)

    def open(self, descriptor: int, nbytes: int) -> Arena:
        """Map the memory of a descriptor that the judge sent, which alone knows whether it is staged."""
        torch_gpu.open_device()
        return (
            self.open_staged(descriptor, nbytes) if is_shared_file(descriptor) else self.open_shared(descriptor, nbytes)
        )

    def open_shared(self, descriptor: int, nbytes: int) -> Arena:
        """Import and map memory of the device, and read its stamp.

        Raises:
            WrongMemoryError: It has another one.
        """
        whole = super().open_shared(descriptor, nbytes + STAMP_BYTES)
        stamp = bytes(whole.tensor[nbytes:].cpu().tolist())
        if stamp != _stamp(descriptor, stamp[:_NUMBER_BYTES]):
            raise WrongMemoryError("the HIP runtime has mapped other memory than the judge exported")
        return Arena(descriptor, whole.tensor[:nbytes])

    def as_argument(self, descriptor: int) -> Any:
        """Return the runtime's argument for a descriptor to import: before 7.1, a pointer to the number."""
        if runtime_version() >= _TAKES_VALUES_FROM:
            return super().as_argument(descriptor)
        return ctypes.byref(ctypes.c_int(descriptor))

    def _create_proved(self, nbytes: int) -> Arena:
        whole = super().create_shared(nbytes + STAMP_BYTES)
        arena = Arena(whole.descriptor, whole.tensor[:nbytes])
        try:
            stamp = bytearray(_stamp(arena.descriptor, secrets.token_bytes(_NUMBER_BYTES)))
            whole.tensor[nbytes:].copy_(torch.frombuffer(stamp, dtype=torch.uint8))
            torch_gpu.synchronize()
            self._prove(arena.descriptor, nbytes)
        except BaseException:
            arena.close()
            raise
        return arena

    def _prove(self, descriptor: int, nbytes: int) -> None:
        """Map exported memory once more, and read its stamp there."""
        again = os.dup(descriptor)
        try:
            self.open_shared(again, nbytes)
        finally:
            os.close(again)


def _stamp(descriptor: int, number: bytes) -> bytes:
    """Return the stamp of the memory behind ``descriptor``."""
    status = os.fstat(descriptor)
    return number + hashlib.sha256(number + f"{status.st_dev} {status.st_ino}".encode()).digest()


ARENAS = HipArenas()
"""The arenas of this process."""
