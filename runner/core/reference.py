"""The problem's reference, three times over: in higher precision, in the cell's dtype, and as what it is made of.

Only the judge's process ever holds one. ``expected`` comes from the same parameters and the same (already rounded)
inputs computed in float64; ``trusted`` is the reference in the cell's own dtype, whose error says what an honest
implementation of that precision may differ by.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Tuple

import torch

from runner.core.finding import finding
from runner.core.inputs import TORCH_DTYPES, cast, derive_seed, draw_inputs, map_tensors
from runner.core.memory import dtype_name
from runner.core.sourcefile import import_file
from runner.core.vocab import Dtype, Mode, Stage, Status
from runner.core.wire import Structure
from runner.core.worker import MODULE_SEED, place_model

_IDLE_SHARE = 8
"""The judge keeps at most one part in so many of the device's memory for later."""


@dataclass(frozen=True)
class Expected:
    """What a call must return."""

    structure: Structure
    outputs: Tuple[torch.Tensor, ...]
    """In the reference's precision (``float64`` as a rule); integers and booleans as they are."""
    trusted: Tuple[torch.Tensor, ...]
    """The same from the reference in the cell's dtype."""


class Reference:
    """One workload's reference on one device."""

    def __init__(self, path: Path, values: Mapping[str, Any], device: str, dtype: Dtype, secret: str) -> None:
        self.device = device
        self.dtype = dtype
        self._secret = secret
        self._module = import_file(path, "kernel_matrix_problem", values)
        self._seed_for_init()
        with torch.device(device):
            init = self._module.get_init_inputs() if hasattr(self._module, "get_init_inputs") else []
        self.init_arguments: List[Any] = [cast(value, device, dtype) for value in init]
        self._seed_for_init()
        model = self._module.Model(*map_tensors(self.init_arguments, torch.clone))
        self._model = place_model(model, device, dtype_name(TORCH_DTYPES[dtype]))
        self.state: Dict[str, torch.Tensor] = dict(self._model.state_dict())
        self._oracle, self.precision = self._higher_precision()

    def draw(self, mode: Mode, *purpose: object) -> List[Any]:
        """Inputs that exist for the first time now, under a seed derived for ``purpose``."""
        seed = derive_seed(self._secret, mode.value, *purpose)
        return draw_inputs(self._module, self.device, self.dtype, mode, seed)

    def expect(self, inputs: List[Any]) -> Expected:
        """What a call with ``inputs`` must return; ``inputs`` are not touched.

        :raises Finding: ``problem_error`` when the reference returns anything but tensors.
        """
        structure, trusted = _flatten(self._run(self._model, map_tensors(inputs, torch.clone)))
        outputs = trusted if self._oracle is None else self._expect_precisely(inputs)
        _give_back_memory(self.device)
        return Expected(structure, tuple(outputs), tuple(trusted))

    def _expect_precisely(self, inputs: List[Any]) -> List[torch.Tensor]:
        precise = getattr(torch, self.precision)
        raised = map_tensors(inputs, lambda t: t.to(precise) if t.is_floating_point() else t.clone())
        return _flatten(self._run(self._oracle, raised))[1]

    def _higher_precision(self) -> Tuple[Any, str]:
        """The reference in float64; null and the cell's own dtype where it cannot be computed so."""
        oracle = copy.deepcopy(self._model).double()
        probe = self.draw(Mode.STANDARD, "probe")
        raised = map_tensors(probe, lambda t: t.double() if t.is_floating_point() else t.clone())
        try:
            self._run(oracle, raised)
        except Exception:  # noqa: BLE001  # a reference may raise anything for a dtype it was not written for
            # An operator without a float64 form, or a reference that makes or wants tensors of a fixed dtype.
            return None, dtype_name(TORCH_DTYPES[self.dtype])
        return oracle, "float64"

    def _run(self, model: Any, inputs: List[Any]) -> Any:
        with torch.no_grad(), torch.device(self.device):
            return model(*inputs)

    def _seed_for_init(self) -> None:
        torch.manual_seed(MODULE_SEED)


def _flatten(returned: Any) -> Tuple[Structure, List[torch.Tensor]]:
    if isinstance(returned, torch.Tensor):
        return Structure.TENSOR, [returned]
    if isinstance(returned, (tuple, list)) and returned and all(isinstance(r, torch.Tensor) for r in returned):
        return (Structure.TUPLE if isinstance(returned, tuple) else Structure.LIST), list(returned)
    kind = type(returned).__name__
    raise finding(Status.PROBLEM_ERROR, Stage.LOAD, f"the reference returns {kind}, not tensors")


def _give_back_memory(device: str) -> None:
    """Leave the device's memory to the workers when torch keeps much of it that the judge does not use now."""
    if device != "cuda":
        return
    idle = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    if idle > torch.cuda.get_device_properties(0).total_memory / _IDLE_SHARE:
        torch.cuda.empty_cache()


def guarded(what: str, stage: Stage, function: Callable[[], Any]) -> Any:
    """Run code of the problem; whatever it raises is the problem's fault.

    :raises Finding: ``problem_error`` with the traceback.
    """
    import traceback  # noqa: PLC0415  # only on the way out

    from runner.core.finding import Finding  # noqa: PLC0415

    try:
        return function()
    except Finding:
        raise
    except Exception as error:  # noqa: BLE001  # a problem may raise anything
        message = f"{what} raised {type(error).__name__}: {error}"
        raise finding(Status.PROBLEM_ERROR, stage, message[:500], traceback.format_exc()) from None
