"""List the Debian and Python packages of an image by running ``python3`` in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_matrix.errors import ImageError
from kernel_matrix.untrusted_json import parse_object

if TYPE_CHECKING:
    from docker import DockerClient

_LIST_PACKAGES = """
import json, subprocess
from importlib.metadata import distributions
found = {"py:" + d.metadata["Name"].lower(): d.version for d in distributions() if d.metadata["Name"]}
listed = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\\\\n"], capture_output=True, text=True).stdout
found.update(("deb:" + name, version) for name, version in (line.split(" ") for line in listed.splitlines()))
print(json.dumps(found))
"""


def read_packages(client: DockerClient, image: str) -> dict[str, str]:
    """Return ``deb:<name>`` and ``py:<name>`` → version.

    Raises:
        ImageError: the image has no working ``python3``.
    """
    from docker.errors import ContainerError  # noqa: PLC0415  # the SDK is loaded when a daemon is needed

    try:
        output: bytes = client.containers.run(
            image,
            entrypoint=["python3", "-c", _LIST_PACKAGES],
            command=[],
            network_mode="none",
            remove=True,
            user="65534:65534",
        )
        return dict(sorted(parse_object(output).items()))
    except (ContainerError, ValueError) as error:
        raise ImageError(
            f"The packages of {image} cannot be read: {error}.", next_step="Check that python3 runs in the image."
        ) from error
