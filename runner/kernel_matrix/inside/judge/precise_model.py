"""A model in a higher precision than the cell's, called in pieces where a whole call takes too much memory."""

from __future__ import annotations

from itertools import count
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import torch

from kernel_matrix.inside.input_generation import map_tensors, tensors_in
from kernel_matrix.inside.wire import Structure

PIECES = (8, 16, 32, 64)
"""Numbers of pieces, tried in this order. Fewer save too little, since a piece's outputs are kept."""
FEWEST_ROWS = 4  # of a piece; smaller ones tell less about whether rows are independent

# Difference, relative to the largest number, up to which float64 results are the same but for the order of additions.
_SAME = 1e-9


class ModelAnswer(NamedTuple):
    """Result of one call of a model."""

    structure: Structure
    outputs: Tuple[torch.Tensor, ...]
    left: Tuple[torch.Tensor, ...] = ()
    """Contents of the inputs that it writes to, after the call."""


class PreciseModel:
    """A model whose floating-point inputs and parameters have a given dtype.

    Where memory is lacking for a whole call, its rows (the first dimension) are computed in pieces, if each row of the
    outputs depends on the same row of some inputs alone: the outputs of a piece must then be those of its two halves.
    """

    def __init__(
        self, module: Any, precision: str, run: Callable[[Any, List[Any]], ModelAnswer], like: Sequence[torch.Tensor]
    ) -> None:
        """Create a model that is called whole.

        Args:
            module: The model, already in this precision.
            precision: Name of its dtype.
            run: Function that calls a model on inputs.
            like: Tensors of the shapes of the outputs of a whole call.
        """
        self.module = module
        self.precision = precision
        self.pieces = 1
        """Number of pieces of a call."""
        self._dtype: torch.dtype = getattr(torch, precision)
        self._run = run
        self._like = like
        self._sliced: Tuple[int, ...] = ()  # indices of the input tensors that are cut

    def with_module(self, module: Any, precision: str) -> PreciseModel:
        """Return another model of the same computation, called in the same pieces."""
        other = PreciseModel(module, precision, self._run, self._like)
        other.pieces, other._sliced = self.pieces, self._sliced
        return other

    def call(self, module: Any, inputs: List[Any]) -> ModelAnswer:
        """Call ``module``, which is this one or a copy of it, on ``inputs`` in this precision."""
        if self.pieces == 1:
            return self._run(module, map_tensors(inputs, self._raised))
        rows = self._like[0].shape[0]
        structure = Structure.TENSOR
        outputs: List[torch.Tensor] = []
        for number in range(self.pieces):
            start, stop = rows * number // self.pieces, rows * (number + 1) // self.pieces
            answer = self._call_rows(module, inputs, self._sliced, start, stop)
            if not outputs:
                structure = answer.structure
                outputs = [part.new_empty((rows, *part.shape[1:])) for part in answer.outputs]
            for output, part in zip(outputs, answer.outputs):
                output[start:stop] = part
        return ModelAnswer(structure, tuple(outputs))

    def call_some(self, inputs: List[Any]) -> Tuple[ModelAnswer, int]:
        """Call this model, which is called in pieces, for a few rows; return their answer and number."""
        rows = max(FEWEST_ROWS, self._like[0].shape[0] // PIECES[-1])
        return self._call_rows(self.module, inputs, self._sliced, 0, rows), rows

    def cut(self, inputs: List[Any]) -> bool:
        """Call in more pieces from now on; return False if that cannot be, or would change the outputs."""
        if self._dtype is not torch.float64 or not self._like or any(not like.dim() for like in self._like):
            return False
        (rows, *others) = {like.shape[0] for like in self._like}
        for pieces in PIECES:
            if pieces > self.pieces and not others and rows // pieces >= FEWEST_ROWS:
                sliced = self._independent(inputs, rows, rows // pieces)
                if sliced:
                    self.pieces, self._sliced = pieces, sliced
                    return True
        return False

    def _independent(self, inputs: List[Any], rows: int, of_a_piece: int) -> Tuple[int, ...]:
        """Return which input tensors can be cut: all that have so many rows, or one of them; empty if none can."""
        tall = [index for index, tensor in enumerate(tensors_in(inputs)) if tensor.dim() and tensor.shape[0] == rows]
        tried = [tuple(tall), *((index,) for index in tall)]
        return next((sliced for sliced in tried if sliced and self._is_independent(inputs, sliced, of_a_piece)), ())

    def _is_independent(self, inputs: List[Any], sliced: Tuple[int, ...], rows: int) -> bool:
        """Return True if the first rows have the same outputs together and in two halves."""
        half = rows // 2
        try:
            together, first, second = (
                self._call_rows(self.module, inputs, sliced, start, stop).outputs
                for start, stop in ((0, rows), (0, half), (half, rows))
            )
            return all(map(_is_same, together, map(_joined, first, second)))
        except Exception:  # noqa: BLE001  # a model may raise anything for inputs of another shape; memory may be lacking
            return False

    def _call_rows(self, module: Any, inputs: List[Any], sliced: Tuple[int, ...], start: int, stop: int) -> ModelAnswer:
        numbers = count()

        def cut(tensor: torch.Tensor) -> torch.Tensor:
            return self._raised(tensor[start:stop] if next(numbers) in sliced else tensor)

        return self._run(module, map_tensors(inputs, cut))

    def _raised(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._dtype, copy=True) if tensor.is_floating_point() else tensor.clone()


def _joined(first: torch.Tensor, second: torch.Tensor) -> Optional[torch.Tensor]:
    """Return both one after the other; None if that cannot be."""
    fits = first.dim() and first.shape[1:] == second.shape[1:] and first.dtype == second.dtype
    return torch.cat([first, second]) if fits else None


def _is_same(one: torch.Tensor, other: Optional[torch.Tensor]) -> bool:
    if other is None or one.shape != other.shape:
        return False
    if not one.is_floating_point():
        return bool(torch.equal(one, other))
    largest = one.nan_to_num(0.0, 0.0, 0.0).abs().amax() if one.numel() else 0.0
    return bool(torch.allclose(one, other, rtol=0.0, atol=float(largest) * _SAME, equal_nan=True))
