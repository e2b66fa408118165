"""What a GPU takes for more than training from its memory: prediction, and pages that come from the host each time.

    prediction    milliseconds for all rows of a table on the GPU by TREES trees, from values and from a matrix of codes, with the
                  result on the host; from values of XGBoost's, too, where it is installed, whose result stays on the GPU (its
                  matrices remember what was predicted of them)
    pages         ms per tree where no page stays on the GPU: all come from page-locked memory at every level
"""

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any
from unittest.mock import patch

import gpu_tasks
from gpu_ceilings import wait
from gpu_tasks import WARM_UP, Trainer, scaled
from libraries import xgboost_params

import gpuboost as gb
from gpuboost.backend.cuda.staging import StagedPages

TREES, REPEATS = 100, 3
TABLE = "11M × 28, depth 8"
N_PAGED = 3  # rounds timed


def prediction(trainer: Trainer) -> dict[str, Any]:
    chosen = gpu_tasks.TASKS[TABLE]
    task, figures = trainer.scaled(chosen.task), {}
    for name in trainer.libraries:
        module, table = import_module(name), trainer.load(chosen.table, task)
        matrix, _ = trainer.bin(name, table)
        booster = module.train({**xgboost_params(task, 0), "device": "cuda"}, matrix, TREES if trainer.scale == 1 else 2)
        figures[name] = {"ms from values": best_ms(trainer, lambda b=booster, t=table: b.inplace_predict(t.x))}
        if name == "gpuboost":
            figures[name]["ms from codes"] = best_ms(trainer, lambda b=booster, m=matrix: b.predict(m))
    return figures


def pages(trainer: Trainer) -> dict[str, Any]:
    chosen = gpu_tasks.TASKS[TABLE]
    task = trainer.scaled(chosen.task)
    x, y, _, _ = task.tables()
    figures = {}
    with patch.object(StagedPages, "hold"):
        begin = time.perf_counter()
        matrix = gb.ExtMemQuantileDMatrix(x, y, max_bin=256, page_rows=scaled(2**20, trainer.scale))
        figures["s to bin, by the CPU"] = time.perf_counter() - begin
        booster = gb.Booster({**xgboost_params(task, 0), "device": "cuda", **chosen.params}, [matrix])
        trainer.boost(booster, matrix, 0, WARM_UP)
        figures["ms per tree"] = 1000 * trainer.boost(booster, matrix, WARM_UP, N_PAGED)
    return {"gpuboost": figures}


def best_ms(trainer: Trainer, run: Callable[[], Any]) -> float:
    """The shortest of REPEATS, after one that warms up."""
    run()
    times = []
    for _ in range(REPEATS):
        wait(trainer.device)
        begin = time.perf_counter()
        run()
        wait(trainer.device)
        times.append(1000 * (time.perf_counter() - begin))
    return min(times)


OTHERS: dict[str, Callable[[Trainer], dict[str, Any]]] = {
    f"prediction, {TABLE}, {TREES} trees": prediction, f"pages from the host, {TABLE}": pages,
}  # fmt: skip
