"""Program that describes the Python environment that it runs in, as one line of JSON.

The host runs this file with the environment's own interpreter, and nothing of the environment is imported, PyTorch
neither. It is not part of a cell.
"""

from __future__ import annotations

import ast
import hashlib
import json
import platform
import re
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional

_TORCH_VERSION = "torch/version.py"
_VERSION = re.compile(r"\d+(\.\d+)+")


def describe() -> Dict[str, Any]:
    """Return the description, of values that JSON can hold."""
    # Files are stamped before they are read, so that no change in between is missed later.
    stamps = stamps_of([sys.executable, *_search_path_files()])
    found: Dict[str, Distribution] = {}
    for distribution in distributions():  # in the order of sys.path: the first of a name is the one that is imported
        stamps.update(stamps_of(_metadata_files(distribution)))
        name = distribution.metadata["Name"]
        if name:
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), distribution)
    return {
        "prefix": sys.prefix,
        "executable": sys.executable,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "folders": python_folders(),
        "distributions": {name: one.version for name, one in found.items()},
        "files_sha256": {name: _recorded_files(one) for name, one in found.items()},
        "conda_packages": sorted(path.stem for path in Path(sys.prefix, "conda-meta").glob("*.json")),
        "torch_builds": _torch_builds(found.get("torch")),
        # Empty if a distribution has no files of its own, so that a change could be missed.
        "stamps": stamps if all(hasattr(one, "_path") for one in found.values()) else {},
    }


def stamps_of(paths: Iterable[str]) -> Dict[str, Optional[List[int]]]:
    """Return path → what changes with the file's or folder's content; None for a path that does not exist."""
    return {path: _stamp(path) for path in paths}


def _stamp(path: str) -> Optional[List[int]]:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def _search_path_files() -> List[str]:
    """Return the files and folders that say which distributions there are."""
    settings = [
        str(Path(prefix, name)) for prefix in {sys.prefix, sys.exec_prefix} for name in ("pyvenv.cfg", "conda-meta")
    ]
    hooks = [str(file) for folder in sys.path for file in Path(folder).glob("*.pth")]
    return [*settings, *sys.path, *hooks]


def _metadata_files(distribution: Distribution) -> List[str]:
    """Return the files that are read of a distribution, and the one about PyTorch's build if that lies beside it."""
    folder = str(getattr(distribution, "_path", ""))  # there is no public name for it
    metadata = [str(Path(folder, name)) for name in ("RECORD", "METADATA")]
    return [folder, *metadata, str(distribution.locate_file(_TORCH_VERSION))]


def python_folders() -> List[str]:
    """Return the folders of this Python and its packages, with and without symbolic links, sorted.

    Packages may come from several environments. A source checkout in ``sys.path`` is left out: it may hold problems.
    """
    packages = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    folders = [sys.prefix, sys.exec_prefix, sys.base_prefix, *packages]
    return sorted({*folders, *(str(Path(folder).resolve()) for folder in folders)})


def _recorded_files(distribution: Distribution) -> str:
    """Return the digest of the list of its files and their hashes; of its metadata where there is no such list."""
    text = distribution.read_text("RECORD") or distribution.read_text("METADATA") or ""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _torch_builds(torch: Optional[Distribution]) -> Dict[str, str]:
    """Return toolkit → version for the toolkits that PyTorch was built for; its file says None for the others."""
    file = None if torch is None else Path(str(torch.locate_file(_TORCH_VERSION)))
    if file is None or not file.is_file():
        return {}
    found = {}
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        text = value.value if isinstance(value, ast.Constant) else None
        names = [target.id for target in targets if isinstance(target, ast.Name) and not target.id.startswith("_")]
        if isinstance(text, str) and _VERSION.match(text):
            found.update(dict.fromkeys(names, text))
    return found


if __name__ == "__main__":
    print(json.dumps(describe()))  # noqa: T201  # the answer
