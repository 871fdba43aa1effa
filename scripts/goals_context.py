#!/usr/bin/env python3
"""Compares a folder written by scripts/record_context with the project's goals.

Usage: scripts/goals_context.py results/MACHINE/context     prints a Markdown table; exit code 0 even
if a goal is missed: the table says so. Standard library only.
"""

import collections
import json
import pathlib
import re
import sys

from goals import Table, counters, only, rows_of


def core(table, out):
    entries = {entry["name"].split("/iterations")[0]: entry
               for entry in counters(out / "core/core.json")}
    for name, goal, target in (("f32_forward", "forward", 70),
                               ("f32_both", "forward + backward (backward counted as 2 x forward)",
                                60)):
        entry = entries[f"attention/{name}/seq:8192/heads:16/head_dim:128"]
        table.at_least(f"attention core, one rank, f32, causal, 16 heads x 128, 8k tokens, {goal}: "
                       "share of the GEMM peak probed before and after, median of 5", target,
                       entry["median_pct_of_peak"], "%", "core/core.json median_pct_of_peak")
    longest = entries["attention/f32_both/seq:65536/heads:4/head_dim:64"]
    lse_mib = 65536 * 4 * 4 / 2**20
    table.at_most("the same, 64k tokens, 4 heads x 64, forward + backward: memory beyond q, k, v, o "
                  "and gradients (scratch and log-sum-exps)", 64, longest["scratch_MiB"] + lse_mib,
                  "MiB", "core/core.json scratch_MiB")


def speed(table, out):
    folder = out / "speed"
    alone = float(only(rows_of(folder, cp="1"), "cp 1")["time_us_p50"])
    zigzag, contiguous = (only(rows_of(folder, cp="2", order=order), order)
                          for order in ("zigzag", "contiguous"))
    source = "speed/results.csv time_us_p50"
    table.at_least("ring, 2 ranks, causal, zigzag, 16k tokens, step: speed-up over one rank", 1.7,
                   alone / float(zigzag["time_us_p50"]), "x", source)
    ceiling = float(contiguous["speedup_ceiling"])
    table.at_least(f"the same, contiguous: share of the structural ceiling ({ceiling:.3g}x)", 90,
                   100 * alone / float(contiguous["time_us_p50"]) / ceiling, "%", source)


def error(table, out):
    """The largest error of a row against float64, two ranks over one, per shape."""
    shapes = collections.defaultdict(dict)
    for row in rows_of(out / "sweep"):
        key = row["seq"], row["kv_heads"]
        shapes[key].setdefault(row["cp"], []).append(float(row["rel_norm_err"]))
    growth = max(max(by_degree["2"]) / max(by_degree["1"]) for by_degree in shapes.values())
    table.at_most("error against float64, all kinds and orders on 2 ranks over 1 rank (1 to 8 "
                  "ranks: tests of the cores)", 2, growth, "x", "sweep/results.csv rel_norm_err")


def million(table, out):
    with open(out / "million.json") as file:
        tests = [case for suite in json.load(file)["testsuites"] for case in suite["testsuite"]]
    for case in tests:
        table.at_most(f"1M tokens on 256 ranks, record backend, every check: {case['name']} (full "
                      "and causal, all orders together)", 30, float(case["time"].rstrip("s")), "s",
                      "million.json")


def hiding(table, out):
    if not (out / "hiding").is_dir():
        table.lines.append("| several hosts | | | not measured: no hosts could be made | |")
        return
    rows = {overlap: only(rows_of(out / "hiding", overlap=overlap), f"overlap {overlap}")
            for overlap in ("true", "false")}
    hidden = rows["true"]
    table.at_least("ring, zigzag, two hosts, 1 Gbit/s, overlap on: exchange hidden "
                   f"({float(hidden['comp_us']) / 1e3:.4g} ms of compute, "
                   f"{float(hidden['comm_us']) / 1e3:.4g} ms of exchange)", 85,
                   float(hidden["overlap_pct"]), "%", "hiding/results.csv overlap_pct")
    gain = float(rows["false"]["time_us_p50"]) / float(hidden["time_us_p50"])
    table.lines.append(f"| the same: speed-up over overlap off | | {gain:.3g} x | | "
                       "hiding/results.csv time_us_p50 |")


def advice(table, out):
    path = out / "advice/table.txt"
    if not path.is_file():
        return
    text = path.read_text()
    said = re.search(r"measured so in (\d+) of (\d+) cases", text)
    right, cases = int(said.group(1)), int(said.group(2))
    table.at_least(f"advice on two hosts with a slow link: kind named fastest was measured so, of "
                   f"{cases} configurations", 80, 100 * right / cases, "%", "advice/table.txt")


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    table = Table()
    for goal in (core, speed, error, million, hiding, advice):
        goal(table, out)
    table.print_page(f"Goals of long sequences on {out.parent.name}", out / "speed/run.json",
                     "record_context")


if __name__ == "__main__":
    main()
