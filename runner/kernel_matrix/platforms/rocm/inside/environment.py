"""Environment inside that is specific to AMD GPUs."""

from __future__ import annotations

from typing import Mapping, Optional

import torch

from kernel_matrix.platforms.rocm.inside.caches import architecture


def describe() -> Mapping[str, Optional[str]]:
    """Return the fields of the environment that are about the GPU; those about CUDA stay empty."""
    return {"device_name": str(torch.cuda.get_device_name(0)), "compute_capability": architecture()}
