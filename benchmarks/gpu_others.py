"""What a GPU takes for more than training from its memory: prediction, and pages that come from the host each time.

    prediction    milliseconds for all rows of a table on the GPU by TREES trees, from values and from a matrix of codes; the
                  result stays there; from values of XGBoost's, too, where it is installed (its matrices remember what was
                  predicted of them)
    pages         ms per tree where no page stays on the GPU: all come from page-locked memory at every level
    little memory the same with so many MB left on the GPU, whose pages stay there as far as they find room; and the first of
                  these sizes that is too small to train, where there is one
    hessboost     where its CUDA build is installed (hessboost[cuda]): takes tables of the host, and bins them by the CPU within
                  train, so that a tree is the difference of two trainings; predicts from the host to the host
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import gpu_tasks
from gpu_ceilings import wait
from gpu_tasks import WARM_UP, Trainer, scaled
from libraries import xgboost_params
from measure import score
from tasks import Task

import gpuboost as gb
from gpuboost.backend.cuda.staging import StagedPages

TREES, REPEATS = 100, 3
TABLE = "11M × 28, depth 8"
N_PAGED = 3  # rounds timed
FREE_MB = 4000, 2000, 1000, 700, 500, 300, 200  # left on the GPU


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
    task = trainer.scaled(gpu_tasks.TASKS[TABLE].task)
    x, y, _, _ = task.tables()
    trainer.table = None  # makes room
    begin = time.perf_counter()
    matrix = gb.ExtMemQuantileDMatrix(x, y, max_bin=256, page_rows=scaled(2**20, trainer.scale))
    figures = {"s to bin, by the CPU": time.perf_counter() - begin}
    with patch.object(StagedPages, "hold"):
        figures["ms per tree"] = paged_ms(trainer, matrix, task)
    for free_mb in FREE_MB:
        trainer.release()
        with but_for(trainer, free_mb * 1_000_000):
            try:
                figures[f"ms per tree, {free_mb} MB free"] = paged_ms(trainer, matrix, task)
            except MemoryError:
                figures["MB free that are too few"] = free_mb
                break
    return {"gpuboost": figures}


def paged_ms(trainer: Trainer, matrix: Any, task: Task) -> float:
    booster = gb.Booster({**xgboost_params(task, 0), "device": "cuda"}, [matrix])
    trainer.boost(booster, matrix, 0, WARM_UP)
    return 1000 * trainer.boost(booster, matrix, WARM_UP, N_PAGED)


@contextmanager
def but_for(trainer: Trainer, n_bytes: int) -> Iterator[None]:
    """All of the GPU's memory is taken, but for so many bytes."""
    taken = None
    if hasattr(trainer.device.xp, "cuda"):
        taken = trainer.device.xp.cuda.memory.Memory(max(trainer.free() - n_bytes, 1))
    try:
        yield
    finally:
        del taken


def hessboost(trainer: Trainer) -> dict[str, Any]:
    if not find_spec("_hessboost_runtime_cuda"):
        return {}
    module, task = import_module("hessboost"), trainer.scaled(gpu_tasks.TASKS[TABLE].task)
    x, y, test_x, test_y = task.tables()
    matrix, params = module.DMatrix(x, y), {**xgboost_params(task, 0), "device": "cuda"}
    params.pop("nthread")  # 0 is none of its own
    module.train(params, module.DMatrix(x[:20_000], y[:20_000]), 2, verbose_eval=False)  # compiles
    seconds = {}
    for n_rounds in (N_PAGED, TREES):
        begin = time.perf_counter()
        model = module.train(params, matrix, n_rounds, verbose_eval=False)
        seconds[n_rounds] = time.perf_counter() - begin
    on_gpu = model.to_gpu("cuda")
    figures = {
        "ms per tree": 1000 * (seconds[TREES] - seconds[N_PAGED]) / (TREES - N_PAGED),
        f"s of {TREES} rounds, binning included": seconds[TREES],
        "ms to predict": best_ms(trainer, lambda: on_gpu.predict(x)),
    }
    return {"hessboost": figures | score(model.predict(test_x), test_y, task)[0]}


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
    f"hessboost, {TABLE}": hessboost,
}  # fmt: skip
