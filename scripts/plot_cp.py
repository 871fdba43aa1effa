#!/usr/bin/python3
"""Draws the plots of run folders of shardmark-cp.

Usage: scripts/plot_cp.py RUN_DIR... [--out DIR]      (default: the first RUN_DIR/plots)

Reads results.csv, kernels.csv, run.json and the timeline, and writes, as PNG:
  time_split_*   compute, exposed exchange and idle time of an iteration against sequence length,
                 per scheme and degree; one file per shape of heads
  balance        work that the masks leave each rank, over the mean, and the speed-up it allows
  crossover      the fastest scheme for each sequence length and number of KV heads
  ring_pass      Gantt of one iteration of a ring: compute, exchange, and waiting, rank by rank
Only rows with status `ok` are drawn. A plot whose axis has a single value, or that has no rows, is
left out, with a line that says so.
"""

import gzip
import json

import plot
from plot import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, NotARun, np, pd, plt

KIND_COLOURS = {"ring": BLUE, "ulysses": ORANGE, "all-gather": GREEN, "hybrid": PURPLE,
                "none": GREY}
# Columns that tell figures apart besides sequence length, KV heads and the split.
SHAPE = ["op_or_block", "phase", "dtype", "batch", "heads", "head_dim", "causal", "window",
         "seqlens", "launched", "transport", "machine"]
IDLE = "#C8C8C8"


def scheme(row):
    """ring zigzag, overlap"""
    if row["cp"] == 1:
        return "cp 1"
    name = row["cp_kind"]
    if name == "hybrid":
        name += f" {row['ulysses']:g}{' outer' if row['ulysses_outer'] else ''}"
    if row["cp_kind"] != "ulysses":
        name += f" {row['order']}"
    return name + (", overlap" if row["overlap"] else "")


def load(folders):
    """The first run, with the rows of all."""
    runs = [plot.Run(folder) for folder in folders]
    for run in runs:
        if "cp_kind" not in run.rows:
            raise NotARun(f"{run.folder}/results.csv has no column cp_kind: it is not of "
                          "shardmark-cp; plot.py draws those of shardmark-tp")
    first = runs[0]
    first.rows = pd.concat([run.rows for run in runs], ignore_index=True)
    first.rows["ulysses_outer"] = first.rows["ulysses_outer"].astype(str).str.lower() == "true"
    first.rows["seqlens"] = first.rows["seqlens"].fillna("").astype(str)
    first.rows["cp_kind"] = first.rows["cp_kind"].fillna("none")
    first.rows["scheme"] = first.rows.apply(scheme, axis=1)
    # A predicted row has as many ranks as it takes.
    first.rows["launched"] = first.rows["world_size"].where(first.rows["machine"] == "", 0)
    first.left_out = sum(run.left_out for run in runs)
    return first


def with_degrees(rows):
    """Schemes name their degree where there are several."""
    if rows.loc[rows["cp"] > 1, "cp"].nunique() < 2:
        return rows
    degree = rows["cp"].map("cp {:g} ".format).where(rows["cp"] > 1, "")
    return rows.assign(scheme=degree + rows["scheme"])


def describe(row, without=()):
    """attention, step, f32, 16 heads x 128, causal, 2 ranks over mpi"""
    mask = "causal" if str(row["causal"]).lower() == "true" else "full"
    parts = [row["op_or_block"].replace("attention-core", "attention"), row["phase"], row["dtype"],
             f"{row['heads']:g} heads x {row['head_dim']:g}"]
    if "kv_heads" not in without:
        parts.append(f"{row['kv_heads']:g} KV heads")
    parts.append(mask + (f", window {row['window']:g}" if row["window"] else ""))
    if row["seqlens"]:
        parts.append(f"packed {row['seqlens']}")
    return ", ".join(parts + [plot.ranks_of(row)])


def groups(rows, keys):
    """(number, rows) per combination of the keys that differ; the number is 0 if there is one."""
    keys = [key for key in keys if rows[key].nunique() > 1]
    if not keys:
        return [(0, rows)]
    parts = rows.groupby(keys if len(keys) > 1 else keys[0], sort=False)
    return [(i + 1, part) for i, (_, part) in enumerate(parts)]


def plot_time_split(run, out):
    """A group of bars per sequence length, a bar per scheme, divided into where its time went."""
    for number, rows in groups(run.rows, SHAPE + ["kv_heads", "tp", "sp"]):
        name = f"time_split_{number}" if number else "time_split"
        rows = with_degrees(rows)
        schemes = list(dict.fromkeys(rows["scheme"]))
        lengths = sorted(rows["seq"].unique())
        longest_label = 3.4 * max(map(len, schemes))  # points
        figure, axes = plt.subplots(figsize=(max(8.0, 2.2 + 0.34 * len(schemes) * len(lengths)),
                                             5.4 + longest_label / 72))
        width = 0.84 / len(schemes)
        handles, bar_labels = {}, []
        for place, length in enumerate(lengths):
            part = rows[rows["seq"] == length]
            longest = part["window_us"].max()
            for index, label in enumerate(schemes):
                mine = part[part["scheme"] == label]
                if mine.empty:
                    continue
                row, bottom = mine.iloc[-1], 0.0
                x = place + (index - (len(schemes) - 1) / 2) * width
                colour = KIND_COLOURS[row["cp_kind"]]
                for column, text, look in (
                        ("comp_us", "compute", {"color": colour}),
                        ("exposed_comm_us", "exposed exchange", {"color": VERMILION}),
                        ("idle_us", "idle", {"color": IDLE})):
                    share = 100 * row[column] / longest
                    bar = axes.bar(x, share, bottom=bottom, width=0.92 * width, **look)
                    bottom += share
                    if column != "comp_us":
                        handles.setdefault(text, bar)
                    else:
                        handles.setdefault(f"compute: {row['cp_kind']}".replace("none", "one rank"),
                                           bar)
                bar_labels.append((x, label))
                axes.text(x, bottom + 1, f"{row['window_us'] / 1e3:.3g}", ha="center", va="bottom",
                          fontsize=6.5, rotation=90)
        # Schemes stand below their bars, lengths below the schemes.
        axes.xaxis.remove_overlapping_locs = False
        axes.set_xticks(*zip(*bar_labels), minor=True, rotation=90, fontsize=6.5)
        axes.set_xticks(range(len(lengths)), [plot.number(length) for length in lengths])
        axes.tick_params(axis="x", which="minor", length=0)
        axes.tick_params(axis="x", which="major", length=0, pad=6 + longest_label)
        axes.set_xlabel("sequence length, tokens")
        axes.set_ylabel("% of the longest at that length")
        axes.set_ylim(0, 118)
        plot.tidy(axes)
        split = rows[rows["cp"] > 1]
        worst = split.loc[split["exposed_comm_pct"].idxmax()] if len(split) else None
        title = ("One rank only: no exchange" if worst is None else
                 f"Up to {worst['exposed_comm_pct']:.0f} % of an iteration is exposed exchange: "
                 f"{worst['scheme']} at {plot.number(worst['seq'])} tokens")
        plot.save(run, out, figure, name, title,
                  f"{describe(rows.iloc[0])}. One profiled iteration from barrier to barrier, on "
                  "the rank with the most exposed exchange; its length in ms above each bar. "
                  "Exchange behind compute takes no time of its own and is not visible.", handles)


def work_of_ranks(run, row):
    """FLOPs that each rank's kernels executed in the profiled iteration of a row."""
    key = run.key()
    mine = run.kernels[(run.kernels[key].fillna("") == row[key].fillna("")).all(axis=1)]
    return mine.groupby("rank")["flops"].sum()


def plot_balance(run, out):
    rows = run.rows[run.rows["cp"] > 1].sort_values("seq")
    # Of each split the row with the longest sequence.
    rows = rows.drop_duplicates(["cp", "cp_kind", "order"], keep="last")
    rows = rows.sort_values(["cp", "cp_kind", "order"]).reset_index(drop=True)
    if rows.empty:
        print("balance: left out, no row splits a sequence")
        return
    labels = [f"cp {row['cp']:g} {row['cp_kind']}"
              + ("" if row["cp_kind"] == "ulysses" else f" {row['order']}")
              for _, row in rows.iterrows()]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 2.0 + 0.4 * len(rows)), sharey=True)
    places = np.arange(len(rows))
    colours = [KIND_COLOURS[kind] for kind in rows["cp_kind"]]
    left.barh(places, rows["balance"], color=colours, alpha=0.35)
    for place, (_, row) in zip(places, rows.iterrows()):
        ranks = work_of_ranks(run, row) if not run.kernels.empty else pd.Series(dtype=float)
        for rank, share in (ranks / ranks.mean()).items():
            left.plot(share, place, "o", color=colours[place], markersize=9)
            if len(ranks) <= 4:
                left.text(share, place, f"{rank}", color="white", fontsize=6.5, ha="center",
                          va="center")
    left.axvline(1, color="#444444", linewidth=0.8)
    left.set_yticks(places, labels, fontsize=8)
    left.invert_yaxis()
    left.set_xlim(0, 1.15 * max(rows["balance"].max(), 1))
    left.set_xlabel("a rank's work / mean of the ranks")
    bars = right.barh(places, rows["speedup_ceiling"], color=colours)
    right.bar_label(bars, [f"{row['speedup_ceiling']:.2f}x of {row['cp']:g}x"
                           for _, row in rows.iterrows()], fontsize=8, padding=2)
    right.set_xlim(0, 1.3 * rows["speedup_ceiling"].max())
    right.set_xlabel("largest possible speed-up")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    worst = rows["balance"].idxmax()
    title = (f"{labels[worst]}: the busiest rank has {rows['balance'].max():.2f} times the mean"
             if rows["balance"].max() > 1.02 else "Every rank has equally much to do")
    plot.save(run, out, figure, "balance", title,
              "Dots: FLOPs of each rank's kernels in the profiled iteration, over the mean. Bars: "
              "the busiest rank by the pairs that the masks leave. Of each split the longest "
              "sequence. Ceiling: cp / balance, whatever the network does (contiguous and causal: "
              "P x P / (2P - 1)).")


def plot_crossover(run, out):
    """The fastest split scheme per sequence length and KV heads."""
    drawn = False
    for number, rows in groups(run.rows[run.rows["cp"] > 1], SHAPE + ["tp", "sp", "cp"]):
        name = f"crossover_{number}" if number else "crossover"
        lengths, kv_heads = sorted(rows["seq"].unique()), sorted(rows["kv_heads"].unique())
        if len(rows) == 0 or len(lengths) * len(kv_heads) < 2 or rows["cp_kind"].nunique() < 2:
            continue
        drawn = True
        figure, axes = plt.subplots(figsize=(max(6.5, 1.8 + 1.5 * len(lengths)),
                                             2.2 + 0.8 * len(kv_heads)))
        winners = []
        for y, kv in enumerate(kv_heads):
            for x, length in enumerate(lengths):
                cell = rows[(rows["kv_heads"] == kv) & (rows["seq"] == length)]
                if cell.empty:
                    continue
                best = cell.loc[cell["time_us_p50"].idxmin()]
                others = cell[cell["cp_kind"] != best["cp_kind"]]["time_us_p50"]
                ahead = others.min() / best["time_us_p50"] - 1 if len(others) else 0.0
                winners.append(best["cp_kind"])
                axes.add_patch(plt.Rectangle((x - 0.5, y - 0.5), 1, 1, edgecolor="white",
                                             facecolor=KIND_COLOURS[best["cp_kind"]],
                                             alpha=0.35 + 0.6 * min(1, ahead / 0.3)))
                axes.text(x, y, f"{best['scheme'].replace(', overlap', '')}\n"
                                f"{best['time_us_p50'] / 1e3:.3g} ms, {100 * ahead:.0f} % ahead",
                          ha="center", va="center", fontsize=7.5)
        axes.set_xlim(-0.5, len(lengths) - 0.5)
        axes.set_ylim(-0.5, len(kv_heads) - 0.5)
        axes.set_xticks(range(len(lengths)), [plot.number(length) for length in lengths])
        axes.set_yticks(range(len(kv_heads)),
                        [f"{rows['heads'].iloc[0]:g} / {kv:g}" for kv in kv_heads])
        axes.set_xlabel("sequence length, tokens")
        axes.set_ylabel("heads / KV heads")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
        counts = pd.Series(winners).value_counts()
        plot.save(run, out, figure, name,
                  "Fastest: " + ", ".join(f"{kind} in {count} of {len(winners)} shapes"
                                          for kind, count in counts.items()),
                  f"{describe(rows.iloc[0], without=('kv_heads',))}, cp {rows['cp'].iloc[0]:g}. "
                  "Median time of the best variant of each kind; the paler a cell, the closer the "
                  "next kind.")
    if not drawn:
        print("crossover: left out, it takes two kinds and several sequence lengths or KV heads")


def read_trace(folder):
    for name in ("trace.json.gz", "trace.json"):
        if (folder / name).is_file():
            opened = gzip.open if name.endswith("gz") else open
            with opened(folder / name, "rt") as file:
                return json.load(file)["traceEvents"]
    return []


def ring_window(events):
    """(title, begin, end) of the longest profiled iteration of a ring with two ranks or more."""
    windows = [(event["dur"], event["name"], event["ts"]) for event in events
               if event.get("cat") == "user_annotation" and event["name"].startswith("row ")
               and " ring " in event["name"] and event["pid"] == 0]
    if not windows:
        return None
    zigzag = [window for window in windows if "zigzag" in window[1]] or windows
    duration, title, begin = max(zigzag)
    return title, begin, begin + duration


def plot_ring_pass(run, out):
    events = read_trace(run.folder)
    window = ring_window(events)
    if window is None:
        print("ring_pass: left out, the timeline has no row of a ring")
        return
    title, begin, end = window
    kernels = [event for event in events
               if event.get("cat") == "kernel" and begin <= event["ts"] < end]
    ranks = sorted({event["pid"] for event in kernels})
    figure, axes = plt.subplots(figsize=(11, 1.9 + 0.85 * len(ranks)))
    looks = {"attention": (BLUE, "attention forward"), "attention_bwd": (SKY, "attention backward"),
             "send_recv": (VERMILION, "exchange")}
    handles, hidden, exchange = {}, 0.0, 0.0
    for y, rank in enumerate(ranks):
        compute = [(e["ts"], e["ts"] + e["dur"]) for e in kernels
                   if e["pid"] == rank and e["args"]["op"] != "send_recv"]
        for event in (e for e in kernels if e["pid"] == rank):
            colour, label = looks.get(event["args"]["op"], (GREY, "copies and sums"))
            is_exchange = event["args"]["op"] == "send_recv"
            bar = axes.barh(y + (0.22 if is_exchange else -0.22), event["dur"] / 1e3,
                            left=(event["ts"] - begin) / 1e3, height=0.4, color=colour,
                            edgecolor="white", linewidth=0.3)
            handles.setdefault(label, bar)
            if is_exchange:
                exchange += event["dur"]
                hidden += sum(max(0.0, min(stop, event["ts"] + event["dur"])
                                  - max(start, event["ts"])) for start, stop in compute)
                step = event["args"]["path"].rsplit("/", 1)[-1]
                if step.startswith("step") and event["dur"] > 0.02 * (end - begin):
                    axes.text((event["ts"] + event["dur"] / 2 - begin) / 1e3, y + 0.22, step,
                              ha="center", va="center", fontsize=6.5, color="white")
    axes.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in ranks])
    axes.invert_yaxis()
    axes.set_xlim(0, (end - begin) / 1e3)
    axes.set_xlabel("time in the iteration, ms")
    axes.spines[["top", "right"]].set_visible(False)
    share = 100 * hidden / exchange if exchange else 0.0
    plot.save(run, out, figure, "ring_pass",
              f"{share:.0f} % of the exchange runs while its rank computes",
              f"{title.split(': ', 1)[1]}. One profiled iteration. Above: what the rank computes; "
              "below: its messages, waiting for the peer included, named by the step of the ring.",
              handles)


if __name__ == "__main__":
    plot.draw_runs(__doc__, load, [plot_time_split, plot_balance, plot_ring_pass, plot_crossover],
                   num_runs="+")
