"""Where the files of a checkout lie in a wheel, for pdm-backend (pyproject.toml)."""

from pathlib import Path
from typing import Any


def pdm_build_update_files(context: Any, files: dict[str, Path]) -> None:
    """In a wheel kernels/ becomes gpuboost/kernels/. An editable one is a path entry, but pdm-backend would bring along its own
    folder's .gitignore, into site-packages."""
    if context.target == "wheel":
        for name in [name for name in files if name.startswith("kernels/")]:
            files[f"gpuboost/{name}"] = files.pop(name)
    if context.target == "editable":
        files.pop(".gitignore", None)
