#!/usr/bin/env python3
"""Compares predicted with measured times of the same configurations.

Usage: scripts/goals_predict.py CALIBRATION MEASURED PREDICTED

CALIBRATION is the run folder that the machine file was made of, MEASURED a run of other
configurations, PREDICTED the same with --predict. Prints a Markdown table of every configuration that
is in the latter two but not in the first, and the mean error. Exit code 0 even if a goal is missed:
the table says so. Standard library only.
"""

import csv
import json
import pathlib
import sys

from goals import Table

# What makes two rows the same configuration, wherever it runs; files have those that they need.
KEYS = ("model", "op_or_block", "phase", "schedule", "dtype", "tp", "sp", "keep_gathered", "overlap",
        "overlap_chunks", "head_chunks", "gather_output", "pp", "vpp", "dp", "microbatches", "split",
        "recompute", "p2p", "cp", "cp_kind", "order", "ulysses", "ulysses_outer", "batch", "seq",
        "hidden", "heads", "kv_heads", "head_dim", "ffn", "layers", "vocab", "mlp", "gelu", "norm",
        "positions", "biases", "causal", "window", "seqlens")
ALWAYS_SHOWN = ("op_or_block", "phase", "dtype", "tp", "hidden", "seq")


def rows_of(folder, source):
    """Median times of the rows that are ok, by configuration."""
    with open(folder / "results.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] == "ok"]
    if any(row["source"] != source for row in rows):
        sys.exit(f"goals_predict.py: {folder} has rows that are not {source}")
    return {tuple(row.get(key, "") for key in KEYS): float(row["time_us_p50"]) for row in rows}


def describe(key, shown):
    return " ".join(f"{name} {value}" for name, value in zip(KEYS, key) if name in shown)


def run_of(folder):
    with open(folder / "run.json") as file:
        return json.load(file)


def main():
    if len(sys.argv) != 4 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    calibration, measured_in, predicted_in = map(pathlib.Path, sys.argv[1:])
    seen = rows_of(calibration, "measured")
    measured = rows_of(measured_in, "measured")
    predicted = rows_of(predicted_in, "predicted")
    keys = [key for key in measured if key in predicted and key not in seen]
    if not keys:
        sys.exit("goals_predict.py: no configuration is measured, predicted and not in the calibration")
    differ = [name for i, name in enumerate(KEYS) if len({key[i] for key in keys}) > 1]
    shown = [name for name in KEYS if name in ALWAYS_SHOWN or name in differ]
    errors = [predicted[key] / measured[key] - 1 for key in keys]
    mean = 100 * sum(abs(error) for error in errors) / len(errors)

    run, machine = run_of(measured_in), run_of(predicted_in)["predicted_for"]
    print(f"# Predicted against measured: {machine['name']}\n")
    print(f"{machine['about']}. Measured by run {run['run_id']}, {run['world_size']} ranks "
          f"({run['transport']}), commit {run['commit']}. Times in ms; an error above 0 is a prediction "
          "that is too slow.\n")
    print("| configuration | measured | predicted | error |\n|---|---|---|---|")
    for key, error in zip(keys, errors):
        print(f"| {describe(key, shown)} | {measured[key] / 1e3:.3f} | {predicted[key] / 1e3:.3f} | "
              f"{100 * error:+.1f} % |")
    table = Table()
    table.at_least("configurations that the calibration has not seen", 20, len(keys), "",
                   f"{measured_in.name}/results.csv")
    table.at_most("mean error of their predicted times", 10, mean, "%",
                  f"{predicted_in.name}/results.csv time_us_p50")
    worst = max(range(len(keys)), key=lambda i: abs(errors[i]))
    print()
    table.print_lines()
    print(f"\nWorst: {describe(keys[worst], shown)}, {100 * errors[worst]:+.1f} %.")


if __name__ == "__main__":
    main()
