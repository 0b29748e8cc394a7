"""Write image archives whose digests depend only on their content.

A daemon's own build puts times into the image configuration, so that no two builds have the same digest. Here the
configuration is written around one layer (:mod:`kernel_matrix.images.layer`). The archive is both a Docker archive
(``manifest.json``) and an OCI layout, so every daemon can load it. Both digests are known before loading: the config
digest (image id in a graph-driver store) and the manifest digest (image id in a containerd store).
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kernel_matrix.file_hash import content_digest

_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"

SOURCE_DATE_EPOCH = 1767225600
"""2026-01-01 UTC, the time of younger files and of images without a base."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBlob:
    """One content-addressed part of an image."""

    media_type: str
    digest: str
    size: int

    @property
    def path(self) -> str:
        """Path inside an archive."""
        return "blobs/" + self.digest.replace(":", "/")

    @property
    def descriptor(self) -> dict[str, object]:
        """Descriptor in OCI documents."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True, slots=True)
class ImageArchive:
    """An image archive on disk, with the names of the image in a daemon."""

    path: Path
    reference: str
    config_digest: str
    manifest_digest: str


def write_archive(
    target: Path, layer: ImageBlob, content: Path, *, repository: str, config: Mapping[str, Any], created_s: int
) -> ImageArchive:
    """Write an image of one layer, tagged in ``repository`` with the start of its config digest.

    Args:
        target: path of the new archive.
        layer: descriptor of the layer.
        content: file of the layer.
        repository: name without a tag.
        config: ``Env``, ``Cmd``, … in the form of ``docker inspect``.
        created_s: creation time of the image, seconds since 1970.
    """
    config_bytes = _json(_configuration(config, layer, created_s))
    config_blob = _blob("application/vnd.oci.image.config.v1+json", config_bytes)
    manifest_bytes = _json(_manifest(config_blob, layer))
    manifest_blob = _blob(_MANIFEST_TYPE, manifest_bytes)
    reference = f"{repository}:{config_blob.digest.partition(':')[2][:12]}"
    documents = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json(_index(manifest_blob, reference)),
        "manifest.json": _json([{"Config": config_blob.path, "RepoTags": [reference], "Layers": [layer.path]}]),
        config_blob.path: config_bytes,
        manifest_blob.path: manifest_bytes,
    }
    with tarfile.open(target, "w") as archive, content.open("rb") as file:
        for path, data in documents.items():
            archive.addfile(_member(path, len(data)), io.BytesIO(data))
        archive.addfile(_member(layer.path, layer.size), file)
    return ImageArchive(target, reference, config_blob.digest, manifest_blob.digest)


def _configuration(config: Mapping[str, Any], layer: ImageBlob, created_s: int) -> dict[str, object]:
    created = datetime.fromtimestamp(created_s, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": dict(config),
        "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
        "history": [{"created": created, "created_by": "kernel-matrix images build"}],
    }


def _manifest(config: ImageBlob, layer: ImageBlob) -> dict[str, object]:
    return {
        "schemaVersion": 2,
        "mediaType": _MANIFEST_TYPE,
        "config": config.descriptor,
        "layers": [layer.descriptor],
    }


def _index(manifest: ImageBlob, reference: str) -> dict[str, object]:
    annotations = {
        "io.containerd.image.name": f"docker.io/{reference}",
        "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
    }
    return {"schemaVersion": 2, "manifests": [manifest.descriptor | {"annotations": annotations}]}


def _json(document: object) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _blob(media_type: str, data: bytes) -> ImageBlob:
    return ImageBlob(media_type=media_type, digest=content_digest(data), size=len(data))


def _member(path: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.size = size
    return info
