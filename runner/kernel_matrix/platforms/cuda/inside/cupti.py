"""What the device runs, one record for each kernel, copy and fill: CUPTI's activity records through ctypes.

``torch.profiler`` gives the same records, but asks CUPTI for far more: its first start takes 3.7 s beside an H200, that
of these records alone less than a millisecond. The library is the one that torch has loaded, since a process can have
one CUPTI only.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, Optional

from kernel_matrix.inside.loaded_libraries import mapped_library
from kernel_matrix.inside.platform import Activity
from kernel_matrix.platforms.cuda.inside.build.machine_code import demangled

_LIBRARY = r"libcupti\S*\.so\S*"
"""Its name; wheels may add a hash to it."""

_MEMCPY, _MEMSET, _CONCURRENT_KERNEL = 1, 2, 10
_KINDS = (_CONCURRENT_KERNEL, _MEMCPY, _MEMSET)
_COPY_KIND_AT, _START_AT, _END_AT, _KERNEL_NAME_AT = 4, 16, 24, 104
"""Where a record keeps them, bytes: CUPTI appends to its records, and these have not moved since CUDA 9."""
_COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}

_BUFFER_BYTES = 8 << 20
"""Some 40,000 records: where one buffer is enough, CUPTI calls back only while it is asked to flush."""
_ALIGNMENT = 8
_FLUSH_FORCED = 1

_REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class CuptiError(RuntimeError):
    """A call of CUPTI failed, or this CUPTI has no such function."""


def loaded_library() -> Optional[Path]:
    """The CUPTI that this process has loaded; null where it has none that is a library of its own."""
    return mapped_library(_LIBRARY)


@lru_cache(maxsize=None)
def recorder(library: Path) -> ActivityRecorder:
    """The one recorder of ``library``: CUPTI keeps its callbacks for as long as the process lives.

    :raises OSError: when it cannot be loaded.
    """
    return ActivityRecorder(ctypes.CDLL(str(library)))


class ActivityRecorder:
    """Records what the device runs between :meth:`start` and :meth:`stop`; the device is to be idle at both."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._buffers: Dict[int, Any] = {}
        """Address → memory that CUPTI writes to."""
        self._seen: List[Activity] = []
        self._callbacks = (_REQUESTED(self._lend), _COMPLETED(self._take_back))

    def start(self) -> None:
        """Record from here on.

        :raises CuptiError: when CUPTI does not; then nothing is recorded.
        """
        self._seen = []
        self._call("cuptiActivityRegisterCallbacks", *self._callbacks)
        try:
            for kind in _KINDS:
                self._call("cuptiActivityEnable", ctypes.c_uint32(kind))
        except CuptiError:
            self._disable()
            raise

    def stop(self) -> List[Activity]:
        """What ran since the start, in the order of CUPTI's records.

        :raises CuptiError: when CUPTI does not give its records away.
        """
        try:
            self._call("cuptiActivityFlushAll", ctypes.c_uint32(_FLUSH_FORCED))
        finally:
            self._disable()
        seen, self._seen = self._seen, []
        return seen

    def _disable(self) -> None:
        for kind in _KINDS:
            self._library.cuptiActivityDisable(ctypes.c_uint32(kind))

    def _call(self, function: str, *arguments: Any) -> None:
        try:
            code = getattr(self._library, function)(*arguments)
        except AttributeError:
            raise CuptiError(f"this CUPTI has no {function}") from None
        if code != 0:
            raise CuptiError(f"{function} failed with CUPTI error {code}")

    def _lend(self, buffer: Any, size: Any, most_records: Any) -> None:
        """CUPTI wants memory: ``buffer`` and ``size`` are its, ``most_records`` is 0 where it may fill it."""
        memory = ctypes.create_string_buffer(_BUFFER_BYTES + _ALIGNMENT)
        address = ctypes.addressof(memory)
        address += -address % _ALIGNMENT
        self._buffers[address] = memory
        buffer[0], size[0], most_records[0] = address, _BUFFER_BYTES, 0

    def _take_back(self, _context: Any, _stream: int, buffer: int, _size: int, filled: int) -> None:
        """CUPTI gives memory back, whose first ``filled`` bytes are records."""
        record = ctypes.c_void_p()
        where = (ctypes.c_void_p(buffer), ctypes.c_size_t(filled), ctypes.byref(record))
        while self._library.cuptiActivityGetNextRecord(*where) == 0:
            activity = _activity(record.value or 0)
            if activity is not None:
                self._seen.append(activity)
        self._buffers.pop(buffer, None)


def _activity(record: int) -> Optional[Activity]:
    """What the record at this address tells; null where it is none of those asked for."""
    kind = ctypes.c_uint32.from_address(record).value
    if kind not in _KINDS:
        return None
    start_ns, end_ns = (ctypes.c_uint64.from_address(record + at).value for at in (_START_AT, _END_AT))
    return _name(kind, record), end_ns - start_ns


def _name(kind: int, record: int) -> str:
    if kind == _MEMSET:
        return "Memset"
    if kind == _MEMCPY:
        return f"Memcpy {_COPIES.get(ctypes.c_uint8.from_address(record + _COPY_KIND_AT).value, '')}".rstrip()
    text = ctypes.c_char_p.from_address(record + _KERNEL_NAME_AT).value or b"?"
    return demangled(text.decode(errors="replace"))
