"""CUPTI's activity records through ctypes: one record for each kernel, copy and fill that the device runs.

``torch.profiler`` gives the same records, but enables far more of CUPTI: on an H200 its first start takes 3.7 s, and
that of these records alone less than a millisecond. The library is the one that torch has loaded, because a process can
have only one CUPTI.
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
"""Pattern of the library's name, to which wheels may add a hash."""

_MEMCPY, _MEMSET, _CONCURRENT_KERNEL = 1, 2, 10
_KINDS = (_CONCURRENT_KERNEL, _MEMCPY, _MEMSET)
_COPY_KIND_AT, _START_AT, _END_AT, _KERNEL_NAME_AT = 4, 16, 24, 104
"""Offsets in a record in bytes. CUPTI only appends fields to its records; these have not moved since CUDA 9."""
_COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}

_BUFFER_BYTES = 8 << 20
"""Room for about 40,000 records: if one buffer is enough, CUPTI calls back only during a flush."""
_ALIGNMENT = 8  # of a buffer: ACTIVITY_RECORD_ALIGNMENT
_FLUSH_FORCED = 1  # CUPTI_ACTIVITY_FLAG_FLUSH_FORCED

_REQUESTED = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
_COMPLETED = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)


class CuptiError(RuntimeError):
    """A call of CUPTI failed, or this version of CUPTI lacks the function."""


def loaded_library() -> Optional[Path]:
    """Return the file of the CUPTI library that this process has loaded; None if there is none."""
    return mapped_library(_LIBRARY)


@lru_cache(maxsize=None)
def recorder(library: Path) -> ActivityRecorder:
    """Return the recorder of ``library``, always the same one: CUPTI keeps its callbacks until the process ends.

    Raises:
        OSError: if the library cannot be loaded.
    """
    return ActivityRecorder(ctypes.CDLL(str(library)))


class ActivityRecorder:
    """Recorder of what the device runs between :meth:`start` and :meth:`stop`; the device must be idle at both."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._buffers: Dict[int, Any] = {}
        """Address → memory that CUPTI writes to."""
        self._activities: List[Activity] = []
        self._callbacks = (_REQUESTED(self._lend), _COMPLETED(self._take_back))

    def start(self) -> None:
        """Start recording.

        Raises:
            CuptiError: if CUPTI fails; then nothing is recorded.
        """
        self._activities = []
        self._call("cuptiActivityRegisterCallbacks", *self._callbacks)
        try:
            for kind in _KINDS:
                self._call("cuptiActivityEnable", ctypes.c_uint32(kind))
        except CuptiError:
            self._disable()
            raise

    def stop(self) -> List[Activity]:
        """Stop recording, and return what ran since the start, in the order of CUPTI's records.

        Raises:
            CuptiError: if CUPTI does not return its records.
        """
        try:
            self._call("cuptiActivityFlushAll", ctypes.c_uint32(_FLUSH_FORCED))
        finally:
            self._disable()
        activities, self._activities = self._activities, []
        return activities

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
        """Give CUPTI a buffer; the three parameters are pointers to the results, and 0 records means no limit."""
        memory = ctypes.create_string_buffer(_BUFFER_BYTES + _ALIGNMENT)
        address = ctypes.addressof(memory)
        address += -address % _ALIGNMENT
        self._buffers[address] = memory
        buffer[0], size[0], most_records[0] = address, _BUFFER_BYTES, 0

    def _take_back(self, _context: Any, _stream: int, buffer: int, _size: int, filled: int) -> None:
        """Read the records in the first ``filled`` bytes of a buffer that CUPTI returns, and free it."""
        record = ctypes.c_void_p()
        where = (ctypes.c_void_p(buffer), ctypes.c_size_t(filled), ctypes.byref(record))
        while self._library.cuptiActivityGetNextRecord(*where) == 0:
            activity = _activity(record.value or 0)
            if activity is not None:
                self._activities.append(activity)
        self._buffers.pop(buffer, None)


def _activity(record: int) -> Optional[Activity]:
    """Read the record at this address; return None if it is of another kind."""
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
