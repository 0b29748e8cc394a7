"""Builds with the real daemon, from a base of a few files in a local registry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from docker import DockerClient
from docker.errors import ImageNotFound
from tiny_images import MakeImage, Registry, forget, make_wheel, shell_files, write_recipe

from kernel_matrix.errors import ImageError
from kernel_matrix.images import LockState
from kernel_matrix.images.image_build import ImageBuildResult, build_image, ensure_local
from kernel_matrix.images.image_reference import ImageReference
from kernel_matrix.images.lock import load_lock, save_lock

pytestmark = pytest.mark.docker


@dataclass
class Bench:
    """Make a toolchain ``test-built`` with a folder that can be changed, and a separate lock."""

    images: Path
    base: str
    wheel_sha256: str
    said: list[str]

    @property
    def lock(self) -> Path:
        return self.images / "images.lock"

    def build(self, *, relock: bool = False) -> ImageBuildResult:
        return build_image(
            "test-built", images_dir=self.images, lock_path=self.lock, relock=relock, say=self.said.append
        )

    def change(self, run: str) -> None:
        write_recipe(self.images / "test-built", self.base, self.wheel_sha256, run)


@pytest.fixture
def bench(
    tmp_path: Path, make_image: MakeImage, registry: Registry, client: DockerClient, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Bench]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    _, sha256 = make_wheel(tmp_path / "cache" / "kernel-matrix" / "wheels")
    base = registry.push(make_image(shell_files('{"py:tiny": "1.0"}'), mode=0o755), "lab/base", "1")
    made = Bench(tmp_path / "images", base, sha256, [])
    made.change("")
    yield made
    for image in client.images.list("kernel-matrix/test-built"):
        for tag in image.tags:
            forget(client, tag)
    forget(client, ImageReference.parse(base).by_digest)


def test_a_build_enters_the_lock_and_a_second_one_reproduces_it(bench: Bench, client: DockerClient) -> None:
    first = bench.build()
    assert (first.reproduced, first.differences, first.entry.state) == (False, (), LockState.LOCAL)
    assert load_lock(bench.lock) == {"test-built": first.entry}
    attrs = client.images.get(first.entry.reference).attrs
    assert "TINY=1" in attrs["Config"]["Env"]
    assert (first.size_bytes, len(attrs["RootFS"]["Layers"])) == (attrs["Size"], 1)
    forget(client, first.entry.reference)  # nothing of the first build may help the second

    second = bench.build()
    assert second.reproduced
    assert second.entry == first.entry


def test_nothing_is_left_but_the_image(bench: Bench, client: DockerClient, tmp_path: Path) -> None:
    def unnamed() -> set[str]:
        # Others use the daemon too: an image is ours when it has what our Dockerfile sets.
        found = set()
        for image in client.api.images(quiet=True, filters={"dangling": True}):
            with suppress(ImageNotFound):  # it was removed since it was listed
                if "TINY=1" in (client.api.inspect_image(image)["Config"]["Env"] or []):
                    found.add(image)
        return found

    before = unnamed()
    bench.build()
    assert unnamed() <= before
    bench.change("RUN echo broken && false")
    with pytest.raises(ImageError, match="broken"):
        bench.build()
    assert unnamed() <= before
    assert list((tmp_path / "cache" / "kernel-matrix" / "build").iterdir()) == []


def test_a_build_that_differs_is_refused_with_the_reasons(bench: Bench, client: DockerClient) -> None:
    first = bench.build()
    bench.change("RUN echo more > /more")
    with pytest.raises(ImageError, match="Dockerfile, requirements") as caught:
        bench.build()
    assert f"config_digest: {first.entry.config_digest} → sha256:" in caught.value.what
    assert (caught.value.exit_code, "--relock" in caught.value.next_step) == (4, True)
    assert load_lock(bench.lock) == {"test-built": first.entry}
    assert [image.id for image in client.images.list("kernel-matrix/test-built")] == [
        client.images.get(first.entry.reference).id
    ]
    taken = bench.build(relock=True)
    assert (taken.reproduced, load_lock(bench.lock)) == (False, {"test-built": taken.entry})
    assert taken.differences


def test_accept_change_other_machine_returns_differences(bench: Bench) -> None:
    first = bench.build()
    elsewhere = replace(
        first.entry, built_on="elsewhere", config_digest="sha256:" + "0" * 64, digest=None, packages={"py:tiny": "0.9"}
    )
    save_lock(bench.lock, {"test-built": elsewhere})
    second = bench.build()
    assert not second.reproduced
    assert "py:tiny: 0.9 → 1.0" in second.differences
    assert load_lock(bench.lock) == {"test-built": first.entry}


def test_build_after_idle_change_reproduces_and_updates_inputs(bench: Bench) -> None:
    first = bench.build()
    toml = bench.images / "test-built" / "image.toml"
    toml.write_text(toml.read_text() + "# a remark\n")
    second = bench.build()
    assert second.reproduced
    assert second.entry == replace(first.entry, inputs_sha256=second.entry.inputs_sha256)
    assert second.entry.inputs_sha256 != first.entry.inputs_sha256
    assert load_lock(bench.lock) == {"test-built": second.entry}


def test_a_registry_entry_is_not_built_over(bench: Bench) -> None:
    entry = replace(
        bench.build().entry,
        state=LockState.DECLARED,
        reference=bench.base,
        digest=ImageReference.parse(bench.base).digest,
        config_digest=None,
    )
    save_lock(bench.lock, {"test-built": entry})
    with pytest.raises(ImageError, match="locked to a registry image"):
        bench.build()


def test_ensure_local_builds_only_what_is_missing(bench: Bench, client: DockerClient) -> None:
    def ensure() -> str:
        lock, images = bench.lock, bench.images
        return ensure_local("test-built", images_dir=images, lock_path=lock, say=bench.said.append).id

    built = ensure()
    assert bench.said
    bench.said.clear()
    assert ensure() == built
    assert bench.said == []
    forget(client, built)
    assert ensure() == built
    assert bench.said


def test_a_full_disk_is_said_and_leaves_the_lock(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_arguments: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kernel_matrix.images.image_build.write_layer", full)
    with pytest.raises(ImageError, match="No space left") as caught:
        bench.build()
    assert "XDG_CACHE_HOME" in caught.value.next_step
    assert load_lock(bench.lock) == {}
