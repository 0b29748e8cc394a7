"""A rich console on which text from outside can do nothing but be read."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from kernel_matrix.api.wording import visible


class SafeConsole(Console):
    """A console that shows control characters as escapes, in whatever it prints; rich's own ones are kept apart."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Render an object to segments with visible text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)
