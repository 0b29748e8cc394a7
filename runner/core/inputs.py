"""Drawing inputs: on the device, under seeds derived from the judge's secret, in the cell's dtype."""

from __future__ import annotations

import hashlib
import random
from types import ModuleType
from typing import Any, Callable, List

import torch

from runner.core.vocab import Dtype, Mode

OUTLIER_PROBABILITY = 0.001
"""Share of floating elements that ``outlier`` mode scales (KernelBench-X)."""
OUTLIER_SCALE = 50.0

TORCH_DTYPES = {
    Dtype.FP32: torch.float32,
    Dtype.FP16: torch.float16,
    Dtype.BF16: torch.bfloat16,
    Dtype.FP64: torch.float64,
}


def derive_seed(secret: str, *parts: object) -> int:
    """A 63-bit seed that nobody without ``secret`` can foresee: SHA-256 over the secret and what it is for."""
    text = "/".join([secret, *map(str, parts)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def draw_inputs(module: ModuleType, device: str, dtype: Dtype, mode: Mode, seed: int) -> List[Any]:
    """``get_inputs()`` of the problem under ``seed``, created on ``device``.

    Floating tensors are cast to ``dtype``; integers and booleans stay what they are.
    """
    _seed_everything(seed)
    with torch.device(device):
        drawn = module.get_inputs()
        inputs = [cast(value, device, dtype) for value in drawn]
        return [_scale_outliers(value) for value in inputs] if mode is Mode.OUTLIER else inputs


def cast(value: Any, device: str, dtype: Dtype) -> Any:
    """``value`` on ``device``, floating tensors in ``dtype``; lists, tuples and dictionaries are gone through."""
    return map_tensors(value, lambda t: t.to(device, TORCH_DTYPES[dtype] if t.is_floating_point() else None))


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


def _seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)


def _scale_outliers(value: Any) -> Any:
    def scale(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor
        chosen = torch.rand(tensor.shape, device=tensor.device) < OUTLIER_PROBABILITY
        return torch.where(chosen, tensor * OUTLIER_SCALE, tensor)

    return map_tensors(value, scale)
