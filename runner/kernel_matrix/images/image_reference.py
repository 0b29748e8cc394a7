"""Parse image references, ``repository:tag@sha256:…``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImageReference:
    """The parts of a reference; the repository includes the registry's name and port."""

    repository: str
    tag: str | None
    digest: str | None

    @classmethod
    def parse(cls, text: str) -> ImageReference:
        """Split ``text``; a colon before the last slash is a port, not a tag."""
        name, _, digest = text.partition("@")
        repository, colon, tag = name.rpartition(":")
        if not colon or "/" in tag:
            repository, tag = name, ""
        return cls(repository, tag or None, digest or None)

    @property
    def by_digest(self) -> str:
        """``repository@sha256:…``, the form for pulling and in ``RepoDigests``."""
        return f"{self.repository}@{self.digest}"

    @property
    def by_tag(self) -> str:
        """``repository:tag``, which a registry can resolve."""
        return f"{self.repository}:{self.tag or 'latest'}"

    def pinned(self, digest: str) -> str:
        """Return the reference with ``digest``."""
        return f"{self.by_tag}@{digest}"
