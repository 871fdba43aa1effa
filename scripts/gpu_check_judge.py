"""What scripts/gpu_check makes of the outputs of its steps. Pure functions of files."""

import csv
import json
import math
import pathlib
from dataclasses import dataclass

PASS, FAIL, SKIPPED, NOT_RUN, INFO = "pass", "FAIL", "skipped", "not run", "info"
# A test that is skipped has not seen the GPU; others are for machines without one.
TESTS_ON_GPU = ("EveryComputeOpIsTheReferences", "AttentionIsTheReferences",
                "RanksAddUpThroughTheHost")
UNREADABLE = (OSError, AttributeError, KeyError, IndexError, TypeError, ValueError, csv.Error)


@dataclass
class Check:
    step: str
    name: str
    result: str
    figure: str = ""  # what was found, or the reason
    goal: str = ""


def table_of(checks):
    rows = [("check", "result", "figure", "goal")]
    rows += [(check.name, check.result, check.figure, check.goal) for check in checks]
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    lines = [f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}"
             f"{f'  ({row[3]})' if row[3] and row is not rows[0] else ''}".rstrip() for row in rows]
    count = {result: sum(check.result == result for check in checks)
             for result in (PASS, FAIL, SKIPPED, NOT_RUN)}
    lines.append(", ".join(f"{number} {result}" for result, number in count.items()))
    return "\n".join(lines) + "\n"


def last_line(folder):
    """The last thing that a step's programs said."""
    path = pathlib.Path(folder) / "output.txt"
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    return next((line for line in reversed(lines) if line.strip()), "no output")


def ended(step, name, folder, code, problem):
    """A check that fails if the step did; None if it ended well."""
    if problem:
        return Check(step, name, FAIL, problem)
    if code != 0:
        return Check(step, name, FAIL, f"exit code {code}: {last_line(folder)}")
    return None


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def positive(value, name):
    """A number above 0 and below infinity; ValueError with its name if it is none. Nothing that is
    measured can be 0, and a comparison with NaN or infinity would say nothing."""
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not (math.isfinite(found) and found > 0):
        raise ValueError(f"{name} is '{value}'")
    return found


def number(row, column):
    """A cell as a positive number; KeyError or ValueError with the column's name if it is none."""
    return positive(row[column], column)


def overhead_ratio(row):
    """Profiled over unprofiled; the overhead in percent may be negative."""
    text = row["profiler_overhead_pct"]
    try:
        return positive(1 + float(text) / 100, "profiled over unprofiled")
    except (TypeError, ValueError):
        raise ValueError(f"profiler_overhead_pct is '{text}'") from None


def measured_peak(row):
    if not row["peak_source"].startswith("measured"):
        raise ValueError(f"the peak is not measured, peak_source is '{row['peak_source']}'")
    return number(row, "peak_tflops")


def at_least(step, name, value, goal, unit):
    return Check(step, name, PASS if value >= goal else FAIL, f"{value:.4g} {unit}".strip(),
                 f"at least {goal:g} {unit}".strip())


def at_most(step, name, value, goal, unit):
    return Check(step, name, PASS if value <= goal else FAIL, f"{value:.4g} {unit}".strip(),
                 f"at most {goal:g} {unit}".strip())


def refusal_in(folder):
    """What a transport says that cannot do this on this machine; empty if none did."""
    path = pathlib.Path(folder) / "output.txt"
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    return next((line for line in lines if "use --transport staged" in line), "")


def wrong_with(row):
    """Why a row does not count as right; empty if it does."""
    where = row["op_or_block"]
    if row["status"] != "ok":
        return f"{where}: {row['status']}: {row['reason']}"
    if row["backend"] != "cuda":
        return f"{where} ran on {row['backend']}"
    # A barrier has no result to compare.
    if row["check"] != "pass" and (where, row["check"]) != ("barrier", "skipped"):
        return f"{where}: check is '{row['check']}'"
    return ""


def all_rows_pass(step, name, folder, code, problem, least=1):
    """Every row of the step's runs ran on a GPU, and its check passed; rows that a rule leaves out
    (status skipped) do not count. A transport that refuses the machine is skipped, with the reason.
    """
    if code == 2 and (refusal := refusal_in(folder)):
        return Check(step, name, SKIPPED, refusal)
    if (failed := ended(step, name, folder, code, problem)) is not None:
        return failed
    try:
        rows = [row for path in sorted(pathlib.Path(folder).glob("*/results.csv"))
                for row in rows_of(path) if row["status"] != "skipped"]
        if len(rows) < least:
            return Check(step, name, FAIL, f"{len(rows)} rows ran", f"at least {least}")
        wrong = [reason for row in rows if (reason := wrong_with(row))]
    except UNREADABLE as reason:
        return Check(step, name, FAIL, f"{type(reason).__name__}: {reason}")
    if wrong:
        return Check(step, name, FAIL, f"{len(wrong)} of {len(rows)} rows: {wrong[0]}")
    return Check(step, name, PASS, f"{len(rows)} rows")


def only_row(folder):
    paths = list(pathlib.Path(folder).glob("*/results.csv"))
    if len(paths) != 1:
        raise ValueError(f"{len(paths)} results.csv instead of one")
    rows = rows_of(paths[0])
    if len(rows) != 1:
        raise ValueError(f"{len(rows)} rows instead of one")
    return rows[0]


def of_row(step, names, folder, code, problem, make):
    """`make(row)`'s checks of a step with one row; failed ones if it did not come to that."""
    first = ended(step, names[0], folder, code, problem)
    if first is None:
        try:
            row = only_row(folder)
            if row["status"] != "ok":
                raise ValueError(f"{row['status']}: {row['reason']}")
            if row["backend"] != "cuda":
                raise ValueError(f"ran on {row['backend']}")
            return make(row)
        except UNREADABLE as reason:
            first = Check(step, names[0], FAIL, f"{type(reason).__name__}: {reason}")
    return [first] + [Check(step, name, NOT_RUN, f"{names[0]} failed") for name in names[1:]]


def block(step, folder, code, problem):
    def make(row):
        measured_peak(row)
        return [
            at_least(step, "block: MFU of the best measured matmul", number(row, "mfu_causal_pct"),
                     75, "%"),
            at_most(step, "block: profiled over unprofiled",
                    overhead_ratio(row), 1.02, "x"),
            at_most(step, "block: memory over the prediction",
                    number(row, "mem_peak_bytes") / number(row, "mem_predicted_bytes"), 1.1, "x"),
            Check(step, "block: check at a reduced shape",
                  PASS if row["check"] == "pass" else FAIL, row["check"]),
        ]
    return of_row(step, ["block: MFU of the best measured matmul",
                         "block: profiled over unprofiled", "block: memory over the prediction",
                         "block: check at a reduced shape"], folder, code, problem, make)


def attention(step, folder, code, problem):
    name = "attention core forward, of the best measured matmul"
    return of_row(step, [name], folder, code, problem, lambda row: [
        at_least(step, name, 100 * number(row, "tflops_per_device") / measured_peak(row),
                 60, "%")])


def probe(step, folder, code, problem):
    """Of shardmark-gpu-probe, which prints JSON as its last line."""
    name = "host time to enqueue an op"
    if (failed := ended(step, name, folder, code, problem)) is not None:
        return [failed]
    try:
        found = json.loads(last_line(folder))
        checks = [at_most(step, name, positive(found["enqueue_us"], "enqueue_us"), 10, "us")]
        cupti = "CUPTI over event times of long kernels"
        if found["cupti_over_events"] is None:
            checks.append(Check(step, cupti, SKIPPED, found["cupti_missing"]))
        else:
            ratio = positive(found["cupti_over_events"], "cupti_over_events")
            checks.append(Check(step, cupti, PASS if abs(ratio - 1) <= 0.02 else FAIL,
                                f"{ratio:.4g} x", "within 2 %"))
        return checks
    except UNREADABLE as reason:
        return [Check(step, name, FAIL, f"{type(reason).__name__}: {reason}")]


def tests(step, folder, code, problem):
    """Of the reports that GoogleTest wrote: none failed, and those on a GPU were not skipped."""
    name = "every op against the reference"
    if (failed := ended(step, name, folder, code, problem)) is not None:
        return [failed]
    try:
        found = [test for path in sorted(pathlib.Path(folder).glob("*.json"))
                 for suite in json.loads(path.read_text())["testsuites"]
                 for test in suite["testsuite"]]
        wrong = [test["name"] for test in found if test.get("failures")]
        ran = {test["name"] for test in found if test["result"] == "COMPLETED"}
    except UNREADABLE as reason:
        return [Check(step, name, FAIL, f"{type(reason).__name__}: {reason}")]
    if wrong:
        return [Check(step, name, FAIL, f"{len(wrong)} tests fail: {', '.join(wrong[:3])}")]
    if missing := [test for test in TESTS_ON_GPU if test not in ran]:
        return [Check(step, name, FAIL, f"did not run: {', '.join(missing)}")]
    return [Check(step, name, PASS, f"{len(ran)} tests, {len(found) - len(ran)} skipped")]


def exit_code_of(checks):
    """0 only if all that can be measured here was, and passed: what did not fit into the budget
    counts, what this machine has nothing to measure for does not."""
    results = {check.result for check in checks}
    if FAIL in results or NOT_RUN in results:
        return 1
    return 0 if PASS in results or results == {INFO} else 1


def environment(step, folder, code, problem):
    return [Check(step, "environment", INFO, problem or "output.txt")]
