"""Finding out which memory outputs share: with inputs, with each other, or with outputs of the previous call.

The worker finds this beside the candidate, so it is a claim. A false one gains nothing, since outputs are poisoned and
inputs compared anyway. It separates an honest mistake from a wrong result.
"""

from __future__ import annotations

from typing import List, Sequence, Tuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kernel_matrix.inside.wire import OutputAlias

Range = Tuple[int, int]  # first address, and the one after the last


class AliasMemory:
    """Remembers one call's outputs, without their memory, for the check of the next call's."""

    def __init__(self) -> None:
        self._earlier: List[StorageWeakRef] = []

    def forget(self) -> None:
        """Forget the previous call, before another model or other buffers are used."""
        self._earlier = []

    def aliases(self, outputs: Sequence[torch.Tensor], lent: Range) -> List[OutputAlias]:
        """Return the memory that each of ``outputs`` shares.

        Args:
            outputs: Outputs of one call.
            lent: Address range of the inputs.
        """
        found: List[OutputAlias] = []
        for index, output in enumerate(outputs):
            if output.numel() == 0:
                found.append(OutputAlias.NONE)
            elif lent[0] <= output.data_ptr() < lent[1]:
                found.append(OutputAlias.INPUT)
            # The weak reference keeps the identity of a freed storage, so a new one at its address differs from it.
            elif StorageWeakRef(output.untyped_storage()) in self._earlier:
                found.append(OutputAlias.EARLIER)
            else:
                shared = any(_overlap(output, other) for other in outputs[:index] if other.numel())
                found.append(OutputAlias.OUTPUT if shared else OutputAlias.NONE)
        return found

    def remember(self, outputs: Sequence[torch.Tensor]) -> None:
        """Remember the outputs of the last call."""
        self._earlier = [StorageWeakRef(output.untyped_storage()) for output in outputs if output.numel()]


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if both certainly share elements; interleaved views that share none do not count."""
    if one.data_ptr() == other.data_ptr():
        return True
    if not (one.is_contiguous() and other.is_contiguous()):
        return False
    first, second = sorted((_range(one), _range(other)))
    return second[0] < first[1]


def _range(tensor: torch.Tensor) -> Range:
    start = tensor.data_ptr()
    return start, start + tensor.numel() * tensor.element_size()
