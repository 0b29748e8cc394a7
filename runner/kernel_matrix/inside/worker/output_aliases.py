"""Which memory outputs share: with inputs, with each other, with outputs of the call before.

Found by the worker beside the candidate, so a claim; a lie about it gains nothing, since outputs are poisoned and
inputs compared anyway. It tells an honest mistake from a wrong result.
"""

from __future__ import annotations

from typing import List, Sequence, Tuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kernel_matrix.inside.wire import OutputAlias

Range = Tuple[int, int]
"""First address, and the one just behind the last."""


class AliasMemory:
    """What must be known of one call's outputs when the next call's are looked at; keeps none of their memory."""

    def __init__(self) -> None:
        self._earlier: List[StorageWeakRef] = []

    def forget(self) -> None:
        """Let go of the call before: another model, or other buffers."""
        self._earlier = []

    def aliases(self, outputs: Sequence[torch.Tensor], lent: Range) -> List[OutputAlias]:
        """What each of ``outputs`` shares.

        :param lent: the memory of the inputs.
        """
        found: List[OutputAlias] = []
        for index, output in enumerate(outputs):
            if output.numel() == 0:
                found.append(OutputAlias.NONE)
            elif lent[0] <= output.data_ptr() < lent[1]:
                found.append(OutputAlias.INPUT)
            # A storage that was freed meanwhile cannot be taken for a new one at its address: the weak reference
            # keeps its identity.
            elif StorageWeakRef(output.untyped_storage()) in self._earlier:
                found.append(OutputAlias.EARLIER)
            else:
                shared = any(_overlap(output, other) for other in outputs[:index] if other.numel())
                found.append(OutputAlias.OUTPUT if shared else OutputAlias.NONE)
        return found

    def remember(self, outputs: Sequence[torch.Tensor]) -> None:
        """These are the outputs of the last call now."""
        self._earlier = [StorageWeakRef(output.untyped_storage()) for output in outputs if output.numel()]


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether both surely share elements: views that interleave without sharing any are none of our business."""
    if one.data_ptr() == other.data_ptr():
        return True
    if not (one.is_contiguous() and other.is_contiguous()):
        return False
    first, second = sorted((_range(one), _range(other)))
    return second[0] < first[1]


def _range(tensor: torch.Tensor) -> Range:
    start = tensor.data_ptr()
    return start, start + tensor.numel() * tensor.element_size()
