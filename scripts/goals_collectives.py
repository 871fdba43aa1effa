#!/usr/bin/env python3
"""Compares a folder written by scripts/record_collectives with the project's goals.

Usage: scripts/goals_collectives.py results/MACHINE/collectives     prints a Markdown table; exit
code 0 even if a goal is missed: the table says so. Standard library only.
"""

import collections
import csv
import pathlib
import statistics
import sys

from goals import Table, counters

RATE_BYTES_PER_US = 125.0  # 1 Gbit/s
SHAPED_BYTES = 16 << 20


def rows_of(folder):
    path = folder / "results.csv"
    if not path.is_file():
        return []
    with open(path, newline="") as file:
        return [row for row in csv.DictReader(file) if row["status"] == "ok"]


def size_text(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def native(table, out):
    """Per collective the size that is worst against max(3 %, 0.5 us); per size the median of the
    repetitions."""
    repetitions = collections.defaultdict(list)
    for entry in counters(out / "native/native.json"):
        if entry["run_type"] == "iteration":
            size = int(entry["name"].split("bytes:")[1].split("/")[0])
            repetitions[entry["name"].split("/")[1], size].append(entry)
    worst, counting = {}, []
    for (collective, size), entries in repetitions.items():
        extra = statistics.median(
            (entry["submit_us"] - entry["test_loop_us"]) / max(0.03 * entry["test_loop_us"], 0.5)
            for entry in entries)
        if collective not in worst or extra > worst[collective][0]:
            worst[collective] = (extra, size, entries)
        if size == 1 << 20:
            counting += [entry["submit_us"] / entry["test_loop_us"] for entry in entries]
    for collective, (extra, size, entries) in worst.items():
        ours, loop, blocking = (statistics.median(entry[name] for entry in entries)
                                for name in ("submit_us", "test_loop_us", "blocking_us"))
        table.at_most(
            f"native {collective}, 2 ranks, 4 B to 256 MiB: over a loop of the same non-blocking "
            f"call, in units of max(3 %, 0.5 us); worst at {size_text(size)}: {ours:.4g} us against "
            f"{loop:.4g} us (blocking {blocking:.4g} us)", 1, extra, "", "native/native.json")
    table.lines.append("| everything around the call, counting included, at 1 MiB: median of the "
                       f"collectives over the loop, for comparison | | {statistics.median(counting):.4g}"
                       " x | | native/native.json |")
    count_s = next(entry["per_call"] for entry in counters(out / "native/counting.json"))
    shortest_us = min(entry["test_loop_us"] for (_, size), entries in repetitions.items()
                      if size == 1 << 20 for entry in entries)
    table.at_most(f"counting ({1e9 * count_s:.3g} ns a call) over the shortest call of 1 MiB", 1,
                  100 * count_s * 1e6 / shortest_us, "%", "native/counting.json, native.json")


def auto(table, out, name, what):
    """Per point auto over the best of all in the same run, whose own first pass made the table; the
    median of that ratio over the runs."""
    runs = [folder for folder in (out / name, out / f"{name}-2", out / f"{name}-3")
            if folder.is_dir()]
    groups = collections.defaultdict(list)  # per point a dictionary of rows per run
    for folder in runs:
        by_point = collections.defaultdict(dict)
        for row in rows_of(folder):
            by_point[row["op_or_block"], int(row["size_bytes"])][row["algorithm"]] = row
        for point, by_algorithm in by_point.items():
            if len(by_algorithm) > 1 and "auto" in by_algorithm:
                groups[point].append(by_algorithm)
    points = []
    for (collective, size), by_run in groups.items():
        compared = []  # per run: the ratio, what was compared, and the noise that the run states
        for rows in by_run:
            mine, same = rows["auto"], rows[rows["auto"]["chosen"]]
            best = min((row for row in rows.values() if row is not mine), key=time_us)
            noise = max([float(row["time_us_p50_ci_pct"]) / 100 for row in (mine, best)] +
                        [abs(time_us(mine) / time_us(same) - 1)])
            compared.append((time_us(mine) / time_us(best),
                             f"{mine['chosen']} over {best['algorithm']}", noise))
        ratios = [ratio for ratio, _, _ in compared]
        ratio = statistics.median(ratios)
        # How auto differs from the row of the very algorithm that it chose is noise, and so is by
        # how much the runs disagree.
        noise = max(statistics.median(noise for _, _, noise in compared),
                    (max(ratios) - min(ratios)) / 2)
        text = (f"{collective} {size_text(size)}, {ratio:.3g}x (by run " +
                ", ".join(f"{r:.3g} {names}" for r, names, _ in compared) +
                f"), noise {100 * noise:.2g} %")
        points.append((ratio / (1 + max(0.05, noise)), text))
    if not points:
        return
    over, text = max(points)
    table.at_most(f"auto, {what}: over the best of native and all plans in the same run, median of "
                  f"{len(runs)} runs, in units of 1 + max(5 %, noise), worst of {len(points)} points: "
                  f"{text}", 1, over, "x", f"{name}*/results.csv")


def time_us(row):
    return float(row["time_us_p50"])


def copies(table, out):
    rows = rows_of(out / "copy")
    best = min(rows, key=lambda row: float(row["time_us_p50"]))
    table.at_most(f"threads, 2 ranks, all-reduce of 64 MiB out of place ({best['algorithm']}): over "
                  "both ranks copying 64 MiB each at once", 1.1,
                  float(best["time_us_p50"]) / float(best["copy_us"]), "x", "copy/results.csv copy_us")


def link_bytes(out, algorithm):
    """Largest of the hosts' bytes sent and received per call."""
    few, many = (
        {line.split()[0]: [float(n) for n in line.split()[1:]]
         for line in (out / f"links/{algorithm}-{calls}.txt").read_text().splitlines()}
        for calls in (5, 25))
    return max((many[host][way] - few[host][way]) / 20 for host in many for way in (0, 1))


def shaped(table, out):
    times = {row["algorithm"]: float(row["time_us_p50"]) for row in rows_of(out / "shaped-2x2")}
    name = "hierarchical_pipelined"
    if name not in times:
        table.lines.append("| several hosts | | | not measured: no hosts could be made | |")
        return
    what = "two hosts x two ranks, 1 Gbit/s, all-reduce of 16 MiB: "
    links = {algorithm: link_bytes(out, algorithm) for algorithm in times}
    table.at_most(f"{what}bytes over a link each way, {name}, by the link's counters", 1.05,
                  links[name] / SHAPED_BYTES, "S", f"links/{name}-*.txt")
    table.at_most(what + "the same against the plan's (S)", 5,
                  100 * abs(links[name] / SHAPED_BYTES - 1), "%", "links/")
    table.at_most(f"{what}{name}, time over bytes / rate", 1.15,
                  times[name] / (links[name] / RATE_BYTES_PER_US), "x",
                  "shaped-2x2/results.csv time_us_p50")
    table.at_least(f"{what}{name}, speed-up over the flat ring", 1.35, times["ring"] / times[name],
                   "x", "shaped-2x2/results.csv")
    for other in ("hierarchical", "ring", "native"):
        table.lines.append(f"| {what}{other}, for comparison | | {times[other] / 1e3:.4g} ms, "
                           f"{links[other] / SHAPED_BYTES:.4g} S over a link | | shaped-2x2, links |")


def plans(table, out):
    """1,024 ranks: the slowest plan, and the memory of the process that made them all."""
    entries = counters(out / "plans/plans.json")
    seconds = {entry["name"].removeprefix("plan/").split("/ranks")[0]:
               entry["make_s"] + entry["validate_s"] + entry["bind_s"] for entry in entries}
    slowest = max(seconds, key=seconds.get)
    for name in ("all_reduce/ring", slowest):
        table.at_most(f"plan for 1,024 ranks made, validated and turned into ops: {name}", 10,
                      seconds[name], "s", "plans/plans.json")
    peak = max(entry["peak_resident_bytes"] for entry in entries)
    table.at_most(f"the same, all {len(entries)} plans: peak memory of the process", 2,
                  peak / 2**30, "GiB", "plans/plans.json")


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    table = Table()
    native(table, out)
    for name, what in (("threads", "2 ranks (threads)"), ("mpi", "2 ranks (mpi)"),
                       ("hosts-2x1", "2 hosts x 1 rank")):
        auto(table, out, name, what)
    copies(table, out)
    shaped(table, out)
    plans(table, out)
    table.print_page(f"Goals of collectives on {out.parent.name}", out / "mpi/run.json",
                     "record_collectives")


if __name__ == "__main__":
    main()
