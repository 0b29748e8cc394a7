from __future__ import annotations

import pytest

from kernel_matrix.images.image_reference import ImageReference

D = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("text", "repository", "tag", "digest"),
    [
        (f"pytorch/pytorch:2.9.0@{D}", "pytorch/pytorch", "2.9.0", D),
        (f"pytorch/pytorch@{D}", "pytorch/pytorch", None, D),
        ("debian", "debian", None, None),
        ("127.0.0.1:5000/tiny", "127.0.0.1:5000/tiny", None, None),
        (f"127.0.0.1:5000/a/tiny:1@{D}", "127.0.0.1:5000/a/tiny", "1", D),
    ],
)
def test_parts(text: str, repository: str, tag: str | None, digest: str | None) -> None:
    assert ImageReference.parse(text) == ImageReference(repository, tag, digest)


def test_names() -> None:
    reference = ImageReference.parse(f"host:1/a/b:2@{D}")
    assert reference.by_digest == f"host:1/a/b@{D}"
    assert reference.by_tag == "host:1/a/b:2"
    assert reference.pinned("sha256:1") == "host:1/a/b:2@sha256:1"
    assert ImageReference.parse("a/b").by_tag == "a/b:latest"
