"""Where the environment forbids to write bytecode, the processes of a run of the tests share a folder of it.

They start Python some hundred times, and each would compile NumPy and Numba anew (4 s).
"""

import os
import sys
from tempfile import TemporaryDirectory

if sys.dont_write_bytecode:
    _folder = TemporaryDirectory(prefix="gpuboost-bytecode-")
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = _folder.name
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
