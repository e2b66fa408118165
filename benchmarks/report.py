"""The comparison of peers.py as Markdown and plots, from its JSON."""

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from quality import LEVEL, OURS, losses, verdicts

Record = dict[str, Any]
RIVALS = ("xgboost", "hessboost", "lightgbm")
MEASURES = {  # of a record: how it is called, how it is written
    "binning_s": ("binning s", "{:.3f}"), "training_s": ("training s", "{:.3f}"), "total_s": ("total s", "{:.3f}"),
    "predict_s": ("predict s", "{:.3f}"), "row_us": ("one row µs", "{:.0f}"), "peak_mb": ("memory MB", "{:.0f}"),
}  # fmt: skip
CLOSE = 1.05  # a ratio that is no loss


def middle(value: float | list[float]) -> float:
    return median(value) if isinstance(value, list) else value


def fastest_rival(group: list[Record], measure: str) -> tuple[str, float] | None:
    """The best one of RIVALS and its figure; None where none has it, or theirs is zero, as memory may be."""
    figures = [(middle(r[measure]), r["library"]) for r in group if r["library"] in RIVALS and measure in r]
    figure, library = min(figures, default=(0.0, ""))
    return (library, figure) if figure > 0 else None


def ratio(record: Record, group: list[Record], measure: str) -> float | None:
    """Its figure over that of the best one of RIVALS."""
    rival = fastest_rival(group, measure)
    return middle(record[measure]) / rival[1] if rival and measure in record else None


def losses_of(record: Record, group: list[Record]) -> list[str]:
    """In what it is behind the best one of RIVALS."""
    words = []
    for measure, (name, _) in MEASURES.items():
        value = ratio(record, group, measure)
        if value is not None and value > CLOSE:
            words.append(f"{name.rsplit(' ', 1)[0]} {value:.2f}× {fastest_rival(group, measure)[0]}")
    return words


def groups(records: list[Record]) -> dict[tuple[str, int], list[Record]]:
    """By task and threads, most threads first."""
    found: dict[tuple[str, int], list[Record]] = {}
    for record in sorted(records, key=lambda r: -r["threads"]):
        found.setdefault((record["task"], record["threads"]), []).append(record)
    return found


def row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join([row(head), "|" + "---|" * len(head), *map(row, rows)])


def bold(cell: str, is_bold: bool) -> str:
    return f"**{cell}**" if is_bold else cell


def shape_of(task: Record) -> str:
    grown = f"{task['n_leaves']} leaves" if task["n_leaves"] else f"depth {task['max_depth']}"
    return f"{task['n_rows']:,} × {task['n_features']:,}, {task['n_rounds']} rounds, {grown}"


def speed_up(group: list[Record], measure: str) -> str:
    """Of OURS, over the fastest one of RIVALS, and which that is."""
    value = next((ratio(r, group, measure) for r in group if r["library"] == OURS), None)
    return f"{bold(f'{1 / value:.2f}×', value > CLOSE)} {fastest_rival(group, measure)[0]}" if value else ""


def summary(document: Record, threads: int) -> str:
    """A row per task: total seconds of every library, and where gpuboost is behind."""
    names = list(dict.fromkeys(r["library"] for r in document["records"]))
    rows = []
    for (task, n), group in groups(document["records"]).items():
        if n != threads:
            continue
        of_library = {r["library"]: r for r in group}
        totals = {name: middle(r["total_s"]) for name, r in of_library.items() if "total_s" in r}
        cells = [bold(f"{totals[x]:.2f}", totals[x] == min(totals.values())) if x in totals else "–" for x in names]
        behind = "; ".join(losses_of(of_library[OURS], group)) if OURS in totals else ""
        speed = [speed_up(group, measure) for measure in ("total_s", "training_s")]
        rows.append([task, shape_of(document["tasks"][task]), *cells, *speed, behind])
    return table(["task", "table", *names, "speed-up over", "of training alone", f"where {OURS} is behind"], rows)


def details(document: Record, threads: int) -> str:
    """A row per task and library: all figures, each with its ratio to the best one of RIVALS."""
    rows = []
    for (task, n), group in groups(document["records"]).items():
        if n != threads:
            continue
        for r in group:
            if "left_out" in r:
                rows.append([task, r["library"], r["left_out"].replace("|", "/").replace("\n", " ")[:100]] + [""] * 8)
                continue
            cells = []
            for measure, (_, form) in MEASURES.items():
                value = ratio(r, group, measure)
                cells.append((form.format(middle(r[measure])) + (f" ({value:.2f})" if value else "")) if measure in r else "–")
            spread = f"{min(r['total_s']):.3f}–{max(r['total_s']):.3f}"
            quality = ", ".join(f"{name} {middle(value):.4f}" for name, value in r["quality"].items())
            rows.append([task, r["library"], *cells[:3], str(len(r["total_s"])), spread, *cells[3:], quality])
    return table(["task", "", *(name for name, _ in list(MEASURES.values())[:3]), "turns", "spread of total",
                  *(name for name, _ in list(MEASURES.values())[3:]), "quality"], rows)  # fmt: skip


def quality_table(quality: Record) -> str:
    """A row per task: our loss above every other library's, in % of theirs, ± a standard error."""
    names = [x for x in dict.fromkeys(r["library"] for r in quality["records"]) if x != OURS]
    rows = []
    for task, described in quality["tasks"].items():
        group = [r for r in quality["records"] if r["task"] == task]
        found, ours = verdicts(group), next((r for r in group if r["library"] == OURS and "quality" in r), None)
        cells = [cell_of(*found[x]) if x in found else "–" for x in names]
        loss = f"{next(iter(ours['quality']))} {sum(losses(ours)) / len(losses(ours)):.4f}" if ours else "–"
        rows.append([task, shape_of(described), str(len(losses(ours))) if ours else "", loss, *cells])
    return table(["task", "table", "draws", OURS, *(f"% to {x}" for x in names)], rows)


def cell_of(mean: float, error: float, word: str) -> str:
    return bold(f"{mean:+.2f} ± {error:.2f}{' ' * bool(word)}{word}", word == "worse")


def origin(runs: Iterable[Record]) -> str:
    """Days, machines, versions and commits."""
    runs = list(runs)
    machines = sorted({f"{run['cpu']}, {run['cores']} cores, {run['platform']}, Python {run['python']}" for run in runs})
    versions = sorted({", ".join(f"{name} {version}" for name, version in run["versions"].items()) for run in runs})
    commits = sorted({run["commit"][:10] + (" and changes" if run["uncommitted_changes"] else "") for run in runs})
    days = sorted({run["date"][:10] for run in runs})
    return f"{'; '.join(days)}. {'; '.join(machines)}. {'; '.join(versions)}. Commit {', '.join(commits)}."


def page(document: Record, quality: Record | None = None) -> str:
    """Both as one Markdown page."""
    parts = [HEAD, origin(document["runs"].values())] if document else [HEAD]
    for n in sorted({r["threads"] for r in document.get("records", [])}, reverse=True):
        name = f"{n} thread{'s'[: n > 1]}"
        parts += [f"## {name}", summary(document, n), f"### All figures, {name}", details(document, n)]
    if quality:
        parts += [QUALITY_HEAD, origin(quality["runs"].values()), quality_table(quality)]
    return "\n\n".join(parts) + "\n"


HEAD = f"""# {OURS} and its peers

Written by `python benchmarks/peers.py`. Seconds from a raw float32 array, or a CSR matrix, in memory to a trained model: binning,
training, and both. Medians of turns that the libraries took, each in a process of its own, after a warm-up. In brackets: the
figure over the best one of XGBoost, hessboost and LightGBM.

- *Speed-up*: seconds of the fastest one of these three, which is named, over those of {OURS}, in total and of training alone;
  bold where slower. Bold seconds: the fastest of all. Ratios up to {CLOSE} count as equal. What was not installed is not listed.
- *Predict*: all test rows, from the raw array. *One row*: the same for one, with one thread.
- *Memory*: the peak of the first turn while binning and training, above a warm process that holds the table.
- *Quality* of one draw of the table is no verdict; that is in the last section.
- Parameters are as equal as the libraries allow: [libraries.py](../libraries.py) says what is not."""

QUALITY_HEAD = f"""## Quality

Written by `python benchmarks/peers.py --quality`. How much greater the test loss of {OURS} is than another library's, in % of
that: the mean ± its standard error over paired draws of smaller tables, the same for all libraries. *Worse* (bold) and *better*
are by a paired, two-sided t-test of each cell, which chance alone passes in {LEVEL:.0%} of cases."""


# --- Plots ---


def plot(document: Record, quality: Record | None, folder: Path) -> list[Path]:
    """Time against rows, and quality. Nothing without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return []
    files = []
    for name, draw, data in (("peers-rows", draw_rows, document), ("peers-quality", draw_quality, quality)):
        figure = Figure(layout="constrained")
        if data and draw(figure, data):
            files.append(folder / f"{name}.png")
            figure.savefig(files[-1], dpi=110)
    return files


def draw_rows(figure: Any, document: Record) -> bool:
    """ms of a round against rows, of the tasks that differ in them only. Dashed: a library that does not bin apart."""
    tasks, threads = document["tasks"], max(r["threads"] for r in document["records"])
    records = [r for r in document["records"] if r["threads"] == threads and "total_s" in r]
    same = [name for name, task in tasks.items() if task["make"] == "higgs_like" and task["n_features"] == 28
            and task["max_depth"] == 6 and not task["n_leaves"] and task["tree_method"] == "hist"]  # fmt: skip
    figure.set_size_inches(6.5, 4.5)
    axes = figure.subplots()
    for library in dict.fromkeys(r["library"] for r in records if r["task"] in same):
        own = [r for r in records if r["library"] == library and r["task"] in same]
        measure = "training_s" if "training_s" in own[0] else "total_s"
        points = sorted((tasks[r["task"]]["n_rows"], 1000 * middle(r[measure]) / tasks[r["task"]]["n_rounds"]) for r in own)
        label = library if measure == "training_s" else f"{library}, with binning"
        axes.plot(*zip(*points), "o-" if measure == "training_s" else "o--", label=label)
    axes.set(xscale="log", yscale="log", xlabel="rows (× 28)", ylabel=f"ms per round; {threads} threads")
    if axes.lines:
        axes.legend()
    return bool(axes.lines)


def draw_quality(figure: Any, quality: Record) -> bool:
    """A row per task: our loss above each other library's, in %, with two standard errors. Left of zero, ours is less."""
    tasks = list(quality["tasks"])
    figure.set_size_inches(8, 1 + 0.45 * len(tasks))
    axes = figure.subplots()
    found = {task: verdicts([r for r in quality["records"] if r["task"] == task]) for task in tasks}
    names = list(dict.fromkeys(name for of_task in found.values() for name in of_task))
    for i, name in enumerate(names):
        points = [(*of_task[name], place - 0.3 + 0.15 * i) for place, of_task in enumerate(found.values()) if name in of_task]
        means, errors, _, places = zip(*points)
        axes.errorbar(means, places, xerr=[2 * error for error in errors], fmt="o", markersize=4, label=f"to {name}")
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set(yticks=range(len(tasks)), yticklabels=tasks, xlabel=f"loss of {OURS} above theirs, %, ± 2 standard errors")
    axes.set_xscale("symlog", linthresh=1)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.invert_yaxis()
    if names:
        figure.legend(loc="outside lower center", ncols=len(names), fontsize=8)
    return bool(names)
