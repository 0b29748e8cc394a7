"""The worker's side of batches: many calls back to back, each on a set of arguments of its own."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from kernel_matrix.inside.arguments import decode_arguments
from kernel_matrix.inside.memory import TensorSpec
from kernel_matrix.inside.platform import InsidePlatform
from kernel_matrix.inside.wire import OutputAlias, OutputsClaim, Structure
from kernel_matrix.inside.worker.handing_over import copy_one, flatten

PAGE = 1 << 16
"""Bytes; smaller than a page of any device."""

Returned = List[Tuple[int, Any]]
"""(number of the set, what the model returned for it) of each call."""


class CallBatches:
    """Windows on the memory of batches, the sets of arguments in them, and the captured calls.

    The sets are at the same addresses in every batch, so a chunk of them is captured once. The memory there is new to
    this process in every batch.
    """

    def __init__(self, platform: InsidePlatform, model: Any, message: Any, descriptors: Sequence[int]) -> None:
        """Open the windows on a first batch, and capture the calls of each chunk if the judge asks for it."""
        self._platform = platform
        self._model = model
        self._chunk: int = message["chunk"]
        self._windows = [platform.open_window(message[size]) for size in ("input_bytes", "output_bytes")]
        self.show(descriptors)
        sets = range(message["sets"])
        strides = (message["input_bytes"] // len(sets), message["output_bytes"] // len(sets))
        inputs, outputs = ([window.tensor[k * step :] for k in sets] for window, step in zip(self._windows, strides))
        specs, places = ([TensorSpec.from_json(spec) for spec in message[kind]] for kind in ("inputs", "outputs"))
        self._arguments: List[List[Any]] = [
            decode_arguments(message["arguments"], [spec.view(one) for spec in specs]) for one in inputs
        ]
        self._places = [[spec.view(one) for spec in places] for one in outputs]
        self._captured = self._capture(len(sets)) if message["capture"] else None
        self.hide()

    @property
    def captured(self) -> bool:
        """True if the calls of every chunk are replayed from a graph."""
        return self._captured is not None

    def show(self, descriptors: Sequence[int]) -> None:
        """Show the memory of a batch."""
        for window, descriptor in zip(self._windows, descriptors):
            window.show(descriptor)
        # Now, and not within the first call, the device switches to this process and finds its pages.
        for window in self._windows:
            window.tensor[::PAGE].max()
        self._platform.synchronize()

    def call(self, chunks: Sequence[int]) -> Returned:
        """Call the model on the sets of these chunks."""
        if self._captured is None:
            return [one for chunk in chunks for one in self._call_chunk(chunk)]
        return [one for chunk in chunks for one in self._captured[chunk]()]

    def hand_over(self, returned: Returned) -> OutputsClaim:
        """Copy all outputs into their places as far as they fit; describe those of the first call that differs."""
        claim: Optional[OutputsClaim] = None
        fitting: Tuple[List[torch.Tensor], List[torch.Tensor]] = ([], [])
        for number, one in returned:
            structure, outputs = flatten(one)
            views = self._places[number]
            if claim is not None and structure is claim.structure and _fit(outputs, views):
                fitting[0].extend(views)
                fitting[1].extend(outputs)
                continue
            described = _copied(structure, outputs, views, captured=self.captured)
            if claim is not None and described != claim:
                claim = described
                break
            claim = described
        if fitting[0]:
            torch._foreach_copy_(*fitting)  # one launch for many outputs; it has no public name
        self._platform.synchronize()
        for window in self._windows:
            window.publish()  # inputs too, so that the judge sees which were written to
        return claim or OutputsClaim(Structure.OTHER, (), self.captured)

    def hide(self) -> None:
        """Give the memory of the last batch back."""
        self._platform.synchronize()
        for window in self._windows:
            window.hide()

    def close(self) -> None:
        """Give everything back."""
        self._captured = None
        self._arguments, self._places = [], []
        while self._windows:
            self._windows.pop().close()

    def _call_chunk(self, chunk: int) -> Returned:
        numbers = range(chunk * self._chunk, (chunk + 1) * self._chunk)
        return [(number, self._model(*self._arguments[number])) for number in numbers]

    def _capture(self, sets: int) -> Optional[List[Callable[[], Returned]]]:
        """Return a replay of each chunk's calls; None if one of them cannot be captured."""
        replays: List[Callable[[], Returned]] = []
        for chunk in range(sets // self._chunk):
            replay = self._platform.capture(lambda chunk=chunk: self._call_chunk(chunk))  # type: ignore[misc]
            if replay is None:
                return None
            replays.append(replay)
        return replays


def _fit(outputs: Sequence[torch.Tensor], views: Sequence[torch.Tensor]) -> bool:
    return len(outputs) == len(views) and all(
        output.shape == view.shape and output.dtype == view.dtype and output.device == view.device
        for output, view in zip(outputs, views)
    )


def _copied(
    structure: Structure, outputs: Sequence[torch.Tensor], views: Sequence[torch.Tensor], *, captured: bool
) -> OutputsClaim:
    places: Sequence[Optional[torch.Tensor]] = views if len(views) == len(outputs) else [None] * len(outputs)
    claims = tuple(copy_one(output, place, OutputAlias.NONE) for output, place in zip(outputs, places))
    return OutputsClaim(structure, claims, captured)
