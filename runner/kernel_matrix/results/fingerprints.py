"""Salted hashes in place of what identifies a machine or its user.

Equal values have equal hashes, so that machines and devices can still be told apart. Without the salt, which is in no
packed set, nothing can be found out by hashing guesses.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from kernel_matrix.results.reading import Document

IDENTIFYING: Final[Mapping[str, str]] = {
    "hostname": "often says whose machine it is, and where",
    "machine": "a hash of the machine id without a salt: the same in everything that the machine publishes",
    "uuid": "made once, for one device",
    "serial": "made once, for one device",
    "pci_bus_id": "which slot of the machine, which shows how it is built",
    "vbios": "the firmware of a few boards of one maker",
}
"""Key in ``host`` of a record or run → why its value identifies a machine.

Besides: the kernel's build in ``host.platform``, which often names a cloud or an owner; the names of nodes in a run's
``clocks_ahead_s``; the user in the path of a home folder; and all of these where texts repeat them.
"""

_MARK: Final = "salted-"
_HASH: Final = re.compile(_MARK + "[0-9a-f]{16}")
_SHARED: Final = frozenset({"cpu", ""})  # a UUID and a host name that identify nothing
_KERNEL: Final = re.compile(r"\S+ (?P<release>(?P<version>[0-9][0-9.]*)[^0-9.\s]\S*) ")
_DEVICE: Final = r"(?:[A-Z]{3}-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_ADDRESS: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_USER: Final = r"(?<=/home/)[^/\s:'\"]+|(?<=/Users/)[^/\s:'\"]+"
_LEAST_CHARS: Final = 6
"""A shorter value, such as of a firmware, is not looked for in texts: it may be any word."""

_Scrub = Callable[[str], str]


class Salter:
    """Writer of salted hashes.

    Args:
        salt: A secret; results that are to be joined need the same one.
        hostnames: Names of machines that texts may repeat, beside the one that wrote them.
    """

    def __init__(self, salt: bytes, hostnames: Iterable[str] = ()) -> None:
        self._salt = salt
        self._hostnames = frozenset(hostnames)

    def hashed(self, value: str) -> str:
        """Return the hash of a value; of one that joins several with ``+``, as for a group of devices, that of each."""
        return "+".join(map(self._hash, value.split("+")))

    def salted(self, document: Document) -> Document:
        """Return a record or run with hashes for what :data:`IDENTIFYING` names, also where its texts repeat them."""
        host = document["host"]
        scrub = self._scrub_of(host)
        changed = {key: value if key == "cell" else _walk(value, scrub) for key, value in document.items()}
        changed["host"] = self._salted_host(host, scrub)
        if "clocks_ahead_s" in document:
            changed["clocks_ahead_s"] = {self.hashed(node): ahead for node, ahead in document["clocks_ahead_s"].items()}
        return changed

    def salted_texts(self, texts: Iterable[str]) -> list[str]:
        """Return texts of unknown origin with hashes for what has the form of a device, an address or a home folder."""
        return [self._scrub_of({})(text) for text in texts]

    def _hash(self, value: str) -> str:
        if value in _SHARED or _HASH.fullmatch(value):
            return value
        return _MARK + hmac.digest(self._salt, value.encode(errors="replace"), "sha256").hex()[:16]

    def _salted_host(self, value: Any, scrub: _Scrub) -> Any:
        if isinstance(value, list):
            return [self._salted_host(one, scrub) for one in value]
        if not isinstance(value, dict):
            return _walk(value, scrub)
        return {key: self._salted_value(key, one, scrub) for key, one in value.items()}

    def _salted_value(self, key: str, value: Any, scrub: _Scrub) -> Any:
        if key in IDENTIFYING and isinstance(value, str):
            return self.hashed(value)
        # `missing` has the same keys, and says why there is no value.
        return _walk(value, scrub) if key == "missing" else self._salted_host(value, scrub)

    def _scrub_of(self, host: Mapping[str, Any]) -> _Scrub:
        """Return what replaces identifying parts of a text that ``host`` wrote."""
        known = dict(self._known(host))
        names = {*self._hostnames, host.get("hostname", "")} - _SHARED
        everywhere, in_texts = _pattern(frozenset(known)), _pattern(frozenset({*known, *names}))

        def replace(found: re.Match[str]) -> str:
            return known.get(found[0]) or self._hash(found[0])

        def scrub(text: str) -> str:
            # A host name may be any word. One without a space or slash around it may be a value of ours.
            is_text = " " in text or "/" in text
            return (in_texts if is_text else everywhere).sub(replace, text)

        return scrub

    def _known(self, value: Any, key: str = "") -> Iterator[tuple[str, str]]:
        """Yield each identifying value of ``host`` that texts may repeat, and its replacement."""
        if isinstance(value, dict):
            for inner, one in value.items():
                if inner != "missing":
                    yield from self._known(one, inner)
        elif isinstance(value, list):
            for one in value:
                yield from self._known(one)
        elif isinstance(value, str) and key in IDENTIFYING and key != "hostname":
            yield from ((part, self._hash(part)) for part in value.split("+") if len(part) >= _LEAST_CHARS)
        elif isinstance(value, str) and key == "platform" and (kernel := _KERNEL.match(value)):
            release, version = kernel["release"], kernel["version"]
            if _MARK not in release:
                yield release, f"{version}-{self._hash(release)}"


@lru_cache(maxsize=256)
def _pattern(names: frozenset[str]) -> re.Pattern[str]:
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    parts = "|".join((*map(re.escape, longest_first), _DEVICE, _ADDRESS))
    return re.compile(rf"(?<![A-Za-z0-9])(?:{parts})(?![A-Za-z0-9])|{_USER}")


def _walk(value: Any, scrub: _Scrub) -> Any:
    """Return ``value`` with every text in it scrubbed."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, list):
        return [_walk(one, scrub) for one in value]
    if isinstance(value, dict):
        return {scrub(key): _walk(one, scrub) for key, one in value.items()}
    return value
