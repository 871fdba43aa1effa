#!/usr/bin/python3
"""Draws the plots of a run folder.

Usage: scripts/plot.py RUN_DIR [--out DIR]      (default: RUN_DIR/plots)

Reads results.csv, kernels.csv and run.json as written by the shardmark programs (columns:
results/README.md) and writes, as PNG:
  exposed_communication_vs_{tp,seq,hidden}   share of the step spent waiting for communication
  mfu_vs_{tp,seq,hidden}                     model FLOP rate against the stated peak
  time_split                                 compute, exposed communication and idle time per row
  kernels                                    where the kernel time of the largest shape goes
  communication_fit                          measured communication against alpha + bytes / B
Only rows with status `ok` are drawn. A plot whose axis has a single value is left out, with a
line that says so. A folder of shardmark-analyze is drawn by plot_analyze.py.
"""

import argparse
import json
import sys
import textwrap
import warnings
from pathlib import Path

try:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np
    import pandas as pd
except ImportError as problem:
    print(f"{Path(sys.argv[0]).name}: {problem}; plots need matplotlib and pandas (Debian: "
          "python3-matplotlib python3-pandas)", file=sys.stderr)
    sys.exit(2)

# Okabe and Ito's palette: distinguishable with every common form of colour blindness.
BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#8A8A8A")
# (sequence parallelism, overlap) -> colour, marker, label
VARIANTS = {
    (False, False): (BLUE, "o", "all-reduce"),
    (False, True): (SKY, "s", "all-reduce, overlap"),
    (True, False): (VERMILION, "^", "sequence parallel"),
    (True, True): (ORANGE, "D", "sequence parallel, overlap"),
}
AXES = {"tp": "tensor-parallel degree", "seq": "sequence length", "hidden": "hidden size"}
# Columns that tell rows apart besides the size axes and the variant.
OTHERS = ["op_or_block", "model", "phase", "dtype", "batch", "causal", "keep_gathered"]
MAX_PANELS = 12


class NotARun(Exception):
    pass


def number(value):
    """1024 as 1k, 1536 as 1.5k."""
    value = float(value)
    return f"{value / 1024:g}k" if value >= 1024 and value % 512 == 0 else f"{value:g}"


def with_flags(table):
    """Booleans are `true` and `false` in the files; a row without a model has an empty name, a
    measured one no machine and a predicted one no transport."""
    for name in {"model", "machine", "transport"} & set(table):
        table[name] = table[name].fillna("")
    for flag in {"sp", "overlap", "in_place", "tied_embeddings"} & set(table):
        table[flag] = table[flag].astype(str).str.lower() == "true"
    return table


def ranks_of(row):
    """2 ranks over mpi, or: predicted for h100-sxm-8"""
    if row.get("machine"):
        return f"predicted for {row['machine']}"
    return f"{row['world_size']:g} ranks over {row['transport']}"


class Run:
    """A run folder: `rows` (status ok), `kernels` and what the footers say."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("results.csv", "run.json"):
            if not (folder / name).is_file():
                raise NotARun(f"{folder} is not a run folder: it has no {name} "
                              "(a run folder is what a shardmark program wrote with --out)")
        self.info = json.loads((folder / "run.json").read_text())
        rows = with_flags(pd.read_csv(folder / "results.csv"))
        self.left_out = int((rows["status"] != "ok").sum())
        self.rows = rows[rows["status"] == "ok"].reset_index(drop=True)
        if self.rows.empty:
            raise NotARun(f"{folder}/results.csv has no row with status ok: nothing to draw")
        kernels = folder / "kernels.csv"
        self.kernels = with_flags(pd.read_csv(kernels)) if kernels.is_file() else pd.DataFrame()
        self.machines = sorted(set(self.rows["machine"])) if "machine" in self.rows else [""]
        self.others = [c for c in OTHERS if c in self.rows and self.rows[c].nunique() > 1]

    def key(self):
        """Columns that tell configurations apart: kernels.csv starts with them, then comes `rank`.
        Later ones can have the name of a column of results.csv and mean something else."""
        return list(self.kernels.columns[:self.kernels.columns.get_loc("rank")])

    def peak(self):
        sources = set(self.rows.get("peak_source", pd.Series(dtype=str)).dropna())
        return "measured GEMM peak" if sources == {"measured_gemm"} else "stated peak"

    def describe(self):
        row = self.rows.iloc[0]
        parts = [str(row[c]) for c in ("op_or_block", "phase", "dtype")
                 if c in row and c not in self.others]
        return ", ".join(parts)

    def machine(self):
        """Where rows were measured, and for what others were predicted."""
        parts = []
        if "" in self.machines:
            machine = self.info.get("machine", {})
            ranks = "ranks are threads"
            if self.info.get("transport") == "mpi":
                ranks = self.info.get("mpi", "MPI").replace(" Version:", "")
            parts += [machine.get("cpu", "unknown CPU"), f"{machine.get('cores', '?')} cores",
                      ranks]
            if "onednn" in self.info:
                parts.append(f"oneDNN {self.info['onednn']}")
        parts += [f"predicted for {name}" for name in self.machines if name]
        return ", ".join(parts)

    def footer(self):
        commit = str(self.info.get("commit", "unknown"))[:10]
        if self.info.get("commit_dirty"):
            commit += " with changes"
        parts = [f"run {self.info.get('run_id', self.folder.name)}", f"commit {commit}",
                 self.machine()]
        if self.left_out:
            parts.append(f"{self.left_out} rows not ok, left out")
        return "  |  ".join(parts)


def save(run, out, figure, name, title, conventions, labels=None):
    """Title says what is seen, the lines below it how to read it, the footer where it is from."""
    width, height = figure.get_size_inches()
    title_lines = textwrap.wrap(title, int(width * 8.8))
    lines = [line for paragraph in conventions.split("\n")
             for line in textwrap.wrap(paragraph, int(width * 14))]
    footer = textwrap.wrap(run.footer(), int(width * 18))
    top = 0.12 + 0.24 * len(title_lines)
    figure.text(0.02, 1 - 0.12 / height, "\n".join(title_lines), ha="left", va="top",
                fontsize=13, fontweight="bold")
    figure.text(0.02, 1 - top / height, "\n".join(lines), ha="left", va="top", fontsize=9,
                color="#444444")
    figure.text(0.02, 0.08 / height, "\n".join(footer), ha="left", va="bottom", fontsize=7,
                color="#666666")
    top += 0.12 + 0.16 * len(lines)
    if labels:
        # A letter takes about 0.058 inches.
        columns = min(5, max(1, int(width / (0.058 * max(map(len, labels)) + 0.5))))
        figure.legend(labels.values(), labels.keys(), fontsize=8, frameon=False, ncol=columns,
                      loc="upper left", bbox_to_anchor=(0.01, 1 - (top - 0.08) / height))
        top += 0.04 + 0.16 * -(-len(labels) // columns)
    with warnings.catch_warnings():
        # Where labels leave too little room it changes nothing, and says so.
        warnings.filterwarnings("ignore", message="Tight layout not applied")
        figure.tight_layout(rect=(0, (0.15 + 0.12 * len(footer)) / height, 1, 1 - top / height))
    path = out / f"{name}.png"
    figure.savefig(path, dpi=130)
    plt.close(figure)
    print(path)


def tidy(axes):
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)


def variant_lines(rows, axis, column):
    """(colour, marker, label, points) per variant. Without tensor parallelism all variants are the
    same program: one line, and the common start of the lines over tp."""
    serial = rows[rows["tp"] == 1]
    if axis != "tp" and not serial.empty:
        yield GREY, "o", "tp 1", serial.groupby(axis)[column].median()
    parallel = rows[rows["tp"] > 1]
    for (sp, overlap), style in VARIANTS.items():
        mine = parallel[(parallel["sp"] == sp) & (parallel["overlap"] == overlap)]
        if axis == "tp" and not mine.empty:
            mine = pd.concat([serial, mine])
        if not mine.empty:
            yield *style, mine.groupby(axis)[column].median()


def against(run, out, axis, column, name, ylabel, title, conventions):
    """One panel per combination of the other sizes, one line per variant."""
    rows = run.rows
    if rows[axis].nunique() < 2:
        print(f"{name}_vs_{axis}: left out, all rows have {axis} {rows[axis].iloc[0]}")
        return
    if axis != "tp" and (rows["tp"] > 1).any() and column == "exposed_comm_pct":
        rows = rows[rows["tp"] > 1]
    panel_columns = [c for c in ["tp", "hidden", "seq"] + run.others
                     if c != axis and rows[c].nunique() > 1]
    panels = [((), rows)]
    if panel_columns:
        panels = list(rows.groupby(panel_columns if len(panel_columns) > 1 else panel_columns[0]))
    shown = panels[:MAX_PANELS]
    num_columns = min(4, len(shown)) if len(shown) != 4 else 2
    num_rows = -(-len(shown) // num_columns)
    figure, grid = plt.subplots(num_rows, num_columns, squeeze=False, sharey=True,
                                figsize=(max(7.5, 3.2 * num_columns), 1.5 + 2.6 * num_rows))
    ticks = sorted(rows[axis].unique())
    for panel, ((key, part), axes) in enumerate(zip(shown, grid.flat)):
        key = key if isinstance(key, tuple) else (key,)
        axes.set_title(", ".join(f"{c} {number(v) if c in AXES else v}"
                                 for c, v in zip(panel_columns, key)), fontsize=9, loc="left")
        for colour, marker, label, line in variant_lines(part, axis, column):
            positions = [ticks.index(value) for value in line.index]
            axes.plot(positions, line.values, color=colour, marker=marker, label=label,
                      markersize=5, linewidth=1.5)
        axes.set_xticks(range(len(ticks)), [number(tick) for tick in ticks])
        axes.set_xlim(-0.2, len(ticks) - 0.8)
        tidy(axes)
        if panel % num_columns == 0:
            axes.set_ylabel(ylabel, fontsize=9)
        if panel >= len(shown) - num_columns:
            axes.set_xlabel(AXES[axis], fontsize=9)
    for axes in list(grid.flat)[len(shown):]:
        axes.axis("off")
    labels = {}
    for axes in grid.flat:
        handles, names = axes.get_legend_handles_labels()
        labels.update(zip(names, handles))
    grid.flat[0].set_ylim(0, max(1e-9, 1.08 * rows[column].max()))
    if len(panels) > MAX_PANELS:
        conventions += f"\nFirst {MAX_PANELS} of {len(panels)} combinations."
    save(run, out, figure, f"{name}_vs_{axis}", title, conventions, labels)


def row_label(row, run):
    parts = [f"h {number(row['hidden'])}", f"s {number(row['seq'])}", f"tp {row['tp']:g}"]
    if row["tp"] > 1:
        parts += [name for flag, name in (("sp", "SP"), ("overlap", "overlap")) if row[flag]]
    return " ".join(parts + [str(row[c]) for c in run.others])


def exposed_title(rows):
    parallel = rows[rows["tp"] > 1]
    if parallel.empty:
        return "No communication: every row has tp 1"
    low, high = parallel["exposed_comm_pct"].min(), parallel["exposed_comm_pct"].max()
    worst = parallel.loc[parallel["exposed_comm_pct"].idxmax()]
    return (f"{low:.0f} to {high:.0f} % of the time is exposed communication; most at "
            f"hidden {number(worst['hidden'])}, seq {number(worst['seq'])}, tp {worst['tp']:g}")


def mfu_title(rows, run):
    best = rows.loc[rows["mfu_causal_pct"].idxmax()]
    return (f"Best: {best['mfu_causal_pct']:.0f} % of the {run.peak()}, at hidden "
            f"{number(best['hidden'])}, seq {number(best['seq'])}, tp {best['tp']:g}")


def plot_lines(run, out):
    rows = run.rows
    for axis in AXES:
        against(run, out, axis, "exposed_comm_pct", "exposed_communication",
                "exposed communication\n(% of the window)", exposed_title(rows),
                f"{run.describe()}. Exposed: communication in flight while no kernel runs, of the "
                "profiled iteration from barrier to barrier, on the rank with the most of it.")
        against(run, out, axis, "mfu_causal_pct", "mfu", f"% of {run.peak()}",
                mfu_title(rows, run),
                f"{run.describe()}. Model FLOPs with causal attention counted exactly (backward = "
                "2 x forward) over the median time of the slowest rank, per rank, against the "
                "peak.")


def plot_time_split(run, out):
    rows = run.rows.sort_values(["hidden", "seq", "tp", "sp", "overlap"], kind="stable")
    figure, axes = plt.subplots(figsize=(9.5, 1.8 + 0.24 * len(rows)))
    positions, position, previous = [], 0.0, None
    for _, row in rows.iterrows():
        shape = (row["hidden"], row["seq"], *[row[c] for c in run.others])
        position += 1.6 if previous not in (None, shape) else 1.0
        positions.append(position)
        previous = shape
    left = np.zeros(len(rows))
    parts = [("comp_us", "compute", BLUE), ("exposed_comm_us", "exposed communication", VERMILION),
             ("idle_us", "idle", "#C8C8C8")]
    for column, label, colour in parts:
        if column not in rows or not (rows[column].fillna(0) > 0).any():
            continue
        width = rows[column].fillna(0).to_numpy() / 1e3
        axes.barh(positions, width, left=left, color=colour, label=label, height=0.8)
        left += width
    axes.set_yticks(positions, [row_label(row, run) for _, row in rows.iterrows()], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("time of one iteration, ms")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1, 1.0), ncol=4)
    share = 100 * rows["exposed_comm_us"].sum() / rows["window_us"].sum()
    save(run, out, figure, "time_split",
         f"Where an iteration goes: over all rows {share:.0f} % is exposed communication",
         f"{run.describe()}. One profiled iteration, barrier to barrier, on the rank with the most "
         "exposed communication. Communication behind compute is not visible here: it costs no "
         "time. h hidden, s seq, SP sequence parallel.")


def plot_kernels(run, out):
    if run.kernels.empty:
        print("kernels: left out, kernels.csv has no rows")
        return
    sizes = run.rows["hidden"] * run.rows["seq"]
    shape = run.rows.loc[sizes.idxmax()]
    same = run.rows[(run.rows["hidden"] == shape["hidden"]) & (run.rows["seq"] == shape["seq"])
                    & (run.rows[run.others] == shape[run.others]).all(axis=1)]
    chosen = [same[same["tp"] == tp].sort_values(["sp", "overlap"]).iloc[0]
              for tp in sorted(same["tp"].unique())[-4:]]
    tables = []
    key = run.key()
    for row in chosen:
        mine = run.kernels[(run.kernels[key].fillna("") == row[key].fillna("")).all(axis=1)
                           & (run.kernels["rank"] == 0)]
        tables.append(mine.groupby(["kind", "op", "kernel"])["total_us"].sum())
    table = pd.concat(tables, axis=1, keys=range(len(tables))).fillna(0.0) / 1e3
    if table.empty:
        print("kernels: left out, kernels.csv has no rows of the largest shape")
        return
    table = table.loc[table.max(axis=1).sort_values(ascending=False).index].head(14)
    figure, axes = plt.subplots(figsize=(9.5, 2.0 + 0.34 * len(table) * max(1, len(chosen) / 2)))
    height = 0.8 / len(chosen)
    alphas = np.linspace(0.45, 1.0, len(chosen)) if len(chosen) > 1 else [1.0]
    kinds = [kind for kind, _, _ in table.index]
    for index, (row, alpha) in enumerate(zip(chosen, alphas)):
        colours = [VERMILION if kind == "communication" else BLUE for kind in kinds]
        places = np.arange(len(table)) + (index - (len(chosen) - 1) / 2) * height
        bars = axes.barh(places, table[index], height=height, color=colours, alpha=alpha)
        axes.bar_label(bars, [f"tp {row['tp']:g}: {value:.2f}" if value else ""
                              for value in table[index]], fontsize=7, padding=2)
    names = [op if kernel in (op, "") else f"{op}\n{kernel}" for _, op, kernel in table.index]
    axes.set_yticks(range(len(table)), names, fontsize=7.5)
    axes.invert_yaxis()
    axes.set_xlabel("time in one iteration on rank 0, ms")
    axes.spines[["top", "right"]].set_visible(False)
    matmul = tables[0][tables[0].index.get_level_values("op") == "matmul"].sum()
    share = 100 * matmul / tables[0][tables[0].index.get_level_values("kind") == "compute"].sum()
    save(run, out, figure, "kernels",
         f"Matrix products take {share:.0f} % of the kernel time at tp {chosen[0]['tp']:g}",
         f"{run.describe()}, hidden {number(shape['hidden'])}, seq {number(shape['seq'])}, no "
         "sequence parallelism, no overlap unless only those ran. Blue: compute. Red: "
         "communication. Second line: the implementation its library chose.")


def fit_line(bytes_moved, time_us):
    """alpha_us, bytes per us, median relative error in percent; weighted so that errors count
    relative to the time (else the largest row decides alone). A latency below 0 means none."""
    matrix = np.column_stack([np.ones_like(bytes_moved), bytes_moved]) / time_us[:, None]
    ones = np.ones_like(time_us)
    (alpha, slope), *_ = np.linalg.lstsq(matrix, ones, rcond=None)
    if alpha < 0:
        alpha, slope = 0.0, np.linalg.lstsq(matrix[:, 1:], ones, rcond=None)[0][0]
    predicted = alpha + slope * bytes_moved
    return alpha, 1.0 / slope, 100 * np.median(np.abs(predicted - time_us) / time_us)


def plot_fit(run, out):
    rows = run.rows
    column = "communication_only_us"
    rows = rows[(rows["tp"] > 1) & (rows[column] > 0) & (rows["bytes_analytic"] > 0)]
    if len(rows) < 3 or rows["bytes_analytic"].nunique() < 2:
        print(f"communication_fit: left out, {len(rows)} rows with communication are too few")
        return
    figure, axes = plt.subplots(figsize=(7.5, 5.2))
    legend = []
    for index, (tp, part) in enumerate(rows.groupby("tp")):
        volume, time = part["bytes_analytic"].to_numpy(float), part[column].to_numpy(float)
        for variant, (colour, marker, label) in VARIANTS.items():
            mine = part[(part["sp"] == variant[0]) & (part["overlap"] == variant[1])]
            axes.plot(mine["bytes_analytic"] / 1e6, mine[column] / 1e3, marker, color=colour,
                      markersize=6, fillstyle="full" if index == 0 else "none",
                      label=label if index == 0 and len(mine) else None)
        if len(part) < 3 or part["bytes_analytic"].nunique() < 2:
            continue
        alpha, rate, error = fit_line(volume, time)
        if rate <= 0:
            continue
        grid = np.linspace(volume.min(), volume.max(), 100)
        axes.plot(grid / 1e6, (alpha + grid / rate) / 1e3, color="black", linewidth=1.2,
                  linestyle=["-", "--", ":", "-."][index % 4],
                  label=f"tp {tp:g}: {alpha / 1e3:.2f} ms + bytes / {rate / 1e3:.2f} GB/s, "
                        f"n {len(part)}, median error {error:.0f} %")
        legend.append((tp, rate / 1e3, error))
    axes.set_xlabel("analytic volume across one rank's link per iteration, MB (1e6 bytes)")
    axes.set_ylabel("communication alone, ms")
    axes.set_xlim(0, None)
    axes.set_ylim(0, None)
    tidy(axes)
    axes.legend(fontsize=8, frameon=False)
    title = "Communication alone against theory: latency + volume / bandwidth"
    if legend:
        tp, rate, error = legend[0]
        follows = "follows" if error <= 25 else "does not follow"
        title = (f"Communication alone at tp {tp:g} {follows} volume / {rate:.2g} GB/s "
                 f"(median error {error:.0f} %)")
    save(run, out, figure, "communication_fit", title,
         f"{run.describe()}. Points: median time of the same program with compute left out. Line: "
         "least squares over relative errors. Volume: ring formula, bytes crossing one rank's "
         "link.")


def draw_runs(doc, load, plots, num_runs=1):
    """The command line of a script that draws run folders: `load` makes one run of the given
    folders, each of `plots` draws (run, out)."""
    parser = argparse.ArgumentParser(description=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs=num_runs, metavar="RUN_DIR")
    parser.add_argument("--out", type=Path, metavar="DIR")
    options = parser.parse_args()
    try:
        run = load(options.runs)
        out = options.out or options.runs[0] / "plots"
        out.mkdir(parents=True, exist_ok=True)
        plt.rcParams.update({"font.size": 9, "axes.edgecolor": "#888888"})
        for plot in plots:
            plot(run, out)
    except (NotARun, OSError, KeyError, ValueError) as problem:
        kind = "" if isinstance(problem, (NotARun, OSError)) else "damaged run folder? "
        sys.exit(f"{Path(sys.argv[0]).name}: {kind}{problem}")


def is_analysis(folder):
    """What shardmark-analyze wrote has plots of its own."""
    try:
        info = json.loads((folder / "run.json").read_text())
    except (OSError, ValueError):
        return False
    return info.get("program") == "shardmark-analyze"


if __name__ == "__main__":
    if any(is_analysis(Path(argument)) for argument in sys.argv[1:]):
        import plot_analyze
        plot_analyze.main()
    else:
        draw_runs(__doc__, lambda runs: Run(runs[0]),
                  [plot_lines, plot_time_split, plot_kernels, plot_fit])
