"""Drawing inputs on the device, in the cell's dtype, under seeds derived from the judge's secret.

This module also decides, for the judge and all workers, how a dtype applies to inputs, parameters and float32 products.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import random
import sys
from contextlib import contextmanager
from enum import Enum
from types import ModuleType
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch

from kernel_matrix.inside.input_properties import (
    NO_PROPERTIES,
    InputProperties,
    find_properties,
    power_above,
    power_below,
)
from kernel_matrix.model.enums import Dtype, InputMode

OUTLIER_PROBABILITY = 0.001  # share of floating elements that ``outlier`` mode scales (KernelBench-X)
OUTLIER_SCALE = 50.0

LARGEST_WHOLE = 8  # largest magnitude of integer inputs: products and short sums fit into 8 bits

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

PIECE = 1 << 24  # elements that a mode changes at once, since it takes several times their memory

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
    """Zeros and ones; negative elements become zeros, for problems whose answer to them is not an integer."""
    SIGNED = "signed"
    """Zeros and ones with the sign of the element."""
    WIDE = "wide"
    """The same, and in one input some integers that need one bit more than the next lower precision has."""


def derive_seed(secret: str, *parts: object) -> int:
    """Derive a 63-bit seed that cannot be predicted without ``secret``: SHA-256 over the secret and ``parts``."""
    text = "/".join([secret, *map(str, parts)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def draw_inputs(
    module: ModuleType,
    device: str,
    dtype: Dtype,
    mode: InputMode,
    seed: Optional[int],
    *,
    whole: IntegerRange = IntegerRange.ONES,
    properties: Sequence[Optional[InputProperties]] = (),
) -> List[Any]:
    """Call the problem's ``get_inputs()`` under ``seed``, if there is one, with tensors created on ``device``.

    Floating tensors are changed according to ``mode`` and cast to ``dtype``; integers and booleans are kept. ``whole``
    is the range of the integers in mode ``exact``. ``properties`` of each tensor are kept.
    """
    with _drawing(device, dtype, seed):
        drawn = list(module.get_inputs())
        known = [one or NO_PROPERTIES for one in properties]
        known += [NO_PROPERTIES] * (len(tensors_in(drawn)) - len(known))
        # In one input only: implementations that split numbers into halves may leave out the product of the lower two.
        able = [place for place, tensor in enumerate(tensors_in(drawn)) if _can_be_wide(tensor, known[place], dtype)]
        wide = random.choice(able) if able else -1  # noqa: S311  # under the judge's secret
        key = random.getrandbits(31)
        places = itertools.count()

        def as_input(tensor: torch.Tensor) -> torch.Tensor:
            place = next(places)
            longest = max(*tensor.shape, 1, 1)
            change = _Change(dtype, mode, whole, known[place], key, longest, may_be_wide=place == wide)
            return _as_input(tensor.to(device), change)

        # Each is freed when it is changed, since there may be too little memory for all of them twice.
        return [map_tensors(drawn.pop(0), as_input) for _ in range(len(drawn))]


def inspect_inputs(
    module: ModuleType, device: str, dtype: Dtype, seeds: Iterable[int]
) -> Tuple[Optional[InputProperties], ...]:
    """Return the properties that each tensor of the problem's inputs has in the draws under all ``seeds``."""

    def draw(seed: int) -> List[torch.Tensor]:
        with _drawing(device, dtype, seed):
            return tensors_in(module.get_inputs())

    return find_properties(functools.partial(draw, seed) for seed in seeds)


def can_change(properties: Sequence[Optional[InputProperties]], mode: InputMode) -> bool:
    """Return False if ``mode`` leaves floating inputs as they are drawn, since it would break what each of them has."""
    floating = [one for one in properties if one is not None]
    if mode is InputMode.STANDARD or not floating:
        return True
    if mode is InputMode.OUTLIER:
        return any(one.takes_outliers for one in floating)
    return any(one.takes_integers for one in floating) or all(one.whole for one in floating)


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
def _drawing(device: str, dtype: Dtype, seed: Optional[int]) -> Iterator[None]:
    """Seed everything, create tensors on ``device``, and in float64 cells draw numbers with all their bits.

    Without a seed the generators stay as they are.
    """
    before = torch.get_default_dtype()
    if seed is not None:
        _seed_everything(seed)
    torch.set_default_dtype(torch.float64 if dtype is Dtype.FP64 else before)
    try:
        with torch.device(device):
            yield
    finally:
        torch.set_default_dtype(before)


class _Change(NamedTuple):
    """A mode's map of the elements of one tensor."""

    dtype: Dtype
    mode: InputMode
    whole: IntegerRange
    properties: InputProperties
    key: int
    """Secret of :func:`_chances`, the same for all tensors of a draw, as they may have elements in common."""
    longest: int
    """Size of the tensor's longest dimension."""
    may_be_wide: bool
    """It is the tensor that has wide integers, if any has."""


def _can_be_wide(tensor: torch.Tensor, properties: InputProperties, dtype: Dtype) -> bool:
    """Return True if integers that need many bits break nothing that is known of ``tensor``."""
    able = properties.takes_integers and not properties.least and not properties.repeated
    return able and tensor.is_floating_point() and dtype in LOWER_BITS


def _as_input(tensor: torch.Tensor, change: _Change) -> torch.Tensor:
    as_drawn = change.mode is InputMode.STANDARD and tensor.dtype is TORCH_DTYPES[change.dtype]
    if as_drawn or not tensor.is_floating_point():
        return tensor
    if not tensor.is_contiguous() or tensor.numel() <= PIECE:
        return _strided_like(tensor, _numbers_for(tensor, change))
    numbers = torch.empty(tensor.shape, dtype=TORCH_DTYPES[change.dtype], device=tensor.device)
    for old, new in zip(tensor.view(-1).split(PIECE), numbers.view(-1).split(PIECE)):
        new.copy_(_numbers_for(old, change))
    return numbers


def _strided_like(drawn: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Give ``numbers`` the strides of ``drawn``, since a problem may draw a view on purpose."""
    if numbers.stride() == drawn.stride() or 0 in drawn.stride():  # overlapping elements cannot be written
        return numbers
    place = torch.empty_strided(drawn.shape, drawn.stride(), dtype=numbers.dtype, device=numbers.device)
    return place.copy_(numbers)


def _numbers_for(tensor: torch.Tensor, change: _Change) -> torch.Tensor:
    wanted = TORCH_DTYPES[change.dtype]
    if change.dtype in WHOLE_DTYPES:
        return _whole_numbers(tensor, change).to(wanted)
    if change.mode is InputMode.EXACT and change.properties.takes_integers:
        tensor = _exact_numbers(tensor, change)
    elif change.mode is InputMode.OUTLIER and change.properties.takes_outliers:
        tensor = _scale_outliers(tensor, change)
    if change.dtype in FP8_DTYPES:  # beyond its range e4m3 has no infinity, only NaN
        largest = torch.finfo(wanted).max
        tensor = tensor.clamp(-largest, largest)
    return tensor.to(wanted)


def _scale_outliers(tensor: torch.Tensor, change: _Change) -> torch.Tensor:
    """Make few elements larger; where the range has an end, make all others smaller instead."""
    chosen = _chances(tensor, change.key) < OUTLIER_PROBABILITY
    if math.isfinite(change.properties.largest):
        return torch.where(chosen, tensor, tensor / OUTLIER_SCALE)
    return torch.where(chosen, tensor * OUTLIER_SCALE, tensor)


def _exact_numbers(tensor: torch.Tensor, change: _Change) -> torch.Tensor:
    """Return few enough ones and wide integers that sums along the longest dimension are exact in the dtype.

    The bound holds for absolute values, so partial sums in any order are exact too. Where the range has an end, all are
    multiples of a power of two instead. Where no element is near zero, none becomes zero.
    """
    dtype, properties = change.dtype, change.properties
    room = 2.0 ** (EXACT_BITS[dtype] - 1) / change.longest
    chances = _chances(tensor, change.key)
    if properties.least:
        low = power_above(properties.least)
        high = 2 * low if 2 * low <= properties.largest else low
        if room < high / low:
            return tensor
        return _signed(torch.where(chances < 0.5, high, low), tensor)
    number = 2.0 ** (LOWER_BITS[dtype] + 1) + 1 if change.whole is IntegerRange.WIDE and dtype in LOWER_BITS else 1.0
    unit = power_below(min(properties.largest / number, 1.0))  # the same for tensors without wide integers: they add up
    numbers = torch.where(chances < min(0.5, room), unit, 0.0)
    if number > 1 and change.may_be_wide:
        numbers = torch.where(chances > 1 - min(WIDE_SHARE, room / number / 2), number * unit, numbers)
    numbers = _signed(numbers, tensor)
    positive = change.whole is IntegerRange.ONES and properties.two_signs and not properties.antisymmetric
    return numbers.clamp_(min=0) if positive else numbers


def _whole_numbers(tensor: torch.Tensor, change: _Change) -> torch.Tensor:
    """Return truth values, or integers up to :data:`LARGEST_WHOLE` with the signs of the elements."""
    if change.properties.fixed:
        limits = torch.iinfo(torch.int8 if change.dtype is Dtype.INT8 else torch.int32)
        return tensor.nan_to_num().round().clamp(limits.min, limits.max)
    chances = _chances(tensor, change.key)
    if change.dtype is Dtype.BOOL:
        return (chances < 0.5) & (tensor != 0)
    least = 1 if change.properties.least else 0
    return _signed((chances * (LARGEST_WHOLE + 1 - least)).floor_().clamp_(max=LARGEST_WHOLE - least) + least, tensor)


def _signed(magnitudes: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Return ``magnitudes`` with the signs of ``tensor``; zeros, infinities and NaN of ``tensor`` stay."""
    return torch.where(torch.isfinite(tensor), magnitudes.to(tensor.dtype) * tensor.sign(), tensor)


def _chances(tensor: torch.Tensor, key: int) -> torch.Tensor:
    """Return a number between 0 and 1 for each element that looks random, but follows from its magnitude and ``key``.

    The bits of the element are mixed as by the hash function ``lowbias32`` (C. Wellons, Hash Prospector, 2018).
    """
    bits = tensor.to(torch.float32, copy=True).abs_().view(torch.int32).bitwise_xor_(key)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B - (1 << 32)), (16, 1)):
        bits.bitwise_xor_(bits >> shift).mul_(factor)
    return bits.bitwise_and_(0x7FFFFFFF).to(torch.float32).div_(1 << 31)


def _widen_arguments(_module: Any, arguments: Tuple[Any, ...]) -> Any:
    def widen(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.bfloat16() if tensor.dtype in (torch.float8_e4m3fn, torch.float8_e5m2) else tensor

    return map_tensors(arguments, widen)
