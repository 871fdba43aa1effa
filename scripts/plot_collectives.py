#!/usr/bin/python3
"""Draws the plots of run folders of shardmark-collectives.

Usage: scripts/plot_collectives.py RUN_DIR... [--imported CSV] [--out DIR]
       scripts/plot_collectives.py --imported CSV [--out DIR]
       (default: the first RUN_DIR/plots, or plots beside the CSV)

Reads results.csv and run.json, and imported.csv as `--import` writes it, and writes, as PNG:
  time_and_busbw_*   time and bus bandwidth against size, a line per algorithm: where the fastest
                     one changes, what the fit expects, results of other programs beside
  wait_transfer_*    how much of a call is waiting for the last rank, how much moving bytes
  contention_*       all groups at once over one group alone (runs with --groups)
  imported_*         time and bus bandwidth against size of the other programs' runs alone
One file per collective; per type, group size and so on where those differ between the rows. Only
rows with status `ok` are drawn.
"""

import argparse
import sys
from pathlib import Path


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN_DIR")
    parser.add_argument("--imported", type=Path, metavar="CSV",
                        help="imported.csv of shardmark-collectives --import LOG --out DIR: drawn "
                        "alone, and beside the runs where collective, type and place are equal")
    parser.add_argument("--out", type=Path, metavar="DIR")
    options = parser.parse_args()
    if not options.runs and options.imported is None:
        parser.error("nothing to draw; give a run folder, or --imported CSV")
    return options


# Before the imports that follow: --help needs none of them.
OPTIONS = parse_options() if __name__ == "__main__" else None

import plot
from plot import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, NotARun, np, pd, plt

# Columns that tell one figure from the next; those with a single value are not in its name.
FIGURE_KEYS = ["op_or_block", "pattern", "dtype", "reduction", "root", "transport", "world_size",
               "group_size", "in_place"]
ALGORITHM_COLOURS = [BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, "#000000", "#9A6A3A", "#5A5A9A"]
MAX_BANDS = 3  # algorithms; more bands hide the lines
MARKERS = "os^Dv<>ph"
# Names of element types in logs of others.
DTYPES = {"float": "f32", "double": "f64", "half": "f16", "bfloat16": "bf16", "int8": "i8",
          "int32": "i32"}


def size_text(value):
    """65536 as 64K: sizes are base 2."""
    for unit, name in ((2**30, "G"), (2**20, "M"), (2**10, "K")):
        if value >= unit and value % unit == 0:
            return f"{value / unit:g}{name}"
    return f"{value:g}"


def time_text(value):
    return f"{value / 1e3:.3g} ms" if value >= 1e3 else f"{value:.3g} µs"


def load(folders):
    """The first run, with the rows of all."""
    runs = [plot.Run(folder) for folder in folders]
    for run in runs:
        if "size_bytes" not in run.rows or "algorithm" not in run.rows:
            raise NotARun(f"{run.folder}/results.csv has no column size_bytes or algorithm: it is "
                          "not of shardmark-collectives; plot.py draws those of shardmark-tp")
    first = runs[0]
    first.rows = pd.concat([run.rows for run in runs], ignore_index=True)
    for column in {"pattern", "reduction"} & set(first.rows):
        first.rows[column] = first.rows[column].fillna("none")
    first.left_out = sum(run.left_out for run in runs)
    return first


def load_imported(path):
    if path is None:
        return pd.DataFrame()
    if not path.is_file():
        raise NotARun(f"{path} is not a file; shardmark-collectives --import LOG --out DIR writes "
                      "DIR/imported.csv")
    try:
        table = pd.read_csv(path, keep_default_na=False, na_values=[""])
    except ValueError as problem:
        raise NotARun(f"{path} is not a table: {problem}") from problem
    missing = {"tool", "file", "run", "collective", "bytes", "dtype", "in_place", "ranks",
               "time_us", "busbw_GBps"} - set(table)
    if missing:
        raise NotARun(f"{path} has no column {', '.join(sorted(missing))}: give the imported.csv "
                      "that shardmark-collectives --import LOG --out DIR writes")
    without = int((table["time_us"].isna()).sum())
    if without:
        print(f"{path}: {without} rows without a time are left out")
    table["in_place"] = table["in_place"].astype(str).str.lower() == "true"
    return table


class ImportedRuns:
    """What `plot.save` wants to know of them."""

    def __init__(self, table):
        self.files = [Path(str(name)).name for name in dict.fromkeys(table["file"])]

    def footer(self):
        more = f" and {len(self.files) - 6} more" if len(self.files) > 6 else ""
        return "imported from " + ", ".join(self.files[:6]) + more


def figures(run):
    """(name, description, rows) per figure, algorithms in order of appearance."""
    keys = [key for key in FIGURE_KEYS if key in run.rows]
    differ = {collective: [key for key in keys if rows[key].nunique() > 1]
              for collective, rows in run.rows.groupby("op_or_block")}
    for values, rows in run.rows.groupby(keys, sort=False, dropna=False):
        row = dict(zip(keys, values))
        names = {"dtype": str(row.get("dtype")), "group_size": f"n{row.get('group_size')}",
                 "world_size": f"w{row.get('world_size')}", "root": f"root{row.get('root')}",
                 "in_place": "in_place" if row.get("in_place") else "out_of_place"}
        name = "_".join([row["op_or_block"]] + [names.get(key, str(row[key]))
                                                for key in differ[row["op_or_block"]]])
        parts = [row["op_or_block"].replace("_", "-"), str(row["dtype"])]
        if row.get("pattern", "none") not in ("none", "ring"):
            parts.append(str(row["pattern"]))
        if row.get("reduction", "none") != "none":
            parts.append(str(row["reduction"]))
        parts.append(f"{row['group_size']} of {row['world_size']} ranks"
                     if row["group_size"] != row["world_size"] else f"{row['group_size']} ranks")
        parts += [str(row["transport"]), "in place" if row["in_place"] else "out of place"]
        yield name, ", ".join(parts), row, rows


def styles(run):
    names = list(dict.fromkeys(run.rows["algorithm"]))
    names.sort(key=lambda name: name != "native")
    return {name: (ALGORITHM_COLOURS[i % len(ALGORITHM_COLOURS)], MARKERS[i % len(MARKERS)])
            for i, name in enumerate(names)}


def line_of(rows, column):
    return rows.groupby("size_bytes")[column].median().dropna()


def crossovers(rows):
    """(size, slower after it, faster after it): where the fastest algorithm changes, on lines that
    are straight between the points in log-log. `auto` is one of the others."""
    table = rows[rows["algorithm"] != "auto"].pivot_table(index="size_bytes", columns="algorithm",
                                                          values="time_us_p50", aggfunc="median")
    table = table.dropna(axis=1)
    if table.shape[1] < 2 or (table <= 0).any(axis=None):
        return []
    best, found = table.idxmin(axis=1), []
    for (low, before), (high, after) in zip(best.items(), list(best.items())[1:]):
        if before == after:
            continue
        left = np.log(table.at[low, after] / table.at[low, before])
        right = np.log(table.at[high, after] / table.at[high, before])
        share = left / (left - right) if left != right else 0.5
        found.append((np.exp(np.log(low) + share * np.log(high / low)), before, after))
    return found


def headline(description, rows):
    table = rows.pivot_table(index="size_bytes", columns="algorithm", values="time_us_p50",
                             aggfunc="median")
    small, large = table.index.min(), table.index.max()
    best = rows.loc[rows["busbw_GBps"].idxmax()]
    collective = description.split(",")[0]
    if table.shape[1] == 1:
        return (f"{collective}: {time_text(table.loc[small].min())} at {size_text(small)} bytes, up "
                f"to {best['busbw_GBps']:.3g} GB/s at {size_text(best['size_bytes'])}")
    first, last = table.loc[small].idxmin(), table.loc[large].idxmin()
    if first == last:
        return (f"{collective}: {first} is fastest at both ends, {best['busbw_GBps']:.3g} GB/s at "
                "best")
    return (f"{collective}: {first} is fastest at {size_text(small)} bytes, {last} at "
            f"{size_text(large)}")


def runs_of(table):
    """(label, file, run, rows) per run of another program."""
    for (tool, file, run), rows in table.groupby(["tool", "file", "run"], sort=False):
        ranks = rows["ranks"].dropna()
        who = f", {ranks.iloc[0]:g} ranks" if len(ranks) else ""
        yield f"{tool}: {Path(str(file)).stem[:28]} run {run}{who}", file, run, rows


def matching_imports(imported, row):
    """Runs of others with the same collective, placement and type, where the log names them."""
    if imported.empty:
        return
    same = imported[(imported["collective"] == row["op_or_block"])
                    & (imported["in_place"] == row["in_place"]) & (imported["bytes"] > 0)]
    for label, file, run, rows in runs_of(same):
        ranks = rows["ranks"].dropna()
        if ranks.empty:
            print(f"{file} run {run}: left out beside ours, its log does not say how many ranks")
            continue
        types = {DTYPES.get(name, name) for name in rows["dtype"].dropna()}
        rows = rows[rows["dtype"].isna() | rows["dtype"].map(DTYPES.get).eq(row["dtype"])
                    | rows["dtype"].astype(str).str.startswith("MPI_")]
        if rows.empty:
            print(f"{file} run {run}: left out beside {row['dtype']}, it has {', '.join(types)}")
            continue
        yield label, rows


def draw_imported(left, right, rows, labels, label, **look):
    for axes, column in ((left, "time_us"), (right, "busbw_GBps")):
        line = rows.groupby("bytes")[column].median().dropna()
        line = line[line > 0]
        if not line.empty:
            labels[label], = axes.plot(line.index, line.values, **look)


def finish_time_axes(left, right, sizes):
    low, high = int(np.floor(np.log2(min(sizes)))), int(np.ceil(np.log2(max(sizes))))
    ticks = [2 ** power for power in range(low, high + 1, max(1, -(-(high - low) // 8)))]
    for axes, label in ((left, "time of a call, µs"), (right, "busbw, GB/s (1e9 B)")):
        axes.set_xscale("log", base=2)
        # A group of one sends nothing: its busbw is 0, and there is no line.
        if any(len(line.get_xdata()) and max(line.get_ydata()) > 0 for line in axes.lines):
            axes.set_yscale("log")
        axes.set_xticks(ticks, [size_text(tick) for tick in ticks])
        axes.set_xlabel("size, bytes (base 2)")
        axes.set_ylabel(label)
        plot.tidy(axes)


def plot_imported(imported, out):
    """A figure per collective, type and place, a line per run of a log."""
    sized = imported[(imported["bytes"] > 0) & imported["time_us"].notna()]
    kinds = sized.assign(dtype=sized["dtype"].map(lambda name: DTYPES.get(name, name)))
    for (collective, dtype, in_place), rows in kinds.groupby(
            ["collective", "dtype", "in_place"], sort=False, dropna=False):
        parts = [str(name) for name in (collective, dtype) if pd.notna(name)]
        if pd.isna(collective):
            parts.insert(0, "unnamed_collective")
        parts.append("in_place" if in_place else "out_of_place")
        name = "imported_" + "_".join(parts)
        if rows["bytes"].nunique() < 2:
            print(f"{name}: left out, a single size")
            continue
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5.4))
        labels = {}
        for index, (label, _, _, part) in enumerate(runs_of(rows)):
            draw_imported(left, right, part, labels, label, markersize=4, linewidth=1.3,
                          color=ALGORITHM_COLOURS[index % len(ALGORITHM_COLOURS)],
                          marker=MARKERS[index % len(MARKERS)])
        finish_time_axes(left, right, rows["bytes"].unique())
        medians = rows.groupby(["tool", "file", "run", "bytes"])["time_us"].median()
        fastest = medians.idxmin()
        plot.save(ImportedRuns(rows), out, figure, name,
                  f"{parts[0].replace('_', '-')}: {time_text(medians.min())} at best, at "
                  f"{size_text(fastest[-1])} bytes",
                  ", ".join(part.replace("_", " ") for part in parts) + ", as the logs have it. "
                  "nccl-tests prints the ranks' average unless its -a says otherwise, OSU the "
                  "average; busbw is the log's own, and has no line where a log has none.", labels)


def plot_time(run, out, imported, style):
    for name, description, row, rows in figures(run):
        rows = rows[rows["size_bytes"] > 0]
        if rows["size_bytes"].nunique() < 2:
            print(f"time_and_busbw_{name}: left out, a single size")
            continue
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 5.4))
        labels, sizes = {}, set(rows["size_bytes"])
        for algorithm, part in rows.groupby("algorithm", sort=False):
            colour, marker = style[algorithm]
            time, rate = line_of(part, "time_us_p50"), line_of(part, "busbw_GBps")
            labels[algorithm], = left.plot(time.index, time.values, color=colour, marker=marker,
                                           markersize=4, linewidth=1.3)
            if rows["algorithm"].nunique() <= MAX_BANDS:
                spread = part.groupby("size_bytes")[["time_us_p10", "time_us_p99"]].median()
                left.fill_between(spread.index, spread["time_us_p10"], spread["time_us_p99"],
                                  color=colour, alpha=0.10, linewidth=0)
            rate = rate[rate > 0]
            right.plot(rate.index, rate.values, color=colour, marker=marker, markersize=4,
                       linewidth=1.3)
            expected = line_of(part, "expected_us") if "expected_us" in part else pd.Series()
            if not expected.empty:
                fit, = left.plot(expected.index, expected.values, color=colour, linewidth=1,
                                 linestyle=":")
                labels.setdefault("fit: latency + bytes / bandwidth", fit)
        for index, (label, theirs) in enumerate(matching_imports(imported, row)):
            look = dict(color=GREY, marker="xd+*1"[index % 5], markersize=5, linestyle="--",
                        linewidth=0.9)
            draw_imported(left, right, theirs, labels, label, **look)
            sizes |= set(theirs["bytes"])
        changes = crossovers(rows)
        for size, before, after in changes:
            for axes in (left, right):
                axes.axvline(size, color="#444444", linewidth=0.8, linestyle=(0, (2, 3)))
            left.annotate(f"{after} from {size_text(2 ** round(np.log2(size)))}", (size, 1),
                          xycoords=("data", "axes fraction"), rotation=90, fontsize=7, va="top",
                          ha="right", color="#444444")
        finish_time_axes(left, right, sizes)
        changes_text = "Dotted uprights: the fastest algorithm changes. " if changes else ""
        bands_text = ("; the band is the 10th to the 99th percentile"
                      if rows["algorithm"].nunique() <= MAX_BANDS else "")
        plot.save(run, out, figure, f"time_and_busbw_{name}", headline(description, rows),
                  f"{description}. Median of the slowest rank{bands_text}. {changes_text}busbw: algbw times the factor of the collective for "
                  "its group size, so that it can be compared with a link.", labels)


def plot_wait_transfer(run, out, style):
    for name, description, _, rows in figures(run):
        if "wait_us" not in rows:
            continue
        rows = rows.dropna(subset=["wait_us", "transfer_us"])
        rows = rows[rows["wait_us"] + rows["transfer_us"] > 0]
        if rows.empty:
            print(f"wait_transfer_{name}: left out, the rows have no arrival stamps")
            continue
        algorithms = list(dict.fromkeys(rows["algorithm"]))[:plot.MAX_PANELS]
        num_columns = min(3, len(algorithms))
        num_rows = -(-len(algorithms) // num_columns)
        figure, grid = plt.subplots(num_rows, num_columns, squeeze=False, sharey=True,
                                    figsize=(max(7.5, 4.2 * num_columns), 1.6 + 2.5 * num_rows))
        for axes, algorithm in zip(grid.flat, algorithms):
            part = rows[rows["algorithm"] == algorithm].groupby("size_bytes")
            part = part[["wait_us", "transfer_us"]].median()
            total = part.sum(axis=1)
            places = np.arange(len(part))
            wait, transfer = (100 * part[c] / total for c in ("wait_us", "transfer_us"))
            axes.bar(places, transfer, color=BLUE, width=0.85, label="moving bytes")
            axes.bar(places, wait, bottom=transfer, color="#C8C8C8", width=0.85,
                     label="waiting for the last rank")
            for place, value in zip(places, total):
                axes.text(place, 3, time_text(value), rotation=90, fontsize=6.5, color="white",
                          ha="center", va="bottom")
            step = max(1, len(part) // 8)
            axes.set_xticks(places[::step], [size_text(s) for s in part.index[::step]], fontsize=8)
            axes.set_title(algorithm, fontsize=9, loc="left")
            axes.set_ylim(0, 100)
            axes.spines[["top", "right"]].set_visible(False)
        for axes in list(grid.flat)[len(algorithms):]:
            axes.axis("off")
        for axes in grid[:, 0]:
            axes.set_ylabel("% of the call", fontsize=9)
        handles, texts = grid.flat[0].get_legend_handles_labels()
        share = (rows["wait_us"] / (rows["wait_us"] + rows["transfer_us"])).max()
        plot.save(run, out, figure, f"wait_transfer_{name}",
                  f"{description.split(',')[0]}: waiting for the last rank is up to "
                  f"{100 * share:.0f} % of a call",
                  f"{description}. Of the rank that waits longest, medians: from its arrival to "
                  "the last rank's, and from there to its end; in each bar their sum. Arrivals are "
                  "stamped on aligned clocks. Horizontal: size in bytes.",
                  dict(zip(texts, handles)))


def plot_contention(run, out, style):
    for name, description, _, rows in figures(run):
        if "contention" not in rows or rows["contention"].isna().all():
            continue
        rows = rows.dropna(subset=["contention"])
        figure, axes = plt.subplots(figsize=(7.5, 4.8))
        labels = {}
        for algorithm, part in rows.groupby("algorithm", sort=False):
            colour, marker = style[algorithm]
            line = line_of(part, "contention")
            labels[algorithm], = axes.plot(line.index, line.values, color=colour, marker=marker,
                                           markersize=4, linewidth=1.3)
        axes.axhline(1, color="#444444", linewidth=0.8)
        axes.set_xscale("log", base=2)
        ticks = sorted(rows["size_bytes"].unique())
        ticks = ticks[::max(1, len(ticks) // 8)]
        axes.set_xticks(ticks, [size_text(tick) for tick in ticks])
        axes.set_xlabel("size, bytes (base 2)")
        axes.set_ylabel("time at once / time alone")
        axes.set_ylim(0, None)
        plot.tidy(axes)
        worst = rows.loc[rows["contention"].idxmax()]
        plot.save(run, out, figure, f"contention_{name}",
                  f"All {worst['num_groups']:g} groups at once take up to {worst['contention']:.2g} "
                  f"times as long as one alone, at {size_text(worst['size_bytes'])} bytes",
                  f"{description}. 1: the groups do not disturb each other.", labels)


def main(options):
    run = load(options.runs) if options.runs else None
    imported = load_imported(options.imported)
    out = options.out or (options.runs[0] if run else options.imported.parent) / "plots"
    out.mkdir(parents=True, exist_ok=True)
    plt.rcParams.update({"font.size": 9, "axes.edgecolor": "#888888"})
    if not imported.empty:
        plot_imported(imported, out)
    if run is None:
        return
    style = styles(run)
    plot_time(run, out, imported, style)
    plot_wait_transfer(run, out, style)
    plot_contention(run, out, style)


if __name__ == "__main__":
    try:
        main(OPTIONS)
    except (NotARun, OSError, KeyError, ValueError) as problem:
        kind = "" if isinstance(problem, (NotARun, OSError)) else "damaged input? "
        print(f"plot_collectives.py: {kind}{problem}", file=sys.stderr)
        sys.exit(2)
