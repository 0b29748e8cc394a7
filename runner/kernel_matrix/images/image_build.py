"""Build images reproducibly, so that a second build has the same digest, and update the lock."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kernel_matrix.errors import ImageError
from kernel_matrix.images import LockEntry, LockState, ResolvedImage
from kernel_matrix.images.archive import SOURCE_DATE_EPOCH, ImageArchive, write_archive
from kernel_matrix.images.container_registry import accept_change
from kernel_matrix.images.debian import bootstrap, check_debootstrap
from kernel_matrix.images.image_reference import ImageReference
from kernel_matrix.images.image_store import DaemonStore, Say, connect, find, machine_of
from kernel_matrix.images.layer import write_layer
from kernel_matrix.images.lock import load_lock, save_lock
from kernel_matrix.images.packages import read_packages
from kernel_matrix.images.recipe import ImageRecipe, read_recipe
from kernel_matrix.images.resolve import ImagePresence, image_status, resolve_image
from kernel_matrix.images.wheels import fetch_wheels, link_wheels
from kernel_matrix.user_folders import cache_root

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.images import Image

_KEPT_SETTINGS = ("Env", "Cmd", "Entrypoint", "WorkingDir", "User", "Labels")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_STEP_IMAGE = re.compile(r"^ ---> ([0-9a-f]{12})$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBuildResult:
    """A finished build."""

    entry: LockEntry
    """The entry that is now in the lock."""
    reproduced: bool
    """The build has the same digest as the entry that was in the lock."""
    differences: tuple[str, ...]
    """Differences to the replaced entry; empty if reproduced or new."""
    size_bytes: int
    seconds: float


def build_image(name: str, *, images_dir: Path, lock_path: Path, relock: bool, say: Say) -> ImageBuildResult:
    """Build toolchain ``name`` from ``images_dir/name``, load it into the daemon and compare it with the lock.

    A different entry of another machine is replaced, one of this machine only with ``relock``. ``say`` receives lines
    of progress.

    Raises:
        ImageError: it cannot be built here, or it differs from an earlier build of this machine.
    """
    started = time.monotonic()
    recipe = read_recipe(images_dir, name)
    before = load_lock(lock_path).get(name)
    _refuse_registry_entry(name, before, relock=relock)
    if recipe.debian:
        check_debootstrap()
    with connect() as client:
        entry, size_bytes = _build_entry(recipe, client, say)
        try:
            found = accept_change(before, entry, relock=relock)
        except ImageError:
            _untag(client, entry.reference)
            raise
    reproduced = before is not None and not found
    kept = before if before and reproduced and before.inputs_sha256 == entry.inputs_sha256 else entry
    if kept is entry:
        save_lock(lock_path, load_lock(lock_path) | {name: entry})
    return ImageBuildResult(
        entry=kept,
        reproduced=reproduced,
        differences=found,
        size_bytes=size_bytes,
        seconds=time.monotonic() - started,
    )


def ensure_local(toolchain: str, *, images_dir: Path, lock_path: Path, say: Say) -> ResolvedImage:
    """Return the pinned image of ``toolchain``, building it if the daemon lacks it and it is not a registry image.

    Raises:
        ImageError: it cannot be built here, or it must be pulled or adopted.
    """
    entry = load_lock(lock_path).get(toolchain)
    if entry is None or (entry.state is LockState.LOCAL and entry.inputs_sha256):
        with connect() as client:
            present = entry and image_status(entry, DaemonStore.of(client)).presence is ImagePresence.PRESENT
        if not present:
            say(f"{toolchain}: the daemon lacks its image; building it")
            result = build_image(toolchain, images_dir=images_dir, lock_path=lock_path, relock=False, say=say)
            entry = result.entry
    with connect() as client:
        return resolve_image(entry, toolchain, store=DaemonStore.of(client))


def _refuse_registry_entry(name: str, before: LockEntry | None, *, relock: bool) -> None:
    if before and before.state is not LockState.LOCAL and not relock:
        raise ImageError(
            f"{name} is locked to a registry image ({before.reference}).",
            next_step=f"`kernel-matrix images pull {name}`, or build it for this machine alone with --relock.",
        )


def _build_entry(recipe: ImageRecipe, client: DockerClient, say: Say) -> tuple[LockEntry, int]:
    """Build, normalise and load the image; return its lock entry and its size in bytes."""
    name = recipe.toolchain
    requirements = recipe.folder / "requirements.lock"
    say(f"{name}: wheels of {requirements}")
    wheels = fetch_wheels(requirements, recipe.python, cache_root() / "wheels")
    with _scratch_folder() as folder, _make_base(recipe, client, folder, say) as base:
        say(f"{name}: building its Dockerfile on {base.id}")
        context = _make_context(recipe, wheels, folder)
        with _build_dockerfile(client, context, base) as image:
            say(f"{name}: normalising the file tree")
            tree = _export_tree(client, image, folder)
            config = {key: value for key, value in image.attrs["Config"].items() if key in _KEPT_SETTINGS and value}
        archive = _write_image(tree, folder, f"kernel-matrix/{name}", config, base.newest_s)
        say(f"{name}: loading {archive.reference}")
        size_bytes = _load_image(client, archive)
    say(f"{name}: reading its packages")
    entry = LockEntry(
        toolchain=name,
        reference=archive.reference,
        state=LockState.LOCAL,
        digest=archive.manifest_digest,
        config_digest=archive.config_digest,
        inputs_sha256=recipe.inputs_sha256,
        built_on=machine_of(client),
        packages=read_packages(client, archive.reference),
        source=base.source,
    )
    return entry, size_bytes


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    root = cache_root() / "build"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as folder:
            yield Path(folder)
    except OSError as error:
        if error.errno is None:  # errors of the Docker SDK are OSErrors too, but do not come from the disk
            raise
        raise ImageError(
            f"The image could not be built under {root}: {error}.",
            next_step="Free some disk space, or set XDG_CACHE_HOME to a larger disk.",
        ) from error


@dataclass(frozen=True, slots=True)
class _Base:
    id: str
    newest_s: int
    """Latest modification time of files in the final image, seconds since 1970."""
    source: str


@contextmanager
def _make_base(recipe: ImageRecipe, client: DockerClient, folder: Path, say: Say) -> Iterator[_Base]:
    if recipe.debian is None:
        yield _pull_base(recipe, client, say)
        return
    debian = recipe.debian
    say(f"{recipe.toolchain}: debootstrap {debian.suite}")
    tree = bootstrap(debian, folder, cache_root() / "debs")
    archive = _write_image(tree, folder, f"kernel-matrix/{recipe.toolchain}-base", {}, SOURCE_DATE_EPOCH)
    try:
        _load_image(client, archive)
        image_id = client.images.get(archive.reference).id
        source = f"debootstrap {debian.suite} {debian.variant}, base {archive.config_digest}"
        yield _Base(str(image_id), SOURCE_DATE_EPOCH, source)
    finally:
        _untag(client, archive.reference)


def _pull_base(recipe: ImageRecipe, client: DockerClient, say: Say) -> _Base:
    name = ImageReference.parse(recipe.base).by_digest
    if find(client, name) is None:
        say(f"{recipe.toolchain}: pulling {recipe.base}")
        client.images.pull(name)
    created = client.images.get(name).attrs["Created"]
    # Python's bytecode in the base is valid only while its sources keep their modification times.
    return _Base(name, int(datetime.fromisoformat(created[:19] + "+00:00").timestamp()), f"built on {recipe.base}")


def _make_context(recipe: ImageRecipe, wheels: tuple[Path, ...], folder: Path) -> Path:
    context = folder / "context"
    context.mkdir()
    for name in ("Dockerfile", "requirements.lock"):
        shutil.copyfile(recipe.folder / name, context / name)
    link_wheels(wheels, context / "wheels")
    return context


@contextmanager
def _build_dockerfile(client: DockerClient, context: Path, base: _Base) -> Iterator[Image]:
    from docker.errors import BuildError  # noqa: PLC0415  # the SDK is loaded when a daemon is needed

    try:
        image, _log = client.images.build(
            path=str(context), buildargs={"BASE": base.id}, rm=True, forcerm=True, network_mode="none"
        )
    except BuildError as error:
        log = _COLOUR.sub("", "".join(str(line.get("stream", "")) for line in error.build_log))
        if steps := _STEP_IMAGE.findall(log):
            _untag(client, steps[-1])
        raise ImageError(
            "The Dockerfile did not build:\n"
            + "\n".join(f"    {line}" for line in (*log.splitlines()[-8:], error.msg)),
            next_step="Correct the Dockerfile or requirements.lock.",
        ) from error
    try:
        yield image
    finally:
        _untag(client, str(image.id))


def _export_tree(client: DockerClient, image: Image, folder: Path) -> Path:
    tree = folder / "tree.tar"
    container = client.containers.create(image, command=["true"], network_mode="none")
    try:
        with tree.open("wb") as file:
            for chunk in container.export(chunk_size=1 << 20):
                file.write(cast("bytes", chunk))
    finally:
        container.remove(v=True, force=True)
    return tree


def _write_image(tree: Path, folder: Path, repository: str, config: Mapping[str, Any], newest_s: int) -> ImageArchive:
    content = folder / "layer.tar"
    layer = write_layer(tree, content, newest_s=newest_s)
    tree.unlink()
    target = folder / "image.tar"
    archive = write_archive(target, layer, content, repository=repository, config=config, created_s=newest_s)
    content.unlink()
    return archive


def _load_image(client: DockerClient, archive: ImageArchive) -> int:
    with archive.path.open("rb") as file:
        client.images.load(file)
    archive.path.unlink()
    held = find(client, archive.reference)
    if held is None or held.id not in (archive.config_digest, archive.manifest_digest):
        raise ImageError(
            f"The daemon loaded image {archive.config_digest} as {held.id if held else 'nothing'}.",
            next_step="Report this together with `docker version` and `docker info`.",
        )
    return held.size_bytes


def _untag(client: DockerClient, name: str) -> None:
    from docker.errors import APIError  # noqa: PLC0415  # see _build_dockerfile

    # Another build may use the same base; the last one to end removes it.
    with suppress(APIError):
        client.images.remove(name, force=False)
