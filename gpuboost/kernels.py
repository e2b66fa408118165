"""The package gpuboost.kernels, whose files lie in the folder kernels/ at the top level of a checkout.

In an installed copy they lie in the folder gpuboost/kernels, which Python finds before this module.
"""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    def __getattr__(name: str) -> ModuleType: ...  # mypy does not follow __path__


__path__ = [str(Path(__file__).resolve().parents[1] / "kernels")]
