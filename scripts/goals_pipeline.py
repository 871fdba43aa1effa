#!/usr/bin/env python3
"""Compares a folder written by scripts/record_pipeline with the project's goals.

Usage: scripts/goals_pipeline.py results/MACHINE/pipeline     prints a Markdown table; exit code 0 even
if a goal is missed: the table says so. Standard library only.
"""

import pathlib
import sys

from goals import Table, counters, only, rows_of


def bubbles(table, out):
    for row in rows_of(out / "bubble"):
        name, times = row["schedule"], f"{row['bubble_iterations']} iterations"
        theory, measured = float(row["bubble_theory_of_total"]), float(row["bubble_of_total"])
        table.at_most(f"{name}, 2 ranks, 8 layers, hidden 1024, seq 512, 8 micro-batches: bubble "
                      f"({100 * measured:.3g} % of the window) against theory with the same op times "
                      f"({100 * theory:.3g} %), {times}", 3, 100 * abs(measured - theory), "points",
                      "bubble/results.csv bubble_of_total, bubble_theory_of_total")
        table.at_most(f"{name}: unexplained, of the window", 2,
                      100 * abs(float(row["pp_unexplained_us"])) / float(row["pp_window_us"]), "%",
                      "bubble/results.csv pp_unexplained_us")


def replays(table, out):
    rows = rows_of(out / "schedules")
    worst = max(rows, key=lambda row: abs(float(row["step_replayed_error_pct"])))
    table.at_most(f"replay with measured op times against the measured step, worst of {len(rows)} "
                  f"schedules at pp 2: {worst['schedule']}", 5,
                  abs(float(worst["step_replayed_error_pct"])), "%",
                  "schedules/results.csv step_replayed_error_pct")
    table.lines.append("| the same at pp 4 | | not measured: it needs a core per rank | | |")


def balance(table, out):
    by_count, measured = (only(rows_of(out / "balance", balance=name), name)
                          for name in ("count", "measured"))
    gain = float(by_count["time_us_p50"]) / float(measured["time_us_p50"])
    table.lines.append(f"| --balance measured, 12 layers, vocabulary 16k: split {measured['split']} "
                       f"instead of {by_count['split']}, step | | {gain:.3g} x faster | | "
                       "balance/results.csv time_us_p50 |")


def interpreter(table, out):
    worst = max(entry["per_action"] for entry in counters(out / "interpreter/interpreter.json"))
    table.at_most("interpreter, without profiling: per action", 1, 1e6 * worst, "us",
                  "interpreter/interpreter.json per_action")


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    out = pathlib.Path(sys.argv[1])
    table = Table()
    for goal in (bubbles, replays, balance, interpreter):
        goal(table, out)
    table.print_page(f"Goals of pipelines on {out.parent.name}", out / "bubble/run.json",
                     "record_pipeline")


if __name__ == "__main__":
    main()
