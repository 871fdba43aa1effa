#!/usr/bin/env python3
"""scripts/gpu_check: what it makes of outputs, and whole runs with programs that only pretend."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import gpu_check_judge as judge
import gpu_check_steps as steps

GOOD = {"op_or_block": "block", "status": "ok", "reason": "", "backend": "cuda", "check": "pass",
        "mfu_causal_pct": "80", "profiler_overhead_pct": "1.5", "mem_peak_bytes": "105",
        "mem_predicted_bytes": "100", "tflops_per_device": "70", "peak_tflops": "100"}


class Folder:
    """A step's folder with rows and the output of its programs."""

    all = []  # a folder lives as long as the tests do

    def __init__(self, rows=(), output=""):
        Folder.all.append(self)
        self.scratch = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.scratch.name)
        (self.path / "output.txt").write_text(output)
        if rows:
            (self.path / "run").mkdir()
            lines = [",".join(rows[0])] + [",".join(row.values()) for row in rows]
            (self.path / "run/results.csv").write_text("\n".join(lines) + "\n")


def block(code=0, problem="", **changes):
    folder = Folder([{**GOOD, **changes}])
    return {check.name.removeprefix("block: "): check
            for check in judge.block("block", folder.path, code, problem)}


class Judging(unittest.TestCase):
    def test_a_good_block_passes(self):
        self.assertEqual({check.result for check in block().values()}, {judge.PASS})

    def test_a_goal_just_missed_fails(self):
        for column, value, name in (
                ("mfu_causal_pct", "74.9", "MFU of the best measured matmul"),
                ("profiler_overhead_pct", "2.1", "profiled over unprofiled"),
                ("mem_peak_bytes", "111", "memory over the prediction"),
                ("check", "fail", "check at a reduced shape")):
            checks = block(**{column: value})
            self.assertEqual(checks[name].result, judge.FAIL, name)
            self.assertEqual(sum(check.result == judge.FAIL for check in checks.values()), 1)

    def test_a_block_that_did_not_run_on_the_gpu_fails(self):
        for changes in ({"status": "failed"}, {"backend": "cpu"}, {"mfu_causal_pct": ""}):
            self.assertIn(judge.FAIL, {check.result for check in block(**changes).values()}, changes)
        self.assertIn("exit code 1", block(code=1)["MFU of the best measured matmul"].figure)
        self.assertIn("10 s", block(problem="did not end within 10 s")[
            "MFU of the best measured matmul"].figure)

    def test_a_missing_column_is_named(self):
        row = {key: value for key, value in GOOD.items() if key != "mfu_causal_pct"}
        checks = judge.block("block", Folder([row]).path, 0, "")
        self.assertEqual(checks[0].result, judge.FAIL)
        self.assertIn("mfu_causal_pct", checks[0].figure)

    def test_attention_has_its_goal(self):
        for tflops, result in (("60", judge.PASS), ("59.9", judge.FAIL)):
            row = {**GOOD, "tflops_per_device": tflops}
            self.assertEqual(judge.attention("a", Folder([row]).path, 0, "")[0].result, result)

    def rows(self, rows, code=0, output="", least=2):
        return judge.all_rows_pass("s", "rows", Folder(rows, output).path, code, "", least)

    def test_rows_must_all_pass(self):
        self.assertEqual(self.rows([GOOD, GOOD]).result, judge.PASS)
        skipped = {**GOOD, "status": "skipped", "check": ""}
        self.assertEqual(self.rows([GOOD, GOOD, skipped]).result, judge.PASS)
        for wrong in ({"check": "fail"}, {"status": "failed"}, {"backend": "cpu"}):
            self.assertEqual(self.rows([GOOD, {**GOOD, **wrong}]).result, judge.FAIL, wrong)
        self.assertEqual(self.rows([GOOD, skipped]).result, judge.FAIL, "too few rows ran")
        self.assertEqual(self.rows([]).result, judge.FAIL)
        self.assertEqual(self.rows([GOOD, GOOD], code=1, output="it broke").result, judge.FAIL)

    def test_a_transport_that_refuses_is_skipped(self):
        refusal = "ranks 0, 1 would share GPU 0, and ...; use --transport staged, or fewer ranks"
        self.assertEqual(self.rows([], code=2, output=refusal).result, judge.SKIPPED)
        self.assertEqual(self.rows([], code=2, output="--hidden 3 ...").result, judge.FAIL)

    def test_the_probe(self):
        def of(code=0, **found):
            return judge.probe("p", Folder(output="$ x\n" + json.dumps(found)).path, code, "")
        good = of(enqueue_us=9.5, cupti_over_events=1.019)
        self.assertEqual([check.result for check in good], [judge.PASS, judge.PASS])
        bad = of(enqueue_us=10.5, cupti_over_events=0.979)
        self.assertEqual([check.result for check in bad], [judge.FAIL, judge.FAIL])
        absent = of(enqueue_us=1, cupti_over_events=None, cupti_missing="no libcupti")
        self.assertEqual([check.result for check in absent], [judge.PASS, judge.SKIPPED])
        self.assertEqual(of(cupti_over_events=1)[0].result, judge.FAIL)
        self.assertEqual(of(code=1)[0].result, judge.FAIL)

    def test_ctest(self):
        def of(output, code=0):
            return judge.tests("ops", Folder(output=output).path, code, "")[0].result
        good = "100% tests passed, 0 tests failed out of 3\n"
        self.assertEqual(of(good), judge.PASS)
        self.assertEqual(of("67% tests passed, 1 tests failed out of 3\n", 8), judge.FAIL)
        self.assertEqual(of("1/3 Test #1: x ...***Skipped\n" + good), judge.FAIL)
        self.assertEqual(of("No tests were found!!!\n"), judge.FAIL)

    def test_the_table_counts(self):
        table = judge.table_of([judge.Check("s", "one", judge.PASS, "1 x", "at most 2 x"),
                                judge.Check("s", "two", judge.NOT_RUN, "no time")])
        self.assertIn("one    pass     1 x  (at most 2 x)", table)
        self.assertIn("1 pass, 0 FAIL, 0 skipped, 1 not run", table)


PROGRAM = """#!/usr/bin/env python3
import os, pathlib, sys
arguments = sys.argv[1:]
if os.environ.get("FAKE_GPU") != "yes":
    print("shardmark: --backend cuda: no GPU can be used: no driver", file=sys.stderr)
    sys.exit(2)
if "probe" in sys.argv[0]:
    print('{"enqueue_us": 3, "cupti_over_events": 1.0}')
if "--out" in arguments:
    out = pathlib.Path(arguments[arguments.index("--out") + 1])
    out.mkdir()
    row = %s
    row["check"] = os.environ.get("FAKE_CHECK", "pass")
    count = 1 if "--peak" in arguments else 30
    (out / "results.csv").write_text(
        "\\n".join([",".join(row)] + [",".join(row.values())] * count) + "\\n")
"""
CTEST = "#!/bin/sh\necho '100% tests passed, 0 tests failed out of 3'\n"
MPIRUN = "#!/bin/sh\nshift 2\nexec \"$@\"\n"


class Runs(unittest.TestCase):
    """The script itself on programs that pretend."""

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        bin_folder = self.folder / "build/bin"
        bin_folder.mkdir(parents=True)
        for name in ("tp", "cp", "pp", "collectives", "gpu-probe"):
            self.write(bin_folder / f"shardmark-{name}", PROGRAM % repr(GOOD))
        tools = self.folder / "tools"
        tools.mkdir()
        for name, text in (("ctest", CTEST), ("mpirun", MPIRUN)):
            self.write(tools / name, text)

    def write(self, path, text):
        path.write_text(text)
        path.chmod(0o755)

    def run_check(self, *arguments, **variables):
        environment = {**os.environ, **variables,
                       "PATH": f"{self.folder}/tools:{os.environ['PATH']}"}
        return subprocess.run([sys.executable, SCRIPTS / "gpu_check", "--build",
                               self.folder / "build", "--out", self.folder / "out", *arguments],
                              env=environment, capture_output=True, text=True, check=False)

    def test_all_pass(self):
        run = self.run_check(FAKE_GPU="yes")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertIn("0 FAIL, 0 skipped, 0 not run", run.stdout)
        checks = json.loads((self.folder / "out/checks.json").read_text())
        self.assertEqual({check["step"] for check in checks},
                         {step.name for step in steps.all_steps("build")})

    def test_a_failed_check_is_exit_code_1(self):
        run = self.run_check(FAKE_GPU="yes", FAKE_CHECK="fail")
        self.assertEqual(run.returncode, 1, run.stdout + run.stderr)
        self.assertIn("FAIL", run.stdout)

    def test_no_gpu_is_exit_code_3_with_the_reason(self):
        run = self.run_check()
        self.assertEqual(run.returncode, 3, run.stdout + run.stderr)
        self.assertIn("no driver", run.stderr)
        self.assertFalse((self.folder / "out").exists())

    def test_no_programs(self):
        run = self.run_check("--build", str(self.folder / "nowhere"))
        self.assertIn(run.returncode, (2, 3))
        self.assertIn("no programs in", run.stderr)

    def test_what_does_not_fit_the_budget_is_not_run(self):
        run = self.run_check("--budget", "45.5", "--only", "ops,block,probe", FAKE_GPU="yes")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        self.assertEqual(run.stdout.count("of the budget"), 0, "the programs here take no time")
        run = self.run_check("--budget", "20", "--only", "ops,probe", FAKE_GPU="yes")
        self.assertIn("of the budget, it takes 40", run.stdout)
        self.assertIn("1 not run", run.stdout)

    def test_bad_usage(self):
        for arguments in (("--only", "nothing"), ("--budget", "0"), ("--nonsense",)):
            self.assertEqual(self.run_check(*arguments).returncode, 2, arguments)

    def test_dry_run_needs_nothing(self):
        run = self.run_check("--dry-run", "--build", str(self.folder / "nowhere"))
        self.assertEqual(run.returncode, 0)
        for step in steps.all_steps("build"):
            self.assertIn(f"{step.name} ({step.seconds} s)", run.stdout)
        self.assertLessEqual(sum(step.seconds for step in steps.all_steps("build")), 300)


if __name__ == "__main__":
    unittest.main()
