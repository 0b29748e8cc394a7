"""Memory that the judge lends to a contestant for its calls: a buffer for inputs and one for outputs of each rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import torch

from kernel_matrix.inside.judge.red_zones import RedZones
from kernel_matrix.inside.memory import Arena, TensorSpec, lay_out
from kernel_matrix.inside.platform import InsidePlatform
from kernel_matrix.inside.rank_parts import parts_of_ranks

POISON = 0xFF  # fills output buffers before a call: NaN in every floating dtype


@dataclass(frozen=True)
class CallArguments:
    """Arguments of one call of one rank, as they are sent."""

    document: List[Any]
    """The arguments as JSON, with the tensors' numbers in their places."""
    tensors: List[torch.Tensor]


class RankArenas:
    """Memory that a contestant has: of each rank, on its device, an arena for inputs and one for outputs."""

    def __init__(self, platform: InsidePlatform, sizes: Sequence[Tuple[int, int]]) -> None:
        """Allocate arenas of these sizes, inputs and outputs, one pair per rank."""
        self.inputs: List[Arena] = []
        self.outputs: List[Arena] = []
        for rank, (input_bytes, output_bytes) in enumerate(sizes):
            with platform.on_device(rank):
                self.inputs.append(platform.create_arena(input_bytes))
                self.outputs.append(platform.create_arena(output_bytes))

    @property
    def descriptors(self) -> Tuple[int, ...]:
        """Descriptors of inputs and outputs, rank by rank."""
        return tuple(arena.descriptor for pair in zip(self.inputs, self.outputs) for arena in pair)

    def poison(self) -> None:
        """Fill the arenas for outputs with the pattern that no output has."""
        for arena in self.outputs:
            arena.tensor.fill_(POISON)

    def publish_inputs(self) -> None:
        """Let the contestant see the inputs."""
        for arena in self.inputs:
            arena.publish()

    def publish_outputs(self) -> None:
        """Let the contestant see the arenas for outputs."""
        for arena in self.outputs:
            arena.publish()

    def fetch_inputs(self) -> None:
        """See what became of the inputs."""
        for arena in self.inputs:
            arena.fetch()

    def fetch_outputs(self) -> None:
        """See the outputs."""
        for arena in self.outputs:
            arena.fetch()

    def close(self) -> None:
        """Take the memory back."""
        for arena in (*self.inputs, *self.outputs):
            arena.close()


class LentBuffers:
    """Buffers lent to a contestant for single calls, and the layout that they were made for."""

    def __init__(
        self, platform: InsidePlatform, layout: Any, calls: Sequence[CallArguments], like: Sequence[torch.Tensor]
    ) -> None:
        """Allocate buffers for the arguments in ``calls``, one per rank, and for outputs like those of all ranks."""
        self.layout = layout
        of_ranks = parts_of_ranks([as_empty(tensor) for tensor in like], len(calls))
        inputs = [lay_out(call.tensors) for call in calls]
        outputs = [lay_out(tensors) for tensors in of_ranks]
        self._input_specs = [specs for specs, _ in inputs]
        self._output_specs = [specs for specs, _ in outputs]
        sizes = [(in_bytes, out_bytes) for (_, in_bytes), (_, out_bytes) in zip(inputs, outputs)]
        self.sizes = (sum(in_bytes for in_bytes, _ in sizes), sum(out_bytes for _, out_bytes in sizes))
        """Bytes of all buffers for inputs, and of all for outputs."""
        self.arenas = RankArenas(platform, sizes)
        messages = [
            rank_message(call.document, specs, places, of_rank)
            for call, specs, places, of_rank in zip(calls, self._input_specs, self._output_specs, sizes)
        ]
        self.message = for_ranks(messages)
        """Message to the contestant that describes the buffers."""
        self._zones = [
            RedZones(arena.tensor, specs, kind)
            for kind, arenas, rows in (
                ("input", self.arenas.inputs, self._input_specs),
                ("output", self.arenas.outputs, self._output_specs),
            )
            for arena, specs in zip(arenas, rows)
        ]
        self._home = self.arenas.outputs[0].tensor.device

    @property
    def inputs_now(self) -> Iterator[torch.Tensor]:
        """The inputs as they are now, as views, or as copies if they are on another device than the judge's."""
        return (place.to(self._home) for place in self._places)

    @property
    def _places(self) -> Iterator[torch.Tensor]:
        pairs = zip(self.arenas.inputs, self._input_specs)
        return (spec.view(arena.tensor) for arena, specs in pairs for spec in specs)

    def fill(self, tensors: Sequence[torch.Tensor]) -> None:
        """Copy the inputs of all ranks to their places."""
        for place, tensor in zip(self._places, tensors):
            place.copy_(tensor)

    def mark(self) -> None:
        """Write new red zones around inputs and outputs."""
        for zone in self._zones:
            zone.fill()

    def damage(self) -> str:
        """Describe the memory around the tensors that was changed; empty if none was."""
        return next(filter(None, (zone.damage() for zone in self._zones)), "")

    def room_for_outputs(self) -> List[torch.Tensor]:
        """Return new memory of the judge's own device for what is in the buffers for outputs."""
        return [torch.empty_like(arena.tensor, device=self._home) for arena in self.arenas.outputs]

    def take_outputs(self, memory: Sequence[torch.Tensor]) -> Tuple[torch.Tensor, ...]:
        """Copy the buffers for outputs to ``memory``, and return the outputs there; work may still be queued."""
        self.arenas.fetch_outputs()
        for arena, place in zip(self.arenas.outputs, memory):
            place.copy_(arena.tensor)
        return tuple(spec.view(place) for specs, place in zip(self._output_specs, memory) for spec in specs)

    def take_back(self) -> None:
        """Close all buffers, and forget what refers to them."""
        self._zones = []
        self.arenas.close()


def rank_message(
    arguments: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], sizes: Tuple[int, int]
) -> Dict[str, Any]:
    """Return the message that describes a rank's memory: arguments, places of tensors, bytes of inputs and outputs."""
    return {
        "arguments": arguments,
        "inputs": [spec.to_json() for spec in inputs],
        "outputs": [spec.to_json() for spec in outputs],
        "input_bytes": sizes[0],
        "output_bytes": sizes[1],
    }


def for_ranks(messages: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
    """Return the message for a contestant's only process, or those of all ranks for the process that leads them."""
    return messages[0] if len(messages) == 1 else {"ranks": messages}


def as_empty(like: torch.Tensor) -> torch.Tensor:
    """Return a tensor like ``torch.empty_like`` does, without memory."""
    # Making a meta tensor like another one takes two seconds the first time, since torch imports its decompositions.
    return like if like.device.type == "meta" else torch.empty_like(like, device="meta")
