#!/usr/bin/python3
"""Draws the plots of a run folder of shardmark-pp.

Usage: scripts/plot_pp.py RUN_DIR [--out DIR]      (default: RUN_DIR/plots)

Reads results.csv, run.json and the timeline (columns: results/README.md), and writes, as PNG:
  gantt_*        every action of one profiled iteration, rank by rank, a panel per schedule; one
                 file per number of ranks
  bubble_*       the measured bubble against the number of micro-batches, beside the replay of the
                 same op times and the formula
  pipeline_split where the window goes: F, B, I, W, exposed communication, waiting, drain
  stages_*       what each stage computes for a micro-batch, per split of the blocks
  ttft_*, time_per_token_*   rows of --mode infer: time to the first token and time per token
                 against pp and tp, tokens per second against the requests at once
Only rows with status `ok` are drawn. A plot whose axis has a single value, or that has no rows, is
left out, with a line that says so.
"""

import gzip
import json
import re

import plot
from plot import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, NotARun, np, pd, plt

ACTION = re.compile(r"^(\d+)(F|B|I|W)(\d+)$")
ACT_COLOURS = {"F": BLUE, "B": ORANGE, "I": SKY, "W": GREEN}
ACT_NAMES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
SCHEDULE_LOOKS = {"gpipe": (GREY, "o"), "1f1b": (BLUE, "s"), "interleaved": (SKY, "D"),
                  "zb-h1": (GREEN, "^"), "zb-h2": (ORANGE, "v"), "zb-v": (VERMILION, "<"),
                  "v-half": (PURPLE, ">"), "v-min": ("#6A3D9A", "p"),
                  "dualpipe": ("#B15928", "*"), "dualpipe-v": ("#444444", "X")}
# Columns that tell figures apart.
SHAPE = ["model", "dtype", "batch", "seq", "hidden", "heads", "layers", "own_vocab", "tp", "sp",
         "dp", "recompute", "tied_embeddings", "launched", "transport", "machine"]
PARTS = [("pp_forward_us", "forward", BLUE), ("pp_backward_us", "backward", ORANGE),
         ("pp_input_us", "input gradient", SKY), ("pp_weight_us", "weight gradient", GREEN),
         ("pp_other_us", "other compute", "#444444"),
         ("pp_collective_us", "exposed collectives", PURPLE),
         ("pp_exposed_transfer_us", "exposed transfer", VERMILION),
         ("pp_wait_us", "waiting to receive", "#C8C8C8"),
         ("pp_blocked_us", "waiting to send", "#A8A8A8"),
         ("pp_start_us", "start", "#8FB8B8"), ("pp_drain_us", "drain", "#E4E4E4"),
         ("pp_unexplained_us", "unexplained", "#F0D000")]
MAX_PANELS = 10


def infers(rows):
    """Which rows are of --mode infer; earlier files have no such column."""
    return rows["mode"] == "infer" if "mode" in rows else pd.Series(False, index=rows.index)


def with_keys(rows):
    """With what of the vocabulary and of the ranks is no consequence of tp and pp: a model's
    vocabulary is padded for each tp, and a predicted row has as many ranks as it takes."""
    measured = rows["machine"] == "" if "machine" in rows else True
    return rows.assign(own_vocab=rows["vocab"].where(rows["model"] == "", 0),
                       launched=rows["world_size"].where(measured, 0))


class PipelineRun(plot.Run):
    """`rows` of training and `inference`; `timed`: the rows of the timeline, in its order, those
    that failed a check included."""

    def __init__(self, folder):
        super().__init__(folder)
        if "bubble_of_total" not in self.rows:
            raise NotARun(f"{folder}/results.csv has no column bubble_of_total: it is not of "
                          "shardmark-pp; plot.py draws those of shardmark-tp")
        self.rows = with_keys(self.rows)
        rows = with_keys(plot.with_flags(pd.read_csv(folder / "results.csv")))
        self.timed = rows[rows["time_us_p50"].notna()].reset_index(drop=True)
        self.inference = self.rows[infers(self.rows)]
        self.rows = self.rows[~infers(self.rows)]


def describe(row):
    """8 layers, hidden 1024, seq 512, batch 1, f32, 2 ranks over mpi"""
    model = row["model"] if "model" in row and row["model"] else f"{row['layers']:g} layers"
    parts = [model, f"hidden {row['hidden']:g}", f"seq {row['seq']:g}", f"batch {row['batch']:g}",
             row["dtype"]]
    parts += [f"{axis} {row[axis]:g}" for axis in ("tp", "dp") if axis in row and row[axis] > 1]
    parts += [text for flag, text in (("sp", "sp"), ("tied_embeddings", "tied")) if row.get(flag)]
    return ", ".join(parts + [plot.ranks_of(row)])


def label_of(row):
    """interleaved x2 pp 2 m 8 recompute full"""
    chunks = f" x{row['vpp']:g}" if row.get("vpp", 1) > 1 else ""
    again = row.get("recompute", "none")
    return (f"{row['schedule']}{chunks} pp {row['pp']:g} m {row['microbatches']:g}"
            + ("" if again == "none" else f" recompute {again}"))


def look_of(schedule):
    return SCHEDULE_LOOKS.get(schedule, ("#000000", "P"))


def groups(rows, keys):
    """(suffix, rows) per combination of the keys that differ; no suffix if there is one."""
    keys = [key for key in keys if key in rows and rows[key].nunique() > 1]
    if not keys:
        return [("", rows)]
    parts = rows.groupby(keys if len(keys) > 1 else keys[0], sort=False)
    return [(f"_{i + 1}", part) for i, (_, part) in enumerate(parts)]


def from_zero(axes):
    """The y axis begins at 0 and ends above the highest point."""
    top = axes.dataLim.y1
    axes.set_ylim(0, 1.08 * top if np.isfinite(top) else 1)


def values_of(text):
    """"1.5+2+3" as numbers."""
    return [float(value) for value in str(text).split("+")]


def read_trace(folder):
    for name in ("trace.json.gz", "trace.json"):
        if (folder / name).is_file():
            opened = gzip.open if name.endswith("gz") else open
            with opened(folder / name, "rt") as file:
                return json.load(file)["traceEvents"]
    return []


def windows_of(events):
    """(begin, end) of the profiled iteration of each row of the timeline, in microseconds."""
    windows = {}
    for event in events:
        if event.get("cat") != "user_annotation" or not event["name"].startswith("ProfilerStep#"):
            continue
        row = int(event["name"].split("#")[1])
        begin, end = windows.get(row, (float("inf"), 0.0))
        windows[row] = (min(begin, event["ts"]), max(end, event["ts"] + event["dur"]))
    return windows


def actions_of(kernels):
    """{(rank, stage, act, micro): (begin, end)} from the paths of compute kernels."""
    spans = {}
    for event in kernels:
        if event["args"]["op"] == "send_recv":
            continue
        for name in event["args"]["path"].split("/"):
            found = ACTION.match(name)
            if found:
                key = (event["pid"], int(found[1]), found[2], int(found[3]))
                begin, end = spans.get(key, (float("inf"), 0.0))
                spans[key] = (min(begin, event["ts"]), max(end, event["ts"] + event["dur"]))
                break
    return spans


def shaded(colour, chunk):
    """Later chunks of a rank are darker."""
    rgb = np.array([int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)])
    return tuple(rgb * 0.72 ** chunk)


def draw_gantt(axes, spans, begin, end, handles):
    ranks = sorted({key[0] for key in spans})
    stages = {rank: sorted({key[1] for key in spans if key[0] == rank}) for rank in ranks}
    for (rank, stage, act, micro), (start, stop) in spans.items():
        colour = shaded(ACT_COLOURS[act], stages[rank].index(stage))
        bar = axes.barh(ranks.index(rank), (stop - start) / 1e3, left=(start - begin) / 1e3,
                        height=0.82, color=colour, edgecolor="white", linewidth=0.4)
        handles.setdefault(ACT_NAMES[act], bar)
        if stop - start > 0.012 * (end - begin):
            axes.text(((start + stop) / 2 - begin) / 1e3, ranks.index(rank), micro, ha="center",
                      va="center", fontsize=6.5, color="white")
    axes.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in ranks], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, (end - begin) / 1e3)
    axes.spines[["top", "right"]].set_visible(False)


def plot_gantt(run, out):
    """Of each schedule the row with the fewest micro-batches that make its steady state visible."""
    events = read_trace(run.folder)
    windows = windows_of(events)
    if not windows:
        print("gantt: left out, the folder has no timeline")
        return
    timed = run.timed[run.timed.index.isin(list(windows)) & (run.timed["status"] == "ok")
                      & ~infers(run.timed)]
    if timed.empty:
        print("gantt: left out, no row has a schedule")
        return
    for suffix, rows in groups(timed, SHAPE + ["pp"]):
        rows = rows.sort_values("microbatches").drop_duplicates(["schedule", "vpp"], keep="last")
        rows = rows.sort_index().head(MAX_PANELS)
        heights = [0.55 + 0.24 * row["pp"] * row.get("tp", 1) * row.get("dp", 1)
                   for _, row in rows.iterrows()]
        figure, panels = plt.subplots(len(rows), 1, squeeze=False, height_ratios=heights,
                                      figsize=(12, 1.6 + 1.25 * sum(heights)))
        handles = {}
        for axes, (number, row) in zip(panels[:, 0], rows.iterrows()):
            begin, end = windows[number]
            kernels = [event for event in events if event.get("cat") == "kernel"
                       and begin <= event["ts"] < end]
            draw_gantt(axes, actions_of(kernels), begin, end, handles)
            axes.set_title(f"{label_of(row)}: bubble {100 * row['bubble_of_total']:.1f} % of the "
                           f"window, theory {100 * row['bubble_theory_of_total']:.1f} %",
                           fontsize=8.5, loc="left")
        panels[-1, 0].set_xlabel("time in the iteration, ms")
        best = rows.loc[rows["bubble_of_total"].idxmin()]
        plot.save(run, out, figure, f"gantt{suffix}",
                  f"Smallest bubble: {label_of(best)}, {100 * best['bubble_of_total']:.1f} % of the "
                  "window",
                  f"{describe(rows.iloc[0])}. One profiled iteration from barrier to barrier, the "
                  "one with the median window; numbers are micro-batches, darker is a later chunk "
                  "of a rank. The bubbles are medians over iterations.", handles)


def formula(schedule, p, v, m):
    """Bubble of the window at F = I = W and no communication (METRICS: pipeline bubble)."""
    units = {"gpipe": 3 * (p - 1), "1f1b": 3 * (p - 1), "interleaved": 3 * (p - 1) / v,
             "zb-h1": p - 1, "zb-h2": p - 1, "zb-v": (p - 1) / 2}.get(schedule)
    return None if units is None else units / (units + 3 * m)


def plot_bubble(run, out):
    drawn = False
    for suffix, rows in groups(run.rows, SHAPE + ["pp", "balance"]):
        if rows["microbatches"].nunique() < 2:
            continue
        drawn = True
        figure, axes = plt.subplots(figsize=(8.5, 5.4))
        handles, lines = {}, {}
        variants = ["schedule"] + [key for key in ("vpp", "p2p") if key in rows]
        for key, part in rows.groupby(variants, sort=False):
            part = part.sort_values("microbatches")
            schedule, micro = key[0], part["microbatches"]
            colour, marker = look_of(schedule)
            name = label_of(part.iloc[0]).split(" pp ")[0]
            if "p2p" in rows and rows["p2p"].nunique() > 1:
                name += f" {part['p2p'].iloc[0]}"
            line, = axes.plot(micro, 100 * part["bubble_of_total"], color=colour, marker=marker,
                              markersize=6)
            handles[name] = line
            theory, = axes.plot(micro, 100 * part["bubble_theory_of_total"], color=colour,
                                linestyle="--", linewidth=1)
            lines["replay of the same op times"] = theory
            p, v = part["pp"].iloc[0], max(1, part["vpp"].iloc[0] if "vpp" in part else 1)
            if formula(schedule, p, v, 1) is not None:
                many = np.geomspace(micro.min(), micro.max(), 50)
                drawn_formula, = axes.plot(many, [100 * formula(schedule, p, v, m) for m in many],
                                           color=colour, linestyle=":", linewidth=1)
                lines["formula at equal times of F, I and W"] = drawn_formula
        axes.set_xscale("log", base=2)
        ticks = sorted(rows["microbatches"].unique())
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        from_zero(axes)
        axes.set_xlabel("micro-batches")
        axes.set_ylabel("bubble, % of the window")
        plot.tidy(axes)
        off = 100 * (rows["bubble_of_total"] - rows["bubble_theory_of_total"])
        plot.save(run, out, figure, f"bubble{suffix}",
                  f"Measured bubbles are {off.median():+.1f} points off theory (largest "
                  f"{off.loc[off.abs().idxmax()]:+.1f})",
                  f"{describe(rows.iloc[0])}, pp {rows['pp'].iloc[0]:g}. Window common to all "
                  "ranks, without compute, own exposed transfer and exposed collectives; mean over "
                  "ranks, median over iterations.", handles | lines)
    if not drawn:
        print("bubble: left out, all rows have the same number of micro-batches")


def plot_pipeline_split(run, out):
    if run.rows.empty:
        print("pipeline_split: left out, no row has a schedule")
        return
    for suffix, rows in groups(run.rows, SHAPE):
        rows = rows.head(32)
        figure, axes = plt.subplots(figsize=(10.5, 1.8 + 0.32 * len(rows)))
        places, left, handles = np.arange(len(rows)), np.zeros(len(rows)), {}
        for column, name, colour in PARTS:
            share = 100 * (rows[column] / rows["pp_window_us"]).to_numpy().clip(min=0)
            if share.max() < 0.05:
                continue
            handles[name] = axes.barh(places, share, left=left, color=colour, height=0.8)
            left += share
        several = rows["balance"].nunique() > 1
        axes.set_yticks(places, [label_of(row) + (f" blocks {row['split']}" if several else "")
                                 for _, row in rows.iterrows()], fontsize=7.5)
        for place, (_, row) in zip(places, rows.iterrows()):
            axes.text(104, place, f"{row['pp_window_us'] / 1e3:.3g} ms", va="center", fontsize=7)
        axes.invert_yaxis()
        axes.set_xlim(0, 112)
        axes.set_xlabel("% of the window")
        axes.spines[["top", "right"]].set_visible(False)
        worst = rows.loc[rows["bubble_of_total"].idxmax()]
        plot.save(run, out, figure, f"pipeline_split{suffix}",
                  f"Largest bubble: {label_of(worst)}, {100 * worst['bubble_of_total']:.0f} % of "
                  "the window",
                  f"{describe(rows.iloc[0])}. Mean over ranks, median over iterations of each "
                  "part.", handles)


def plot_stages(run, out):
    """A bar per stage, a panel per split."""
    drawn = False
    for suffix, rows in groups(run.rows, SHAPE + ["schedule", "pp", "vpp"]):
        rows = rows.sort_values("microbatches").drop_duplicates("split", keep="last").sort_index()
        rows = rows.head(MAX_PANELS)
        if len(rows) < 2:
            continue
        drawn = True
        figure, panels = plt.subplots(1, len(rows), squeeze=False, sharey=True,
                                      figsize=(2.2 + 2.9 * len(rows), 4.6))
        handles, uneven = {}, []
        for axes, (_, row) in zip(panels[0], rows.iterrows()):
            forward, backward = (np.array(values_of(row[f"stage_{part}_us"])) / 1e3
                                 for part in ("forward", "backward"))
            stages = np.arange(len(forward))
            handles["forward"] = axes.bar(stages, forward, color=BLUE)
            handles["backward"] = axes.bar(stages, backward, bottom=forward, color=ORANGE)
            total = forward + backward
            uneven.append((total.max() / total.mean(), row["split"]))
            axes.axhline(total.mean(), color="#444444", linewidth=0.8)
            axes.set_title(f"{row['split']} blocks: slowest {total.max() / total.mean():.2f}x mean",
                           fontsize=8.5)
            axes.set_xticks(stages)
            axes.set_xlabel("stage")
            plot.tidy(axes)
        panels[0, 0].set_ylabel("compute of a micro-batch, ms")
        best, worst = min(uneven), max(uneven)
        plot.save(run, out, figure, f"stages{suffix}",
                  f"Slowest stage over the mean: {best[0]:.2f} with {best[1]} blocks, "
                  f"{worst[0]:.2f} with {worst[1]}",
                  f"{describe(rows.iloc[0])}, {label_of(rows.iloc[0])}. Median over iterations; the "
                  "line is the mean over stages.", handles)
    if not drawn:
        print("stages: left out, no schedule has rows of two splits")


STEPS = {"prefill": ("ttft_us", "ttft", "time to the first token"),
         "decode": ("time_per_token_us", "time_per_token", "time per token")}
DEGREES = {"pp": ("tp", BLUE), "tp": ("pp", VERMILION)}  # the other degree is 1
LINES = ["-", "--", ":", "-."]


def fastest(rows, keys, column):
    """{key: the smallest value}, over splits into stages."""
    return rows.groupby(keys)[column].min()


def inference_title(rows, column, name):
    """What a single request (or the fewest) gains from tp over pp on the most ranks."""
    few = rows[rows["microbatches"] == rows["microbatches"].min()]
    for ranks in sorted((few["pp"] * few["tp"]).unique(), reverse=True):
        pp, tp = (few[(few[axis] == ranks) & (few[other] == 1)][column].min()
                  for axis, (other, _) in DEGREES.items())
        if ranks > 1 and pp > 0 and tp > 0:
            number = few["microbatches"].iloc[0]
            return (f"{name.capitalize()}: {tp / 1e3:.3g} ms at tp {ranks}, {pp / 1e3:.3g} ms at "
                    f"pp {ranks}, with {number} request{'' if number == 1 else 's'}")
    return f"{name.capitalize()} against pp and tp"


def draw_latency(axes, rows, column, handles):
    for axis, (other, colour) in DEGREES.items():
        line = fastest(rows[rows[other] == 1], ["microbatches", axis], column) / 1e3
        for number, requests in enumerate(sorted(rows["microbatches"].unique())):
            if requests not in line.index.get_level_values(0):
                continue
            points = line[requests]
            label = f"{axis}, {requests} request{'' if requests == 1 else 's'}"
            handles[label], = axes.plot(points.index, points.values, color=colour, marker="o",
                                        linestyle=LINES[number % len(LINES)], markersize=5)
    axes.set_xticks(sorted(set(rows["pp"]) | set(rows["tp"])))
    axes.margins(x=0.15)
    axes.set_xlabel("pp or tp, the other is 1")
    from_zero(axes)
    plot.tidy(axes)


def draw_throughput(axes, rows):
    for (pp, tp), part in rows.groupby(["pp", "tp"]):
        best = part.groupby("microbatches")["tokens_per_s"].max()
        colour = GREY if pp == tp else BLUE if pp > tp else VERMILION
        axes.plot(best.index, best.values, color=colour, marker="s", markersize=5)
        axes.annotate(f"pp {pp} tp {tp}", (best.index[-1], best.values[-1]), fontsize=7.5,
                      xytext=(5, 0), textcoords="offset points", va="center")
    axes.set_xscale("log", base=2)
    ticks = sorted(rows["microbatches"].unique())
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.margins(x=0.15)
    axes.set_xlabel("requests at once")
    axes.set_ylabel("tokens/s, all requests")
    from_zero(axes)
    plot.tidy(axes)


def plot_inference(run, out):
    if run.inference.empty:
        print("inference: left out, no row is of --mode infer")
        return
    for step, (column, file_name, name) in STEPS.items():
        of_step = run.inference[run.inference["step"] == step]
        if of_step.empty:
            continue
        for suffix, rows in groups(of_step, [key for key in SHAPE if key != "tp"] + ["tokens"]):
            figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.9))
            handles = {}
            draw_latency(left, rows, column, handles)
            left.set_ylabel(f"{name}, ms")
            draw_throughput(right, rows)
            first = rows.iloc[0].copy()
            first["tp"] = 1  # varies
            plot.save(run, out, figure, f"{file_name}{suffix}",
                      inference_title(rows, column, name),
                      f"{describe(first)}, {step}. {'' if first.get('machine') else 'Medians. '}"
                      "Requests take turns. Tokens/s count "
                      + ("prompts." if step == "prefill" else "new ones."), handles)


if __name__ == "__main__":
    plot.draw_runs(__doc__, lambda runs: PipelineRun(runs[0]),
                   [plot_gantt, plot_bubble, plot_pipeline_split, plot_stages, plot_inference])
