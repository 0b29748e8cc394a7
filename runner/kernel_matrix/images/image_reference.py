"""Image references, ``repository:tag@sha256:…``, taken apart."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImageReference:
    """A reference in its parts; the registry's name, port and all, belongs to the repository."""

    repository: str
    tag: str | None
    digest: str | None

    @classmethod
    def parse(cls, text: str) -> ImageReference:
        """Take ``text`` apart; a colon before the last slash is a port, not a tag."""
        name, _, digest = text.partition("@")
        repository, colon, tag = name.rpartition(":")
        if not colon or "/" in tag:
            repository, tag = name, ""
        return cls(repository, tag or None, digest or None)

    @property
    def by_digest(self) -> str:
        """``repository@sha256:…``: what to pull and what ``RepoDigests`` lists."""
        return f"{self.repository}@{self.digest}"

    @property
    def by_tag(self) -> str:
        """``repository:tag``: what a registry resolves."""
        return f"{self.repository}:{self.tag or 'latest'}"

    def pinned(self, digest: str) -> str:
        """The whole reference with ``digest``."""
        return f"{self.by_tag}@{digest}"
