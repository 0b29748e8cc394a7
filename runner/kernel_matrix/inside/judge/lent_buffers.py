"""Memory that the judge lends to a contestant for its calls: a buffer for inputs and one for outputs of each rank."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Iterator, List, Sequence, Tuple

import torch

from kernel_matrix.inside.judge.red_zones import RedZones
from kernel_matrix.inside.memory import Arena, TensorSpec, lay_out
from kernel_matrix.inside.platform import InsidePlatform

POISON = 0xFF  # fills output buffers before a call: NaN in every floating dtype


@dataclass(frozen=True)
class CallArguments:
    """Arguments of one call of one rank, as they are sent."""

    document: List[Any]
    """The arguments as JSON, with the tensors' numbers in their places."""
    tensors: List[torch.Tensor]


@dataclass
class RankBuffers:
    """The buffers of one rank."""

    inputs: Arena
    outputs: Arena
    input_specs: List[TensorSpec]
    output_specs: List[TensorSpec]
    zones: Tuple[RedZones, ...]
    message: Any
    """What the rank is told of them."""


class LentBuffers:
    """Buffers lent to a contestant, and the layout that they were made for."""

    def __init__(
        self, platform: InsidePlatform, layout: Any, calls: Sequence[CallArguments], like: Sequence[torch.Tensor]
    ) -> None:
        """Allocate buffers for the arguments in ``calls``, one per rank, and for outputs like those of all ranks."""
        self.layout = layout
        self._ranks: List[RankBuffers] = []
        each = len(like) // len(calls)
        for rank, call in enumerate(calls):
            with platform.on_device(rank) if len(calls) > 1 else nullcontext():
                self._ranks.append(_allocated(platform, call, like[rank * each : (rank + 1) * each]))
        self._home = self._ranks[0].outputs.tensor.device

    @property
    def descriptors(self) -> Tuple[int, ...]:
        """Descriptors of inputs and outputs, rank by rank."""
        return tuple(arena.descriptor for rank in self._ranks for arena in (rank.inputs, rank.outputs))

    @property
    def message(self) -> Any:
        """What the contestant is told of the buffers."""
        messages = [rank.message for rank in self._ranks]
        return messages[0] if len(messages) == 1 else {"ranks": messages}

    @property
    def sizes(self) -> Tuple[int, int]:
        """Bytes of all buffers for inputs, and of all for outputs."""
        return (
            sum(rank.message["input_bytes"] for rank in self._ranks),
            sum(rank.message["output_bytes"] for rank in self._ranks),
        )

    @property
    def inputs_now(self) -> Iterator[torch.Tensor]:
        """The inputs as they are now, as views, or as copies if they are on another device than the judge's."""
        return (place.to(self._home) for place in self._places)

    @property
    def _places(self) -> Iterator[torch.Tensor]:
        return (spec.view(rank.inputs.tensor) for rank in self._ranks for spec in rank.input_specs)

    def fill(self, tensors: Sequence[torch.Tensor]) -> None:
        """Copy the inputs of all ranks to their places."""
        for place, tensor in zip(self._places, tensors):
            place.copy_(tensor)

    def poison(self) -> None:
        """Fill the buffers for outputs with the pattern that no output has."""
        for rank in self._ranks:
            rank.outputs.tensor.fill_(POISON)

    def mark(self) -> None:
        """Write new red zones around inputs and outputs."""
        for rank in self._ranks:
            for zone in rank.zones:
                zone.fill()

    def damage(self) -> str:
        """Describe the memory around the tensors that was changed; empty if none was."""
        return next(filter(None, (zone.damage() for rank in self._ranks for zone in rank.zones)), "")

    def publish(self, *, inputs: bool = True) -> None:
        """Let the contestant see the buffers for outputs, and those for ``inputs``."""
        for rank in self._ranks:
            if inputs:
                rank.inputs.publish()
            rank.outputs.publish()

    def fetch_inputs(self) -> None:
        """See what became of the inputs."""
        for rank in self._ranks:
            rank.inputs.fetch()

    def room_for_outputs(self) -> List[torch.Tensor]:
        """Return new memory of the judge's own device for what is in the buffers for outputs."""
        return [torch.empty_like(rank.outputs.tensor, device=self._home) for rank in self._ranks]

    def take_outputs(self, memory: Sequence[torch.Tensor]) -> Tuple[torch.Tensor, ...]:
        """Copy the buffers for outputs to ``memory``, and return the outputs there; work may still be queued."""
        for rank, place in zip(self._ranks, memory):
            rank.outputs.fetch()
            place.copy_(rank.outputs.tensor)
        return tuple(spec.view(place) for rank, place in zip(self._ranks, memory) for spec in rank.output_specs)

    def take_back(self) -> None:
        """Close all buffers, and forget what refers to them."""
        for rank in self._ranks:
            rank.zones = ()
            rank.inputs.close()
            rank.outputs.close()


def _allocated(platform: InsidePlatform, call: CallArguments, like: Sequence[torch.Tensor]) -> RankBuffers:
    input_specs, input_bytes = lay_out(call.tensors)
    output_specs, output_bytes = lay_out([as_empty(tensor) for tensor in like])
    inputs, outputs = platform.create_arena(input_bytes), platform.create_arena(output_bytes)
    message = {
        "arguments": call.document,
        "inputs": [spec.to_json() for spec in input_specs],
        "outputs": [spec.to_json() for spec in output_specs],
        "input_bytes": input_bytes,
        "output_bytes": output_bytes,
    }
    zones = RedZones(inputs.tensor, input_specs, "input"), RedZones(outputs.tensor, output_specs, "output")
    return RankBuffers(inputs, outputs, input_specs, output_specs, zones, message)


def as_empty(like: torch.Tensor) -> torch.Tensor:
    """Return a tensor like ``torch.empty_like`` does, without memory."""
    # Making a meta tensor like another one takes two seconds the first time, since torch imports its decompositions.
    return like if like.device.type == "meta" else torch.empty_like(like, device="meta")
