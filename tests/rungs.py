"""The rungs from a kernel's text to a GPU that need none. Each is a function with the parameters of simulator.simulate.

    simulate       the text as Python, thread by thread (simulator.py)
    execute        the LLVM IR that numba-cuda makes of it, thread by thread (ir_rung.py)
    check_races    the text as Python, with what orders every access to memory (races.py)
"""

import pytest
from races import check_races

__all__ = ["RUNGS", "each_rung"]


def execute(*arguments, **geometry):
    """ir_rung.execute; skips the test where numba-cuda is not installed."""
    install = "needs numba-cuda: pip install 'gpuboost-trees[cuda13]'"
    pytest.importorskip("numba.cuda.cudadrv.nvvm", reason=install, exc_type=ImportError)
    from ir_rung import execute

    execute(*arguments, **geometry)


RUNGS = {"ir": execute, "races": check_races}  # those beside the simulator
each_rung = [pytest.param(name, marks=pytest.mark.rung(name)) for name in RUNGS]
