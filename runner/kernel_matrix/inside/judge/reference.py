"""The problem's reference model in the judge: in higher precision, and in the cell's dtype.

Only the judge's process holds it. ``expected`` comes from the same parameters and the same (already rounded) inputs,
computed in float64. ``trusted`` is the reference in the cell's own dtype; its error shows how far an honest
implementation of that precision may be off.
"""

from __future__ import annotations

import copy
import functools
import math
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from kernel_matrix.inside.exception_kinds import classify, missing_package
from kernel_matrix.inside.input_generation import (
    LOWER_BITS,
    PARAMETER_DTYPES,
    TORCH_DTYPES,
    WHOLE_DTYPES,
    IntegerRange,
    can_change,
    cast,
    derive_seed,
    draw_inputs,
    inspect_inputs,
    map_tensors,
    nbytes_of,
    place_reference,
    seed_torch,
    set_float32_precision,
    tensors_in,
)
from kernel_matrix.inside.input_properties import DRAWS, InputProperties
from kernel_matrix.inside.judge.bits import Fingerprints
from kernel_matrix.inside.judge.precise_model import ModelAnswer, PreciseModel
from kernel_matrix.inside.judge.session_ended import finding
from kernel_matrix.inside.judge.tolerance import AllowedError, Tolerance, allowance
from kernel_matrix.inside.memory import dtype_name
from kernel_matrix.inside.platform import load_platform
from kernel_matrix.inside.source_module import MODULE_SEED, import_file
from kernel_matrix.inside.wire import CallFailure, Structure
from kernel_matrix.model.enums import Dtype, InputMode, Stage, Status

WASTED = 8  # an output that keeps more than this multiple of its bytes is copied
_IDLE_SHARE = 4  # the judge keeps at most one part in four of the device's memory for later


@dataclass(frozen=True)
class ExpectedOutput:
    """Outputs that a call must return."""

    structure: Structure
    outputs: Tuple[torch.Tensor, ...]
    """Outputs in the reference's precision (usually ``float64``); integers and booleans as they are."""
    trusted: Tuple[torch.Tensor, ...]
    """Outputs of the reference in the cell's dtype."""
    views: Tuple[bool, ...] = ()
    """Per output, whether the reference shares its memory with inputs, state or other outputs; empty for none."""
    written: Tuple[int, ...] = ()
    """Indices of the input tensors that the reference writes to."""
    left: Optional[ExpectedOutput] = None
    """Contents of these inputs afterwards; None if there are none."""
    some: Optional[ExpectedOutput] = None
    """Some rows of the outputs, where there is too little memory for all of them in a higher precision: they show what
    the trusted implementation errs by."""
    _allowances: Dict[Tolerance, Tuple[AllowedError, ...]] = field(default_factory=dict, compare=False, repr=False)

    def allowances(self, tolerance: Tolerance) -> Tuple[AllowedError, ...]:
        """Return the allowed error of each output; cached, since it reads every element."""
        if tolerance not in self._allowances:
            pairs = enumerate(zip(self.outputs, self.trusted))
            variations = dict(enumerate(tolerance.variations))
            found = [
                allowance(wanted, same, tolerance, variations.get(index, math.inf)) for index, (wanted, same) in pairs
            ]
            if self.some is not None:
                shares = (whole.numel() / max(1, part.numel()) for whole, part in zip(self.trusted, self.some.trusted))
                rows = zip(found, self.some.allowances(tolerance), shares)
                found = [mine.eased(theirs.for_more(share)) for mine, theirs, share in rows]
            self._allowances[tolerance] = tuple(found)
        return self._allowances[tolerance]

    def eased(self, other: ExpectedOutput, tolerance: Tolerance) -> ExpectedOutput:
        """Return a copy that also allows the errors of ``other``, expected on other inputs, if they are larger."""
        pairs = zip(self.allowances(tolerance), other.allowances(tolerance))
        left = self.left if self.left is None or other.left is None else self.left.eased(other.left, tolerance)
        return replace(self, left=left, _allowances={tolerance: tuple(mine.eased(theirs) for mine, theirs in pairs)})


class DrawnInputs:
    """Inputs of one call, which can be forgotten: drawing them again gives equal ones."""

    def __init__(self, draw: Callable[[], List[Any]]) -> None:
        """Draw the inputs with ``draw``."""
        self._draw = draw
        self._values: Optional[List[Any]] = draw()

    @property
    def values(self) -> List[Any]:
        """The arguments of the call, drawn again if they were forgotten."""
        if self._values is None:
            self._values = self._draw()
        return self._values

    def forget(self) -> None:
        """Free the inputs until they are asked for again."""
        self._values = None

    def can_be_drawn_again(self) -> bool:
        """Return True if another draw has equal bits; two draws are never in memory together."""
        before = Fingerprints(tensors_in(self.values))
        self.forget()
        return all(before.unchanged(tensors_in(self.values)))


class ReferenceModel:
    """One workload's reference on one device."""

    def __init__(
        self,
        path: Path,
        values: Mapping[str, Any],
        device: str,
        dtype: Dtype,
        secret: str,
        *,
        properties: Optional[Tuple[Optional[InputProperties], ...]] = None,
        ranks: int = 1,
    ) -> None:
        """Load the problem at ``path`` with these ``values``; ``properties`` of its inputs are found if not given.

        With several ``ranks``, arguments and outputs of a call are those of all ranks, one rank after the other.
        """
        set_float32_precision(dtype)
        self.platform = load_platform(device)
        self.device = device = self.platform.TORCH_DEVICE
        self.dtype = dtype
        self.ranks = ranks
        self._secret = secret
        self._module = _imported(path, values, ranks)
        seed_torch(MODULE_SEED)
        with torch.device(device):
            init = self._module.get_init_inputs() if hasattr(self._module, "get_init_inputs") else []
        self.init_arguments: List[Any] = [cast(value, device, dtype) for value in init]
        seed_torch(MODULE_SEED)
        model = self._module.Model(*map_tensors(self.init_arguments, torch.clone))
        self._model = place_reference(model, device, dtype)
        self.state: Dict[str, torch.Tensor] = dict(self._model.state_dict())
        self._rows: Optional[PreciseModel] = None  # the model called in pieces, once memory was lacking
        self._can_be_cut = True
        self._proof: Optional[PreciseModel] = None  # in float64, which has shown that rows are independent
        self._written: Tuple[int, ...] = ()
        self.temporary_bytes = 0
        """Most memory that a call takes besides inputs and outputs; 0 where the platform does not count it."""
        self._views: Tuple[bool, ...] = ()
        self.like: Tuple[torch.Tensor, ...] = ()  # shape, dtype and strides of each output, without its memory
        seeds = (derive_seed(secret, "properties", index) for index in range(DRAWS))
        # Of each tensor among the inputs.
        self.properties = inspect_inputs(self._module, device, dtype, seeds) if properties is None else properties
        probe = self.draw(InputMode.STANDARD, "probe")
        self._look_at_one_call(probe)
        if self._written:
            probe = self.draw(InputMode.STANDARD, "probe")
        self.call_bytes = nbytes_of([*tensors_in(probe), *self.like])  # inputs and outputs of one call
        self._oracle = self._higher_precision(probe)
        self.platform.release_memory(1 / _IDLE_SHARE)

    @property
    def precision(self) -> str:
        """Return the name of the dtype of expected outputs."""
        if self._oracle is not None:
            return self._oracle.precision
        return dtype_name(TORCH_DTYPES[self.dtype] if self.dtype in WHOLE_DTYPES else PARAMETER_DTYPES[self.dtype])

    @property
    def pieces(self) -> int:
        """Return in how many pieces expected outputs are computed."""
        return max(1 if model is None else model.pieces for model in (self._oracle, self._rows))

    @property
    def expected_bytes(self) -> int:
        """Return what the outputs of a call take in the cell's own dtype, with temporaries, and in float64."""
        in_float64 = sum(int(like.numel()) for like in self.like) * 8
        return self.temporary_bytes + nbytes_of(self.like) + in_float64

    @property
    def written(self) -> Tuple[int, ...]:
        """Return the indices of the input tensors that the reference writes to."""
        return self._written

    def draw(self, mode: InputMode, *purpose: object, whole: IntegerRange = IntegerRange.ONES) -> List[Any]:
        """Draw new inputs under a seed derived for ``purpose``; see :func:`draw_inputs`."""
        seed = derive_seed(self._secret, mode.value, *purpose)
        return draw_inputs(self._module, self.device, self.dtype, mode, seed, whole=whole, properties=self.properties)

    def draw_unseeded(self) -> List[Any]:
        """Draw inputs of mode ``standard`` from the generators as they are, which a capture does not allow to seed."""
        return draw_inputs(self._module, self.device, self.dtype, InputMode.STANDARD, None, properties=self.properties)

    def can_change(self, mode: InputMode) -> bool:
        """Return False if inputs of ``mode`` would be as the problem draws them; see :func:`can_change`."""
        return can_change(self.properties, mode)

    def expect(self, inputs: List[Any]) -> ExpectedOutput:
        """Return the outputs that a call with ``inputs`` must have; ``inputs`` are not changed.

        Raises:
            SessionEnded: ``problem_error`` if the reference returns anything but tensors.
        """
        trusted = _compact(self._trusted(inputs))  # first: the precise answer takes twice its memory
        precise = self._answer_precisely(inputs)
        self.platform.release_memory(1 / _IDLE_SHARE)
        wanted = trusted if precise is None else precise
        left = ExpectedOutput(Structure.TUPLE, wanted.left, trusted.left) if self._written else None
        some = self._expect_some(inputs, trusted) if precise is None else None
        return ExpectedOutput(
            trusted.structure, wanted.outputs, trusted.outputs, self._views, self._written, left=left, some=some
        )

    def answer(self, inputs: List[Any]) -> Tuple[torch.Tensor, ...]:
        """Return the reference's outputs in the cell's own dtype."""
        return _compact(self._trusted(inputs)).outputs

    def answer_one_precision_lower(self, inputs: List[Any]) -> Optional[Tuple[torch.Tensor, ...]]:
        """Return the outputs for inputs and parameters rounded to the mantissa of the next lower precision.

        Returns:
            The outputs; None if there is no lower precision, or if no number could be rounded.
        """
        bits = LOWER_BITS.get(self.dtype)
        if bits is None or not any(t.is_floating_point() for t in [*tensors_in(inputs), *self.state.values()]):
            return None
        model = copy.deepcopy(self._model if self._oracle is None else self._oracle.module)
        with torch.no_grad():
            for number in model.state_dict().values():
                if number.is_floating_point():
                    number.copy_(round_mantissa(number, bits))
        known = iter(self.properties)

        def rounded(tensor: torch.Tensor) -> torch.Tensor:
            properties = next(known)
            if properties is None or properties.whole:  # an index that is rounded may be out of bounds
                return tensor
            return round_mantissa(tensor, bits)

        oracle = self._oracle or self._precise(self._model, self.precision)
        answer = oracle.call(model, map_tensors(inputs, rounded))
        return tuple(tensor.to(like.dtype) for tensor, like in zip(answer.outputs, self.like))

    def _trusted(self, inputs: List[Any]) -> ModelAnswer:
        """Call the reference in the cell's own dtype, in pieces if memory is lacking for a whole call."""
        try:
            return self._run(self._model, self._spared(inputs))
        except Exception as error:
            if classify(error) is not CallFailure.MEMORY or self._written or not self._can_be_cut:
                raise
        self.platform.release_memory()  # not while the exception holds what the call had made
        self._rows = self._rows or self._cut(inputs)
        if self._rows is None:
            self._can_be_cut = False
            return self._run(self._model, inputs)
        return self._rows.call(self._model, inputs)

    def _cut(self, inputs: List[Any]) -> Optional[PreciseModel]:
        """Return the reference in its own precision, called in pieces, if float64 shows that rows are independent."""
        if self._proof is None:
            proof = self._precise(torch.nn.Module.double(copy.deepcopy(self._model)), "float64")
            self._proof = proof if proof.cut(inputs) else None
        own = dtype_name(PARAMETER_DTYPES[self.dtype])
        return None if self._proof is None else self._proof.with_module(self._model, own)

    def _expect_some(self, inputs: List[Any], trusted: ModelAnswer) -> Optional[ExpectedOutput]:
        """Return what is expected in float64 of some rows; None if rows depend on one another, or memory is lacking."""
        if self._proof is None:
            return None
        try:
            answer, rows = self._proof.call_some(inputs)
        except Exception:  # noqa: BLE001  # a model may raise anything for inputs of another shape; memory may be lacking
            return None
        return ExpectedOutput(trusted.structure, answer.outputs, tuple(output[:rows] for output in trusted.outputs))

    def _run(self, model: Any, inputs: List[Any]) -> ModelAnswer:
        with torch.no_grad(), torch.device(self.device):
            structure, outputs = _flatten(model(*inputs))
        tensors = list(tensors_in(inputs)) if self._written else []
        return ModelAnswer(structure, outputs, tuple(tensors[index] for index in self._written))

    def _answer_precisely(self, inputs: List[Any]) -> Optional[ModelAnswer]:
        """Return the outputs in the higher precision; a precision for which memory is lacking is given up for good."""
        while self._oracle is not None:
            answer = self._called(self._oracle, inputs)
            if answer is not None:
                return _compact(answer)
            below, self._oracle = self._oracle.precision, None  # frees its parameters, unless a few rows need them
            self.platform.release_memory()
            self._oracle = self._higher_precision(inputs, below=below)
        return None

    def _called(self, oracle: PreciseModel, inputs: List[Any]) -> Optional[ModelAnswer]:
        """Call ``oracle``, in pieces if memory is lacking; return None if they do not help."""
        while True:
            try:
                return oracle.call(oracle.module, inputs)
            except Exception as error:
                if classify(error) is not CallFailure.MEMORY:
                    raise
            self.platform.release_memory()  # not while the exception holds what the call had made
            if self._written or not oracle.cut(inputs):
                return None
            self._proof = oracle

    def _precise(self, module: Any, precision: str) -> PreciseModel:
        return PreciseModel(module, precision, self._run, self.like)

    def _spared(self, inputs: List[Any]) -> List[Any]:
        """Return ``inputs`` for the reference, as a copy if it writes to them."""
        spared: List[Any] = map_tensors(inputs, torch.clone) if self._written else inputs
        return spared

    def _look_at_one_call(self, inputs: List[Any]) -> None:
        """Find out what the reference returns, which outputs share memory, and to which of these inputs it writes."""
        given = tensors_in(inputs)
        before = Fingerprints(given)
        self.platform.take_peak()
        returned = self._run(self._model, inputs).outputs
        self.temporary_bytes = self.platform.take_peak() or 0
        self._written = tuple(index for index, same in enumerate(before.unchanged(given)) if not same)
        self._views = _shared(returned, [*given, *self.state.values()])
        self.like = tuple(torch.empty_like(tensor, device="meta") for tensor in returned)

    def _higher_precision(self, probe: List[Any], below: str = "") -> Optional[PreciseModel]:
        """Return the reference in the widest dtype that it supports; None if this is the cell's own.

        Args:
            probe: Inputs to try it on.
            below: A precision that is not tried again, nor any wider one; empty for none.
        """
        if self.dtype in WHOLE_DTYPES:
            return None
        own = dtype_name(PARAMETER_DTYPES[self.dtype])
        wider = {"float64": torch.nn.Module.double, "float32": torch.nn.Module.float}
        names = list(wider)
        for precise in names[names.index(below) + 1 if below else 0 :]:
            if precise == own:
                break
            oracle = self._precise(wider[precise](copy.deepcopy(self._model)), precise)
            try:
                answer = self._called(oracle, probe)
            except Exception:  # noqa: BLE001, S112  # a reference may raise anything for a dtype it was not written for
                continue  # the operator has no such variant, or tensors have a fixed dtype
            if answer is not None:
                return oracle
        return None


def _imported(path: Path, values: Mapping[str, Any], ranks: int) -> ModuleType:
    if ranks == 1:
        return import_file(path, "kernel_matrix_problem", values)
    from kernel_matrix.inside.judge.emulated_ranks import (  # noqa: PLC0415  # few problems need it
        emulated_collectives,
        with_all_ranks,
    )

    with emulated_collectives():
        return with_all_ranks(import_file(path, "kernel_matrix_problem", values), ranks)


def round_mantissa(tensor: torch.Tensor, bits: int) -> torch.Tensor:
    """Round ``tensor`` to ``bits`` explicit mantissa bits, ties away from zero; range and dtype are kept."""
    wide = tensor.to(torch.float64, copy=True)
    dropped = 52 - bits
    # In place, on the bits: a carry out of the mantissa correctly raises the exponent.
    wide.view(torch.int64).add_(1 << (dropped - 1)).bitwise_and_(-(1 << dropped))
    return wide.to(tensor.dtype)


def _compact(answer: ModelAnswer) -> ModelAnswer:
    """Copy outputs that keep far more memory than they need: torch's losses return one number in a tensor's memory."""
    return answer._replace(outputs=tuple(t.clone() if _is_wasteful(t) else t for t in answer.outputs))


def _is_wasteful(tensor: torch.Tensor) -> bool:
    kept = int(tensor.untyped_storage().nbytes())
    return tensor.is_contiguous() and kept > WASTED * nbytes_of([tensor])


def _shared(outputs: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> Tuple[bool, ...]:
    """Return which outputs share memory with ``others`` or with one another."""
    taken = Counter(_address(tensor) for tensor in [*outputs, *others] if tensor.numel())
    return tuple(bool(tensor.numel()) and taken[_address(tensor)] > 1 for tensor in outputs)


def _address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _flatten(returned: Any) -> Tuple[Structure, Tuple[torch.Tensor, ...]]:
    if isinstance(returned, torch.Tensor):
        return Structure.TENSOR, (returned,)
    if isinstance(returned, (tuple, list)) and returned and all(isinstance(r, torch.Tensor) for r in returned):
        return (Structure.TUPLE if isinstance(returned, tuple) else Structure.LIST), tuple(returned)
    kind = type(returned).__name__
    raise finding(Status.PROBLEM_ERROR, Stage.LOAD, f"the reference returns {kind}, not tensors")


def drawn_inputs(
    reference: ReferenceModel, mode: InputMode, *purpose: object, whole: IntegerRange = IntegerRange.ONES
) -> DrawnInputs:
    """Draw inputs as :meth:`ReferenceModel.draw` does; an error of ``get_inputs()`` is the problem's."""
    draw = functools.partial(reference.draw, mode, *purpose, whole=whole)
    return DrawnInputs(lambda: guarded("get_inputs()", Stage.VERIFY, draw))


def guarded(what: str, stage: Stage, function: Callable[[], Any]) -> Any:
    """Run code of the problem, and blame the problem for any exception, unless a package or memory is lacking.

    Raises:
        SessionEnded: ``unsupported`` if it needs a package that is not installed, ``does_not_fit`` if there is too
            little memory, else ``problem_error``; with the traceback.
    """
    import traceback  # noqa: PLC0415  # only on the way out

    from kernel_matrix.inside.judge.session_ended import SessionEnded  # noqa: PLC0415

    try:
        return function()
    except SessionEnded:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a problem may raise anything
        package = missing_package(error)
        if package:
            message = f"{what} needs the package {package!r}, which is not installed here"
            raise finding(Status.UNSUPPORTED, stage, message, traceback.format_exc()) from None
        message = f"{what} raised {type(error).__name__}: {error}"
        lacks_memory = classify(error) is CallFailure.MEMORY
        status = Status.DOES_NOT_FIT if lacks_memory else Status.PROBLEM_ERROR
        raise finding(status, stage, message[:500], traceback.format_exc()) from None
