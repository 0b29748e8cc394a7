"""The sandbox of unpacked images, which runs pinned images where no daemon does."""

from __future__ import annotations

from collections.abc import Iterator

from kernel_matrix.environments.unpacked_images import images_folder, unpacked_images
from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.hosts.survey import AUTO
from kernel_matrix.platforms.check_result import CheckResult, fail, ok, warn
from kernel_matrix.sandboxes import open_sandbox

_SUBJECT = "unpacked images"


def check(host: Host) -> Iterator[CheckResult]:
    """Check that images are unpacked and can be run here; where nothing is unpacked, only if that was asked for."""
    found = list(unpacked_images())
    wanted = host.sandbox == "unpacked"
    if not (wanted or (found and host.sandbox == AUTO)):
        return
    status = open_sandbox("unpacked").status()
    if status.available:
        size_gb = sum(image.size_bytes for image in found) / 1e9
        yield ok(_SUBJECT, f"{len(found)} in {images_folder()}, {size_gb:.1f} GB")
    else:
        tell = fail if wanted else warn
        yield tell(_SUBJECT, status.reason, "run cells with Docker, or with the Python that is here")
