"""Drawing inputs: on the device, under seeds derived from the judge's secret, in the cell's dtype.

What a dtype means for inputs, parameters and float32 arithmetic is decided here, for the judge and every worker alike.
"""

from __future__ import annotations

import hashlib
import random
import sys
from contextlib import contextmanager
from enum import Enum
from types import ModuleType
from typing import Any, Callable, Iterable, Iterator, List, Tuple

import torch

from kernel_matrix.model.enums import Dtype, InputMode

OUTLIER_PROBABILITY = 0.001
"""Share of floating elements that ``outlier`` mode scales (KernelBench-X)."""
OUTLIER_SCALE = 50.0

WHOLE_RANGE = (-8, 8)
"""Least and largest number that an integer dtype's cells draw: products and short sums fit into 8 bits."""

TORCH_DTYPES = {
    Dtype.FP32: torch.float32,
    Dtype.FP16: torch.float16,
    Dtype.BF16: torch.bfloat16,
    Dtype.FP64: torch.float64,
    Dtype.TF32: torch.float32,
    Dtype.FP8_E4M3: torch.float8_e4m3fn,
    Dtype.FP8_E5M2: torch.float8_e5m2,
    Dtype.INT8: torch.int8,
    Dtype.INT32: torch.int32,
    Dtype.BOOL: torch.bool,
}
"""What floating inputs are cast to."""

FP8_DTYPES = frozenset({Dtype.FP8_E4M3, Dtype.FP8_E5M2})
"""Inputs of 8 bits; parameters, the reference's arithmetic and its outputs are bfloat16."""

WHOLE_DTYPES = frozenset({Dtype.INT8, Dtype.INT32, Dtype.BOOL})
"""Floating inputs are replaced by whole numbers or truth values; parameters stay float32."""

PARAMETER_DTYPES = {
    **TORCH_DTYPES,
    **dict.fromkeys(FP8_DTYPES, torch.bfloat16),
    **dict.fromkeys(WHOLE_DTYPES, torch.float32),
}
"""What floating parameters, buffers and arguments of the constructor are cast to."""

EXACT_BITS = {
    Dtype.FP64: 53,
    Dtype.FP32: 24,
    Dtype.TF32: 24,
    Dtype.FP16: 11,
    Dtype.BF16: 8,
    Dtype.FP8_E4M3: 8,
    Dtype.FP8_E5M2: 8,
}
"""Whole numbers up to two to this power are exact in the outputs of a cell of this dtype."""

LOWER_BITS = {
    Dtype.FP64: 23,
    Dtype.FP32: 10,
    Dtype.TF32: 7,
    Dtype.FP16: 3,
    Dtype.BF16: 3,
}
"""Mantissa bits of the next lower precision: float32, TF32, bfloat16, and 8-bit floats."""

WIDE_SHARE = 1 / 8
"""Largest share of an input's elements that are wide, see :func:`draw_inputs`."""

_MODULE_CASTS = {
    torch.float64: "double",
    torch.float32: "float",
    torch.float16: "half",
    torch.bfloat16: "bfloat16",
}


def set_float32_precision(dtype: Dtype) -> None:
    """Let float32 products round their factors to TF32 in cells of that dtype, and in no others."""
    allowed = dtype is Dtype.TF32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def place_model(model: Any, device: str, dtype: Dtype) -> Any:
    """``model`` on ``device``, floating parameters and buffers in the cell's dtype; all others stay what they are."""
    # Not Module.to(dtype=...), which makes complex buffers real.
    return getattr(model.to(device=device), _MODULE_CASTS[PARAMETER_DTYPES[dtype]])()


def place_reference(model: Any, device: str, dtype: Dtype) -> Any:
    """As :func:`place_model`, for a problem's own model: 8-bit inputs become bfloat16 before it sees them."""
    placed = place_model(model, device, dtype)
    if dtype in FP8_DTYPES:
        placed.register_forward_pre_hook(_widen_arguments)
    return placed


class IntegerRange(Enum):
    """Which whole numbers inputs are made of in mode ``exact``."""

    ONES = "ones"
    """Zeros and ones."""
    SIGNED = "signed"
    """Zeros, and ones of either sign: what a problem whose own inputs are all positive never shows."""
    WIDE = "wide"
    """Zeros and ones, and in one input some numbers that need one bit more than the next lower precision has."""


def derive_seed(secret: str, *parts: object) -> int:
    """A 63-bit seed that nobody without ``secret`` can foresee: SHA-256 over the secret and what it is for."""
    text = "/".join([secret, *map(str, parts)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def draw_inputs(
    module: ModuleType,
    device: str,
    dtype: Dtype,
    mode: InputMode,
    seed: int,
    *,
    whole: IntegerRange = IntegerRange.ONES,
) -> List[Any]:
    """``get_inputs()`` of the problem under ``seed``, created on ``device``.

    Floating tensors are changed as ``mode`` says and cast to ``dtype``; integers and booleans stay what they are.

    :param whole: which whole numbers there are in mode ``exact``.
    """
    _seed_everything(seed)
    with torch.device(device), _drawing_as_wide_as(dtype):
        drawn = module.get_inputs()
        # In one only: implementations that split numbers in halves may leave out the product of both lower ones.
        floating = [tensor for tensor in tensors_in(drawn) if tensor.is_floating_point()]
        chosen = random.choice(floating) if floating else None  # noqa: S311  # under the judge's secret

        def as_input(tensor: torch.Tensor) -> torch.Tensor:
            numbers = IntegerRange.ONES if whole is IntegerRange.WIDE and tensor is not chosen else whole
            return _as_input(tensor.to(device), dtype, mode, numbers)

        return [map_tensors(value, as_input) for value in drawn]


def cast(value: Any, device: str, dtype: Dtype) -> Any:
    """``value`` on ``device``, floating tensors as parameters of a cell of ``dtype``; containers are gone through."""
    return map_tensors(value, lambda t: t.to(device, PARAMETER_DTYPES[dtype] if t.is_floating_point() else None))


def map_tensors(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """``value`` with ``function`` applied to every tensor in it."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        items = [map_tensors(item, function) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: map_tensors(item, function) for key, item in value.items()}
    return value


def tensors_in(value: Any) -> List[torch.Tensor]:
    """Every tensor in ``value``, in the order that :func:`map_tensors` meets them."""
    found: List[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    map_tensors(value, keep)
    return found


def nbytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes that their elements take, ``meta`` ones included."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _seed_everything(seed: int) -> None:
    seed_torch(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % (1 << 32))


def seed_torch(seed: int) -> None:
    """As ``torch.manual_seed``, for the devices that are here.

    For each kind that is not, that one keeps the call for later together with a printed traceback: half a millisecond
    each, before every call that is timed, and never let go.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized() or torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


@contextmanager
def _drawing_as_wide_as(dtype: Dtype) -> Iterator[None]:
    """What is drawn without a dtype has all the bits of a double in cells of doubles."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if dtype is Dtype.FP64 else before)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _as_input(tensor: torch.Tensor, dtype: Dtype, mode: InputMode, whole: IntegerRange) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    return _strided_like(tensor, _numbers_for(tensor, dtype, mode, whole))


def _strided_like(drawn: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """``numbers`` as far apart in memory as those that were drawn: a problem that draws a view means one."""
    if numbers.stride() == drawn.stride() or 0 in drawn.stride():  # what overlaps cannot be written as it lies
        return numbers
    place = torch.empty_strided(drawn.shape, drawn.stride(), dtype=numbers.dtype, device=numbers.device)
    return place.copy_(numbers)


def _numbers_for(tensor: torch.Tensor, dtype: Dtype, mode: InputMode, whole: IntegerRange) -> torch.Tensor:
    if dtype in WHOLE_DTYPES:
        return _whole_numbers(tensor, dtype)
    if mode is InputMode.EXACT:
        tensor = _exact_numbers(tensor, dtype, whole)
    elif mode is InputMode.OUTLIER:
        tensor = _scale_outliers(tensor)
    wanted = TORCH_DTYPES[dtype]
    if dtype in FP8_DTYPES:  # beyond its range e4m3 has no infinity, only NaN
        largest = torch.finfo(wanted).max
        tensor = tensor.clamp(-largest, largest)
    return tensor.to(wanted)


def _scale_outliers(tensor: torch.Tensor) -> torch.Tensor:
    chosen = torch.rand(tensor.shape, device=tensor.device) < OUTLIER_PROBABILITY
    return torch.where(chosen, tensor * OUTLIER_SCALE, tensor)


def _exact_numbers(tensor: torch.Tensor, dtype: Dtype, whole: IntegerRange) -> torch.Tensor:
    """So few ones, and wide numbers, that a sum along the longest dimension stays within what the dtype counts exactly.

    That holds for their sizes too, whatever their signs: partial sums in any order are then as exact as the sum.
    """
    room = 2.0 ** (EXACT_BITS[dtype] - 1) / max(*tensor.shape, 1, 1)
    ones = torch.empty_like(tensor).bernoulli_(min(0.5, room))
    if whole is IntegerRange.SIGNED:
        return torch.where(torch.rand(tensor.shape, device=tensor.device) < 0.5, ones, -ones)  # a coin
    if whole is IntegerRange.ONES or dtype not in LOWER_BITS:
        return ones
    number = 2.0 ** (LOWER_BITS[dtype] + 1) + 1
    chosen = torch.rand(tensor.shape, device=tensor.device) < min(WIDE_SHARE, room / number / 2)
    return torch.where(chosen, number, ones)


def _whole_numbers(tensor: torch.Tensor, dtype: Dtype) -> torch.Tensor:
    low, high = (0, 1) if dtype is Dtype.BOOL else WHOLE_RANGE
    return torch.randint(low, high + 1, tensor.shape, dtype=TORCH_DTYPES[dtype], device=tensor.device)


def _widen_arguments(_module: Any, arguments: Tuple[Any, ...]) -> Any:
    def widen(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.bfloat16() if tensor.dtype in (torch.float8_e4m3fn, torch.float8_e5m2) else tensor

    return map_tensors(arguments, widen)
