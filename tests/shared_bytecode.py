"""Where the environment forbids to write bytecode beside sources, tests keep it in a folder of their own, for later runs as well.

They start Python some hundred times, and each would compile NumPy and Numba anew (4 s); pytest rewrites what the tests assert
(12 s in each of its processes).
"""

import os
import sys
from pathlib import Path

if sys.dont_write_bytecode:
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parent / "__pycache__" / "elsewhere")
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
