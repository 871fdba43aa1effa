"""What scripts/gpu_check makes of the outputs of its steps. Pure functions of files."""

import csv
import json
import pathlib
import re
from dataclasses import dataclass

PASS, FAIL, SKIPPED, NOT_RUN, INFO = "pass", "FAIL", "skipped", "not run", "info"


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


def number(row, column):
    """A cell as a number; KeyError or ValueError with the column's name if there is none."""
    text = row[column]
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{column} is '{text}'") from None


def at_least(step, name, value, goal, unit):
    return Check(step, name, PASS if value >= goal else FAIL, f"{value:.4g} {unit}".strip(),
                 f"at least {goal:g} {unit}".strip())


def at_most(step, name, value, goal, unit):
    return Check(step, name, PASS if value <= goal else FAIL, f"{value:.4g} {unit}".strip(),
                 f"at most {goal:g} {unit}".strip())


def all_rows_pass(step, name, folder, code, problem, least=1):
    """Every row of the step's runs ran on a GPU, and its check passed; rows that a rule leaves out
    (status skipped) do not count. A transport that refuses the machine is skipped, with its reason."""
    if code == 2 and "use --transport staged" in last_line(folder):
        return Check(step, name, SKIPPED, last_line(folder))
    if (problem := ended(step, name, folder, code, problem)) is not None:
        return problem
    rows = [row for path in sorted(pathlib.Path(folder).glob("*/results.csv"))
            for row in rows_of(path) if row["status"] != "skipped"]
    if len(rows) < least:
        return Check(step, name, FAIL, f"{len(rows)} rows ran", f"at least {least}")
    for row in rows:
        where = row["op_or_block"]
        if row["status"] != "ok":
            return Check(step, name, FAIL, f"{where}: {row['status']}: {row['reason']}")
        if row["backend"] != "cuda":
            return Check(step, name, FAIL, f"{where} ran on {row['backend']}")
        if row["check"] != "pass":
            return Check(step, name, FAIL, f"{where}: check is '{row['check']}'")
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
        except (OSError, KeyError, ValueError) as reason:
            first = Check(step, names[0], FAIL, f"{type(reason).__name__}: {reason}")
    return [first] + [Check(step, name, NOT_RUN, f"{names[0]} failed") for name in names[1:]]


def block(step, folder, code, problem):
    def make(row):
        return [
            at_least(step, "block: MFU of the best measured matmul", number(row, "mfu_causal_pct"),
                     75, "%"),
            at_most(step, "block: profiled over unprofiled",
                    1 + number(row, "profiler_overhead_pct") / 100, 1.02, "x"),
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
        at_least(step, name, 100 * number(row, "tflops_per_device") / number(row, "peak_tflops"),
                 60, "%")])


def probe(step, folder, code, problem):
    """Of shardmark-gpu-probe, which prints JSON as its last line."""
    name = "host time to enqueue an op"
    if (failed := ended(step, name, folder, code, problem)) is not None:
        return [failed]
    try:
        found = json.loads(last_line(folder))
        checks = [at_most(step, name, found["enqueue_us"], 10, "us")]
        cupti = "CUPTI over event times of long kernels"
        if found.get("cupti_over_events") is None:
            checks.append(Check(step, cupti, SKIPPED, found["cupti_missing"]))
        else:
            ratio = found["cupti_over_events"]
            checks.append(Check(step, cupti, PASS if abs(ratio - 1) <= 0.02 else FAIL,
                                f"{ratio:.4g} x", "within 2 %"))
        return checks
    except (KeyError, TypeError, ValueError) as reason:
        return [Check(step, name, FAIL, f"{type(reason).__name__}: {reason}")]


def tests(step, folder, code, problem):
    name = "every op against the reference"
    text = (pathlib.Path(folder) / "output.txt").read_text(errors="replace")
    if problem:
        return [Check(step, name, FAIL, problem)]
    found = re.search(r"(\d+)% tests passed, (\d+) tests failed out of (\d+)", text)
    if not found:
        return [Check(step, name, FAIL, last_line(folder))]
    # A test that is skipped has not seen the GPU.
    num_skipped = len(re.findall(r"\*\*\*Skipped|\(Skipped\)", text))
    failed = int(found[2])
    figure = f"{int(found[3]) - failed} of {found[3]} tests pass, {num_skipped} skipped"
    return [Check(step, name, PASS if failed == 0 and code == 0 and num_skipped == 0 else FAIL,
                  figure)]


def environment(step, folder, code, problem):
    return [Check(step, "environment", INFO, problem or "output.txt")]
