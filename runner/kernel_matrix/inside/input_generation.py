"""Drawing inputs on the device, in the cell's dtype, under seeds derived from the judge's secret.

This module also decides, for the judge and all workers, how a dtype applies to inputs, parameters and float32 products.
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

OUTLIER_PROBABILITY = 0.001  # share of floating elements that ``outlier`` mode scales (KernelBench-X)
OUTLIER_SCALE = 50.0

WHOLE_RANGE = (-8, 8)  # range of integer inputs: products and short sums fit into 8 bits

# Dtype that floating inputs are cast to.
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
# Inputs have 8 bits; parameters, the reference's arithmetic and its outputs are bfloat16.
FP8_DTYPES = frozenset({Dtype.FP8_E4M3, Dtype.FP8_E5M2})

# Floating inputs are replaced by integers or booleans; parameters stay float32.
WHOLE_DTYPES = frozenset({Dtype.INT8, Dtype.INT32, Dtype.BOOL})

# Dtype that floating parameters, buffers and constructor arguments are cast to.
PARAMETER_DTYPES = {
    **TORCH_DTYPES,
    **dict.fromkeys(FP8_DTYPES, torch.bfloat16),
    **dict.fromkeys(WHOLE_DTYPES, torch.float32),
}

# Integers up to two to this power are exact in the outputs of a cell of this dtype.
EXACT_BITS = {
    Dtype.FP64: 53,
    Dtype.FP32: 24,
    Dtype.TF32: 24,
    Dtype.FP16: 11,
    Dtype.BF16: 8,
    Dtype.FP8_E4M3: 8,
    Dtype.FP8_E5M2: 8,
}

# Mantissa bits of the next lower precision: float32, TF32, bfloat16, and 8-bit floats.
LOWER_BITS = {
    Dtype.FP64: 23,
    Dtype.FP32: 10,
    Dtype.TF32: 7,
    Dtype.FP16: 3,
    Dtype.BF16: 3,
}

WIDE_SHARE = 1 / 8  # at most this share of an input's elements is wide, see IntegerRange.WIDE

_MODULE_CASTS = {
    torch.float64: "double",
    torch.float32: "float",
    torch.float16: "half",
    torch.bfloat16: "bfloat16",
}


def set_float32_precision(dtype: Dtype) -> None:
    """Allow TF32 for float32 products in cells of that dtype only."""
    allowed = dtype is Dtype.TF32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def place_model(model: Any, device: str, dtype: Dtype) -> Any:
    """Move ``model`` to ``device``, and cast its floating parameters and buffers to the cell's dtype."""
    # Not Module.to(dtype=...), which makes complex buffers real.
    return getattr(model.to(device=device), _MODULE_CASTS[PARAMETER_DTYPES[dtype]])()


def place_reference(model: Any, device: str, dtype: Dtype) -> Any:
    """Place a problem's own model like :func:`place_model`; it receives 8-bit inputs converted to bfloat16."""
    placed = place_model(model, device, dtype)
    if dtype in FP8_DTYPES:
        placed.register_forward_pre_hook(_widen_arguments)
    return placed


class IntegerRange(Enum):
    """Integers that inputs consist of in mode ``exact``."""

    ONES = "ones"
    """Zeros and ones."""
    SIGNED = "signed"
    """Zeros and ones of either sign, for problems whose own inputs are all positive."""
    WIDE = "wide"
    """Zeros and ones, and in one input some integers that need one bit more than the next lower precision has."""


def derive_seed(secret: str, *parts: object) -> int:
    """Derive a 63-bit seed that cannot be predicted without ``secret``: SHA-256 over the secret and ``parts``."""
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
    """Call the problem's ``get_inputs()`` under ``seed``, with tensors created on ``device``.

    Floating tensors are changed according to ``mode`` and cast to ``dtype``; integers and booleans are kept. ``whole``
    is the range of the integers in mode ``exact``.
    """
    _seed_everything(seed)
    with torch.device(device), _drawing_as_wide_as(dtype):
        drawn = module.get_inputs()
        # In one input only: implementations that split numbers into halves may leave out the product of the lower two.
        floating = [tensor for tensor in tensors_in(drawn) if tensor.is_floating_point()]
        chosen = random.choice(floating) if floating else None  # noqa: S311  # under the judge's secret

        def as_input(tensor: torch.Tensor) -> torch.Tensor:
            numbers = IntegerRange.ONES if whole is IntegerRange.WIDE and tensor is not chosen else whole
            return _as_input(tensor.to(device), dtype, mode, numbers)

        return [map_tensors(value, as_input) for value in drawn]


def cast(value: Any, device: str, dtype: Dtype) -> Any:
    """Move ``value`` to ``device`` and cast its floating tensors like parameters, also inside containers."""
    return map_tensors(value, lambda t: t.to(device, PARAMETER_DTYPES[dtype] if t.is_floating_point() else None))


def map_tensors(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Return ``value`` with ``function`` applied to every tensor in it."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        items = [map_tensors(item, function) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: map_tensors(item, function) for key, item in value.items()}
    return value


def tensors_in(value: Any) -> List[torch.Tensor]:
    """Return every tensor in ``value``, in the order in which :func:`map_tensors` visits them."""
    found: List[torch.Tensor] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    map_tensors(value, keep)
    return found


def nbytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of all elements, including those of ``meta`` tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _seed_everything(seed: int) -> None:
    seed_torch(seed)
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % (1 << 32))


def seed_torch(seed: int) -> None:
    """Seed torch like ``torch.manual_seed``, but only the devices that exist.

    For each kind of device that does not exist, ``torch.manual_seed`` queues a call together with a formatted
    traceback. Each takes half a millisecond, before every timed call, and its memory is never freed.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized() or torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)


@contextmanager
def _drawing_as_wide_as(dtype: Dtype) -> Iterator[None]:
    """Make float64 the default dtype in float64 cells, so that numbers are drawn with all their bits."""
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
    """Give ``numbers`` the strides of ``drawn``, since a problem may draw a view on purpose."""
    if numbers.stride() == drawn.stride() or 0 in drawn.stride():  # overlapping elements cannot be written
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
    """Draw few enough ones and wide integers that sums along the longest dimension are exact in the dtype.

    The bound holds for absolute values, so partial sums in any order are exact too.
    """
    room = 2.0 ** (EXACT_BITS[dtype] - 1) / max(*tensor.shape, 1, 1)
    ones = torch.empty_like(tensor).bernoulli_(min(0.5, room))
    if whole is IntegerRange.SIGNED:
        return torch.where(torch.rand(tensor.shape, device=tensor.device) < 0.5, ones, -ones)
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
