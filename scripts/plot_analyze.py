#!/usr/bin/python3
"""Draws the plots of a folder that shardmark-analyze wrote with --out.

Usage: scripts/plot_analyze.py RUN_DIR [--out DIR]      (default: RUN_DIR/plots)

Reads results.csv, collectives.csv, kernels.csv, stages.csv and run.json (columns:
results/README.md), and writes, as PNG:
  time_split     compute, exposed communication, exposed copies and idle time of each rank
  steps          exposed communication and idle time of each step, rank by rank
  collectives    the collectives that take longest, and how much of them is exposed
  waits          time in matched collectives: waiting for the last rank, and transfer
  stages         the bubble of each stage of a pipeline
  kernels        the kernels that take longest
A plot that has no rows is left out, with a line that says so. scripts/plot.py calls this script
for such a folder.
"""

import json
import re

import plot
from plot import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, NotARun, np, pd, plt

IDLE = "#C8C8C8"
PARTS = [("comp_us", "compute", BLUE), ("exposed_comm_us", "exposed communication", VERMILION),
         ("exposed_mem_us", "exposed copies", ORANGE), ("idle_us", "idle", IDLE)]
KIND_COLOURS = {"compute": BLUE, "communication": VERMILION, "memory": ORANGE}
MAX_BARS, MAX_RANKS = 12, 64
RANK_COLOURS = [BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, GREY, "#444444"]


def shortened(text, width=46):
    text = re.sub(r"\s+", " ", str(text))
    return text if len(text) <= width else f"{text[:width - 15]}...{text[-12:]}"


class Analysis:
    """`whole`: a row per rank; `steps`: those of steps; the other tables by name."""

    def __init__(self, folder):
        self.folder = folder
        for name in ("results.csv", "run.json"):
            if not (folder / name).is_file():
                raise NotARun(f"{folder} has no {name}: shardmark-analyze --out DIR writes it")
        self.info = json.loads((folder / "run.json").read_text())
        if self.info.get("program") != "shardmark-analyze":
            raise NotARun(f"{folder} is a run of {self.info.get('program', 'another program')}; "
                          "see scripts/README.md for its plots")
        rows = pd.read_csv(folder / "results.csv", dtype={"window": str})
        self.whole = rows[rows["window"] == self.info["window"]].reset_index(drop=True)
        self.steps = rows[rows["window"].str.startswith("step:")].reset_index(drop=True)
        if self.whole.empty:
            raise NotARun(f"{folder}/results.csv has no rank with device work: nothing to draw")

    def table(self, name):
        path = self.folder / f"{name}.csv"
        return pd.read_csv(path, keep_default_na=False) if path.is_file() else pd.DataFrame()

    def describe(self):
        formats = ", ".join(sorted({rank["format"] for rank in self.info["ranks"]}))
        return (f"{formats}, {len(self.whole)} of {self.info['world_size']} ranks, "
                f"window: {self.info['window']}")

    def footer(self):
        commit = str(self.info.get("commit", "unknown"))[:10]
        return (f"{' '.join(self.info['inputs'])}  |  communication by rule "
                f"{self.info['comm_rule']}  |  shardmark-analyze, commit {commit}")


def draw_bars(axes, labels, parts):
    """Horizontal stacked bars, the first label on top. `parts`: (values, label, colour)."""
    left = np.zeros(len(labels))
    for values, label, colour in parts:
        values = np.asarray(values, float)
        axes.barh(range(len(labels)), values, left=left, color=colour, label=label, height=0.8)
        left += values
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)


def legend_of(axes):
    handles, names = axes.get_legend_handles_labels()
    return dict(zip(names, handles))


def first_ranks(rows):
    """At most MAX_RANKS of them, and a sentence about the others."""
    if len(rows) <= MAX_RANKS:
        return rows, ""
    return rows.head(MAX_RANKS), f" First {MAX_RANKS} of {len(rows)} ranks."


def plot_time_split(run, out):
    rows, note = first_ranks(run.whole)
    figure, axes = plt.subplots(figsize=(9.5, 1.9 + 0.26 * len(rows)))
    draw_bars(axes, [f"rank {rank}" for rank in rows["rank"]],
              [(rows[column] / 1e3, label, colour) for column, label, colour in PARTS])
    axes.set_xlabel("ms")
    shares = [f"{label} {100 * run.whole[column].sum() / run.whole['window_us'].sum():.1f} %"
              for column, label, _ in PARTS]
    plot.save(run, out, figure, "time_split", "Over all ranks: " + ", ".join(shares),
              f"{run.describe()}. Exposed communication runs while no compute kernel does, waiting "
              f"for other ranks included; communication behind compute is not visible here.{note}",
              legend_of(axes))


def plot_steps(run, out):
    steps = run.steps
    if steps.empty or steps["window"].nunique() < 2:
        print("steps: left out, there are not several steps")
        return
    order = list(dict.fromkeys(steps["window"]))
    ranks = sorted(steps["rank"].unique())[:len(RANK_COLOURS)]
    every = -(-len(order) // 12)
    ticks = range(0, len(order), every)
    figure, grid = plt.subplots(1, 2, figsize=(10, 4.6), sharey=True)
    for axes, column, title in zip(grid, ("exposed_comm_pct", "idle_pct"),
                                   ("exposed communication", "idle")):
        for rank, colour in zip(ranks, RANK_COLOURS):
            mine = steps[steps["rank"] == rank]
            axes.plot([order.index(window) for window in mine["window"]], mine[column],
                      color=colour, marker="o", markersize=3, linewidth=1.2, label=f"rank {rank}")
        axes.set_title(title, fontsize=9, loc="left")
        axes.set_xticks(ticks, [order[tick].rsplit("#", 1)[-1] for tick in ticks])
        axes.set_xlabel("step")
        plot.tidy(axes)
    grid[0].set_ylabel("% of the step")
    grid[0].set_ylim(0, None)
    hidden = steps["rank"].nunique() - len(ranks)
    worst = steps.loc[steps["exposed_comm_pct"].idxmax()]
    plot.save(run, out, figure, "steps",
              f"Most exposed communication: {worst['exposed_comm_pct']:.1f} % on rank "
              f"{worst['rank']} in {worst['window'].removeprefix('step:')}",
              f"{run.describe()}." + (f" {hidden} further ranks are not drawn." if hidden else ""),
              legend_of(grid[0]))


def plot_collectives(run, out):
    table = run.table("collectives")
    if table.empty:
        print("collectives: left out, nothing communicates")
        return
    keys = ["kind", "group", "purpose", "dtype", "bytes"]
    table = table.astype({key: str for key in keys})
    rows = table.groupby(keys, as_index=False)[["count", "total_us", "exposed_us"]].sum()
    rows = rows.sort_values("total_us", ascending=False)
    total, exposed = rows["total_us"].sum(), rows["exposed_us"].sum()
    rows = rows.head(MAX_BARS)

    def label(row):
        parts = [row["kind"], row["purpose"] if row["purpose"] != "?" else "",
                 f"group {row['group']}" if row["group"] else "", row["dtype"],
                 f"{float(row['bytes']) / 1e6:.3g} MB" if row["bytes"] else ""]
        calls = "1 call" if row["count"] == 1 else f"{row['count']} calls"
        return shortened(f"{' '.join(part for part in parts if part)}, {calls}")

    figure, axes = plt.subplots(figsize=(10, 1.9 + 0.3 * len(rows)))
    draw_bars(axes, [label(row) for _, row in rows.iterrows()],
              [(rows["exposed_us"] / 1e3, "exposed", VERMILION),
               ((rows["total_us"] - rows["exposed_us"]) / 1e3, "under compute", SKY)])
    axes.set_xlabel("ms, all ranks together")
    plot.save(run, out, figure, "collectives",
              f"{100 * exposed / total if total else 0:.0f} % of the time of all collectives is "
              "exposed", f"{run.describe()}. Durations as recorded, waiting for other ranks "
              "included.", legend_of(axes))


def plot_waits(run, out):
    rows = run.whole.dropna(subset=["wait_us"])
    if rows.empty or rows["wait_us"].sum() + rows["transfer_us"].sum() == 0:
        print("waits: left out, no collective has all of its members' files")
        return
    shown, note = first_ranks(rows)
    figure, axes = plt.subplots(figsize=(9.5, 1.9 + 0.26 * len(shown)))
    draw_bars(axes, [f"rank {rank}" for rank in shown["rank"]],
              [(shown["transfer_us"] / 1e3, "transfer", BLUE),
               (shown["wait_us"] / 1e3, "waiting", VERMILION)])
    axes.set_xlabel("ms in matched collectives")
    share = rows["wait_us"].sum() / (rows["wait_us"].sum() + rows["transfer_us"].sum())
    least = rows.loc[rows["wait_us"].idxmin()]
    plot.save(run, out, figure, "waits",
              f"{100 * share:.0f} % of the time in collectives is waiting; rank {least['rank']} "
              "waits least",
              f"{run.describe()}. Transfer: the shortest duration among the members of each "
              f"collective; waiting: the rest. The rank that waits least comes last.{note}",
              legend_of(axes))


def plot_stages(run, out):
    rows = run.table("stages")
    if rows.empty:
        print("stages: left out, no rank sends or receives for a pipeline")
        return
    rows, note = first_ranks(rows)
    figure, axes = plt.subplots(figsize=(9.5, 1.9 + 0.26 * len(rows)))
    labels = [f"stage {stage}, rank {rank}" for stage, rank in zip(rows["stage"], rows["rank"])]
    draw_bars(axes, labels,
              [(rows[column] / 1e3, label, colour) for column, label, colour in
               (("comp_us", "compute", BLUE), ("collective_us", "exposed collectives", PURPLE),
                ("exposed_mem_us", "exposed copies", ORANGE),
                ("pp_wait_us", "bubble: in messages", VERMILION),
                ("idle_us", "bubble: idle", IDLE))])
    axes.set_xlabel("ms, from the first to the last work of any stage")
    plot.save(run, out, figure, "stages",
              f"The bubble is {100 * rows['bubble_of_total'].mean():.1f} % of the window on "
              "average over stages",
              f"{run.describe()}. Messages are counted with their transfer, which a recording "
              f"cannot tell from waiting.{note}", legend_of(axes))


def plot_kernels(run, out):
    table = run.table("kernels")
    if table.empty:
        print("kernels: left out, there are none")
        return
    rows = table.groupby(["kernel", "kind"], as_index=False)[["count", "total_us"]].sum()
    total = rows["total_us"].sum()
    rows = rows.sort_values("total_us", ascending=False).head(MAX_BARS)
    figure, axes = plt.subplots(figsize=(10.5, 1.9 + 0.3 * len(rows)))
    labels = [shortened(name, 60) for name in rows["kernel"]]
    draw_bars(axes, labels,
              [(np.where(rows["kind"] == kind, rows["total_us"], 0) / 1e3, kind, colour)
               for kind, colour in KIND_COLOURS.items() if (rows["kind"] == kind).any()])
    axes.set_xlabel("ms, all ranks together")
    first = rows.iloc[0]
    plot.save(run, out, figure, "kernels",
              f"{100 * first['total_us'] / total if total else 0:.0f} % of all device work is "
              f"{shortened(first['kernel'], 50)}",
              f"{run.describe()}. Sums of durations: what runs at the same time counts twice.",
              legend_of(axes))


def main():
    plot.draw_runs(__doc__, lambda runs: Analysis(runs[0]),
                   [plot_time_split, plot_steps, plot_collectives, plot_waits, plot_stages,
                    plot_kernels])


if __name__ == "__main__":
    main()
