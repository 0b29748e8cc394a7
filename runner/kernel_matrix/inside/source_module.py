"""Importing a source file as a module, with other values for its constants."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Mapping

MODULE_SEED = 42  # set before each model is constructed, in judge and worker: KernelBench's way of matching parameters


def import_file(path: Path, name: str, values: Mapping[str, Any]) -> ModuleType:
    """Run ``path`` as module ``name``, then set the constants in ``values``.

    The module stays in :data:`sys.modules`, where Triton and torch look it up.

    Raises:
        AttributeError: If ``values`` names a constant that the module does not have.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is not a Python source file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    for constant, value in values.items():
        if not hasattr(module, constant):
            raise AttributeError(f"{path.name} has no module constant {constant!r}")
        setattr(module, constant, value)
    return module
