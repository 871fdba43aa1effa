#!/usr/bin/env python3
"""Compares a folder written by scripts/record_results with the project's goals.

Usage: scripts/goals.py results/MACHINE     prints a Markdown table; exit code 0 even if a goal is
missed: the table says so. Standard library only.
"""

import csv
import json
import pathlib
import sys


def rows_of(folder, **wanted):
    with open(folder / "results.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] == "ok"]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def only(rows, what):
    if len(rows) != 1:
        sys.exit(f"goals.py: expected one row for {what}, found {len(rows)}")
    return rows[0]


def counters(path):
    with open(path) as file:
        return json.load(file)["benchmarks"]


class Table:
    def __init__(self):
        self.lines = []

    def add(self, goal, target, value, unit, met, source):
        verdict = "met" if met else "**missed**"
        self.lines.append(f"| {goal} | {target} | {value:.3g} {unit} | {verdict} | {source} |")

    def print_page(self, title, run_json, script):
        """The goals below a head that says where and by what they were measured."""
        with open(run_json) as file:
            run = json.load(file)
        machine = run["machine"]
        versions = [f"oneDNN {run['onednn']}"] if "onednn" in run else []
        versions.append(run["mpi"])
        print(f"# {title}\n")
        print(f"{machine['cpu']}, {machine['cores']} cores, "
              f"{machine['memory_bytes'] / 2**30:.0f} GiB; {'; '.join(versions)}; "
              f"commit {run['commit']}; {run['start_time']}. Written by `scripts/{script}`; ratios are within one run.\n")
        self.print_lines()

    def print_lines(self):
        print("| goal | target | measured | | source |\n|---|---|---|---|---|")
        print("\n".join(self.lines))

    def at_least(self, goal, target, value, unit, source):
        self.add(goal, f">= {target:g} {unit}", value, unit, value >= target, source)

    def at_most(self, goal, target, value, unit, source):
        self.add(goal, f"<= {target:g} {unit}", value, unit, value <= target, source)


def block(table, out):
    folder = out / "block"
    for dtype, target in (("f32", 82), ("bf16", 70)):
        row = only(rows_of(folder, tp="1", dtype=dtype), f"block tp 1 {dtype}")
        table.at_least(f"block, {dtype}, tp 1, hidden 2048, seq 1024, step: share of the GEMM peak "
                       f"probed in the row (causal FLOPs)", target, float(row["mfu_causal_pct"]), "%",
                       "block/results.csv mfu_causal_pct")
    for dtype, target in (("f32", 1.7),):
        times = [float(only(rows_of(folder, tp=tp, dtype=dtype), f"tp {tp}")["time_us_p50"])
                 for tp in ("1", "2")]
        table.at_least(f"the same on two ranks: speed-up over tp 1, {dtype}", target,
                       times[0] / times[1], "x", "block/results.csv time_us_p50")
    overhead = [1 + float(row["profiler_overhead_pct"]) / 100 for row in rows_of(folder)]
    table.at_most("profiled over unprofiled step, worst of the rows", 1.02, max(overhead), "x",
                  "block/results.csv profiler_overhead_pct")


def micro(table, out):
    for name, goal, target in (("submit_median", "submit without sink", 150),
                               ("submit_recording_median", "submit with recording", 600)):
        entry = next(e for e in counters(out / "micro/micro.json") if e["name"] == name)
        table.at_most(goal + ", per operation", target, 1e9 * entry["per_op"], "ns",
                      "micro/micro.json per_op")
    for entry in counters(out / "micro/all_reduce.json"):
        size = int(entry["name"].split("bytes:")[1].split("/")[0])
        if "nonblocking" in entry["name"]:
            table.at_most(f"all-reduce of {size} bytes through submit, over plain non-blocking MPI", 1,
                          entry["extra_us"], "us", "micro/all_reduce.json extra_us")
        else:
            table.at_least(f"all-reduce of {size >> 20} MiB, speed against plain MPI_Allreduce with "
                           "tuned malloc", 1, entry["speedup"], "x", "micro/all_reduce.json speedup")


def memory(table, out):
    row = only(rows_of(out / "memory"), "memory")
    with open(out / "memory/run.json") as file:
        run = json.load(file)
    used = run["memory_peak_bytes"] - run["memory_baseline_bytes"]
    table.at_most("peak resident memory less the process baseline of "
                  f"{run['memory_baseline_bytes'] / 1e6:.0f} MB, over what --dry-run predicts", 1.25,
                  used / float(row["mem_predicted_bytes"]), "x",
                  "memory/run.json, results.csv mem_predicted_bytes")


def checks(table, out):
    with open(out / "checks/wall.json") as file:
        wall_s = json.load(file)["wall_s"]
    rows = rows_of(out / "checks")
    if any(row["check"] != "pass" for row in rows):
        sys.exit("goals.py: a reduced check failed")
    table.at_most(f"8 ranks: {len(rows)} rows, every layer with its reduced check", 120, wall_s, "s",
                  "checks/wall.json")


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    table = Table()
    for part in (block, micro, memory, checks):
        part(table, out)
    table.print_page(f"Goals on {out.name}", out / "block/run.json", "record_results")


if __name__ == "__main__":
    main()
