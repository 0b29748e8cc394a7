"""Image archives whose digests depend on content alone.

A daemon's own build puts times into an image's configuration, so two builds never agree; here the configuration is
written by us, around one layer (:mod:`kernel_matrix.images.layer`). The archive is both what ``docker save`` wrote of
old (``manifest.json``) and an OCI layout, so every daemon loads it, and both digests are known beforehand: the config
digest (a graph driver's image id) and the manifest digest (containerd's).
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

SOURCE_DATE_EPOCH = 1767225600
"""2026-01-01 UTC: what a file gets that is younger, and an image made from nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBlob:
    """One content-addressed part of an image."""

    media_type: str
    digest: str
    size: int

    @property
    def path(self) -> str:
        """Where it is inside an archive."""
        return "blobs/" + self.digest.replace(":", "/")

    @property
    def descriptor(self) -> dict[str, object]:
        """How OCI documents refer to it."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True, slots=True)
class ImageArchive:
    """An image archive on disk, and what daemons know the image by."""

    path: Path
    reference: str
    config_digest: str
    manifest_digest: str


def write_archive(
    target: Path, layer: ImageBlob, content: Path, *, repository: str, config: Mapping[str, Any], created_s: int
) -> ImageArchive:
    """Write an image of one layer.

    :param content: the layer's file.
    :param repository: where the image is tagged; the tag is the start of the config digest.
    :param config: ``Env``, ``Cmd``, … as ``docker inspect`` shows them.
    :param created_s: the image's time of creation, seconds since 1970.
    """
    config_bytes = _json(_configuration(config, layer, created_s))
    config_blob = _blob("application/vnd.oci.image.config.v1+json", config_bytes)
    manifest_bytes = _json(_manifest(config_blob, layer))
    manifest_blob = _blob("application/vnd.oci.image.manifest.v1+json", manifest_bytes)
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
    manifest = "application/vnd.oci.image.manifest.v1+json"
    return {
        "schemaVersion": 2,
        "mediaType": manifest,
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
    return ImageBlob(media_type=media_type, digest=f"sha256:{hashlib.sha256(data).hexdigest()}", size=len(data))


def _member(path: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.size = size
    return info
