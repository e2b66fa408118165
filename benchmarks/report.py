"""The comparison of peers.py as Markdown and plots, from its JSON."""

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

from scipy.stats import t

Record = dict[str, Any]
OURS, RIVALS = "gpuboost", ("xgboost", "lightgbm")
MEASURES = {  # of a record: how it is called, how it is written
    "binning_s": ("binning s", "{:.3f}"), "training_s": ("training s", "{:.3f}"), "total_s": ("total s", "{:.3f}"),
    "predict_s": ("predict s", "{:.3f}"), "row_us": ("one row µs", "{:.0f}"), "peak_mb": ("memory MB", "{:.0f}"),
}  # fmt: skip
CLOSE = 1.05  # a ratio that is no loss
CHANCE, SHARE = 0.01, 0.001  # a gap of quality that is a loss is rarer by chance, and a greater share of the loss


def middle(value: float | list[float]) -> float:
    return median(value) if isinstance(value, list) else value


def ratio(record: Record, group: list[Record], measure: str) -> float | None:
    """Its figure over the better one of RIVALS; None where it or they have none, or theirs is zero, as memory may be."""
    rivals = min((middle(r[measure]) for r in group if r["library"] in RIVALS and measure in r), default=0.0)
    return middle(record[measure]) / rivals if rivals > 0 and measure in record else None


def noise(record: Record) -> float:
    """The gap of quality that chance alone exceeds rarely, after Student for few repeats."""
    return float(t.ppf(1 - CHANCE / 2, max(len(record["total_s"]) - 1, 1))) * record["gap"]["error"]


def losses_of(record: Record, group: list[Record]) -> list[str]:
    """In what it is behind: the better one of RIVALS, or in quality the best of all."""
    words = []
    for measure, (name, _) in MEASURES.items():
        value = ratio(record, group, measure)
        if value is not None and value > CLOSE:
            words.append(f"{name.rsplit(' ', 1)[0]} {value:.2f}×")
    gap, loss = record["gap"], middle(next(iter(record["quality"].values())))
    if gap["difference"] > max(noise(record), SHARE * loss):
        words.append(f"quality by {gap['difference'] / gap['error']:.1f} standard errors")
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
        ours = of_library.get(OURS, {})
        speed = " ".join(
            bold(f"{1 / value:.2f}×", value > CLOSE) for key in ("total_s", "training_s") if (value := ratio(ours, group, key))
        )
        behind = "; ".join(losses_of(ours, group)) if OURS in totals else ""
        rows.append([task, shape_of(document["tasks"][task]), *cells, speed, behind])
    return table(["task", "table", *names, "speed-up: total, training", f"where {OURS} is behind"], rows)


def details(document: Record, threads: int) -> str:
    """A row per task and library: all figures, each with its ratio to the better one of RIVALS."""
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
            gap = f"+{r['gap']['difference']:.5f} ± {r['gap']['error']:.5f}" if r["gap"]["best"] != r["library"] else "best"
            rows.append([task, r["library"], *cells[:3], spread, *cells[3:], quality, gap])
    return table(["task", "", *(name for name, _ in list(MEASURES.values())[:3]), "spread of total",
                  *(name for name, _ in list(MEASURES.values())[3:]), "quality", "behind the best"], rows)  # fmt: skip


def page(document: Record) -> str:
    """All as one Markdown page."""
    runs = document["runs"].values()
    machines = sorted({f"{run['cpu']}, {run['cores']} cores, {run['platform']}, Python {run['python']}" for run in runs})
    versions = sorted({", ".join(f"{name} {version}" for name, version in run["versions"].items()) for run in runs})
    commits = sorted({run["commit"][:10] + (" and changes" if run["uncommitted_changes"] else "") for run in runs})
    days = sorted({run["date"][:10] for run in runs})
    counts = sorted({r["threads"] for r in document["records"]}, reverse=True)
    parts = [HEAD, f"{'; '.join(days)}. {'; '.join(machines)}. {'; '.join(versions)}. Commit {', '.join(commits)}."]
    for n in counts:
        name = f"{n} thread{'s'[: n > 1]}"
        parts += [f"## {name}", summary(document, n), f"### All figures, {name}", details(document, n)]
    return "\n\n".join(parts) + "\n"


HEAD = f"""# {OURS} and its peers

Written by `python benchmarks/peers.py`. Seconds from a raw float32 array, or a CSR matrix, in memory to a trained model: binning,
training, and both. Medians of turns that the libraries took, each in a process of its own, after a warm-up. In brackets: the
figure over the better one of XGBoost and LightGBM.

- *Speed-up*: total seconds of the faster one of these two over those of {OURS}, and the same of training alone; bold where
  slower. Bold seconds: the fastest. Ratios up to {CLOSE} count as equal. A library that was not installed is not listed.
- *Predict*: all test rows, from the raw array. *One row*: the same for one, with one thread.
- *Memory*: the peak of the first turn while binning and training, above a warm process that holds the table.
- *Behind the best*: how much worse the test loss (the first one named) is than the best library's, ± its standard error, from the
  spread between repeats, each with other rows to train on and to score, or from that between rows, whichever is greater. A loss
  if it exceeds {SHARE:.1%} of that and what chance alone does in {CHANCE:.0%} of cases (Student's t, as repeats are few).
- Parameters are as equal as the libraries allow: [libraries.py](../libraries.py) says what is not."""


# --- Plots ---


def plot(document: Record, folder: Path) -> list[Path]:
    """Time against rows, and quality against time. Nothing without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return []
    threads = max(r["threads"] for r in document["records"])
    done = [r for r in document["records"] if r["threads"] == threads and "total_s" in r]
    files = []
    for name, draw in {"peers-rows": draw_rows, "peers-quality": draw_quality}.items():
        figure = Figure(layout="constrained")
        if draw(figure, done, document["tasks"], threads):
            files.append(folder / f"{name}.png")
            figure.savefig(files[-1], dpi=110)
    return files


def draw_rows(figure: Any, records: list[Record], tasks: Record, threads: int) -> bool:
    """ms of a round against rows, of the tasks that differ in them only. Dashed: a library that does not bin apart."""
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


def draw_quality(figure: Any, records: list[Record], tasks: Record, threads: int) -> bool:
    """A panel per task: test loss against total seconds, with the standard error of the distance to the best."""
    names = list(dict.fromkeys(r["task"] for r in records))
    columns = 4
    n_rows = -(-len(names) // columns)
    figure.set_size_inches(3.2 * columns, 2.7 * n_rows)
    panels = figure.subplots(n_rows, columns, squeeze=False).ravel()
    colours = {library: f"C{i}" for i, library in enumerate(dict.fromkeys(r["library"] for r in records))}
    for panel in panels[len(names) :]:
        panel.axis("off")
    for panel, name in zip(panels, names):
        for r in records:
            if r["task"] == name:
                metric, losses = next(iter(r["quality"].items()))
                panel.errorbar(middle(r["total_s"]), middle(losses), r["gap"]["error"], fmt="o", color=colours[r["library"]])
                panel.set(ylabel=metric, xlabel="s")
        panel.set_title(name, fontsize=9)
    marks: Callable[..., Any] = panels[0].plot
    figure.legend([marks([], [], "o", color=c)[0] for c in colours.values()], list(colours), loc="outside lower center", ncols=5)
    return bool(names)
