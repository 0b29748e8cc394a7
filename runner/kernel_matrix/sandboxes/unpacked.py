"""Sandbox of unpacked images: the confinement of the process sandbox, with a pinned image as the file system.

It needs no daemon, but namespaces, as root or as a user. The image's files are mounted read-only from this user's
cache. Where something is mounted below a folder of the image, that folder is made anew and its other entries are
mounted one by one, so that nothing is ever written into the image. Drivers are the host's, as with containers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kernel_matrix.environments.unpacked_images import UnpackedImage, find_unpacked, images_folder, unpacked_images
from kernel_matrix.errors import ImageError, SandboxError
from kernel_matrix.inside.confine import BindMount
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import container_access
from kernel_matrix.sandboxes import Isolation, RoleSpec, RunningProcess, SandboxStatus
from kernel_matrix.sandboxes.process import SYSTEM_PATH, ProcessSandbox, RoleTree, own_binds
from kernel_matrix.sandboxes.role_environment import package_mounts

_OF_THE_HOST = ("/sys/devices/system",)
"""What a container sees of the host too: processors and memory nodes."""
_MADE_INSIDE = ("/tmp", "/dev", "/proc")  # noqa: S108  # as seen inside
"""Folders that every private tree has anew, see :mod:`kernel_matrix.inside.confine`."""
_NEXT_STEP = "`kernel-matrix images pull NAME --sandbox unpacked`"


def open_sandbox() -> UnpackedSandbox:
    """Return the sandbox of this user's unpacked images."""
    return UnpackedSandbox()


class UnpackedSandbox(ProcessSandbox):
    """Sandbox that starts roles as local processes with a pinned image as their file system."""

    name = "unpacked"
    uses_images = True

    def status(self) -> SandboxStatus:
        """Return whether an image is unpacked, and this host lets the runner make namespaces."""
        if next(unpacked_images(), None) is None:
            reason = f"no image is unpacked in {images_folder()}: {_NEXT_STEP}"
            return SandboxStatus(name=self.name, available=False, reason=reason)
        status = super().status()
        reason = self._why_not_private
        return replace(status, available=False, reason=reason) if status.available and reason else status

    def isolation(self, spec: RoleSpec) -> Isolation:
        """Return the confinement that ``spec`` gets on this host."""
        return replace(super().isolation(spec), engine=self.name)

    @contextmanager
    def launch(self, spec: RoleSpec) -> Iterator[RunningProcess]:
        """Start ``spec``; kill its process and remove its private folder when the context ends.

        Raises:
            ImageError: The image is not unpacked.
            SandboxError: It could not be started.
        """
        if self._why_not_private:
            raise SandboxError(self._why_not_private)
        with super().launch(spec) as running:
            yield running

    @property
    def _why_not_private(self) -> str:
        """Reason why roles get no namespaces here; empty if they do."""
        level = self.confinement
        return "" if level.is_private else f"unpacked images need namespaces: {'; '.join(level.refused)}"

    def _tree(self, spec: RoleSpec, stage: Path) -> RoleTree:  # noqa: ARG002  # the host's needs a place there
        image = _image_of(spec)
        added = tuple(_added(spec))
        places = [bind.target for bind in (*added, *own_binds(spec))]
        return RoleTree(
            python="python3",
            env={"PATH": SYSTEM_PATH, **image.env},
            binds=(*image_binds(image.root, [*_MADE_INSIDE, *places]), *added),
        )


def _image_of(spec: RoleSpec) -> UnpackedImage:
    if spec.image is None:
        raise ImageError(f"{spec.name} names no image", next_step="give its toolchain an image in matrix.toml")
    image = find_unpacked(spec.image)
    if image is None:
        raise ImageError(f"image {spec.image} is not unpacked in {images_folder()}", next_step=_NEXT_STEP)
    return image


def _added(spec: RoleSpec) -> Iterator[BindMount]:
    """Yield what is mounted into the image besides the role's own mounts: package, driver, processors."""
    for path in filter(lambda path: Path(path).exists(), _OF_THE_HOST):
        yield BindMount(path, path)
    for source, target in package_mounts(spec):
        yield BindMount(source, target)
    for source, target in _driver_libraries(spec.gpu) if spec.gpu is not None else ():
        yield BindMount(source, target)


def _driver_libraries(gpu: Gpu) -> Sequence[tuple[str, str]]:
    """Return the libraries of this host that a container with device nodes alone gets, and their paths inside."""
    access = container_access({}, gpu)
    if not access.libraries and not access.image_has_libraries:
        raise SandboxError(
            f"the libraries of the driver of {gpu.uuid} were not found on this host",
            next_step="install the driver's libraries; `ldconfig -p` must list them",
        )
    return access.libraries


def image_binds(root: Path, places: Collection[str]) -> Iterator[BindMount]:
    """Yield mounts that show the files of an image, with room for other mounts.

    Args:
        root: The image's files.
        places: Paths inside at which something else is mounted.

    Raises:
        ImageError: The image has a file or a link where a folder on the way to one of ``places`` must be.
    """
    made = {str(parent) for place in places for parent in Path(place).parents}
    yield from _binds_below(root, Path("/"), made, frozenset(places))


def _binds_below(folder: Path, inside: Path, made: Collection[str], places: Collection[str]) -> Iterator[BindMount]:
    for path in sorted(folder.iterdir()):
        target = inside / path.name
        if str(target) in places:
            continue
        if str(target) not in made:
            yield BindMount(str(path), str(target))
        elif path.is_dir() and not path.is_symlink():
            yield from _binds_below(path, target, made, places)
        else:
            raise ImageError(
                f"the image has a file or a link at {target}, below which something is to be mounted",
                next_step="run it with Docker, or pin an image that leaves this path free",
            )
