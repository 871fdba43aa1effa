#!/usr/bin/env python3
"""scripts/gpu_check: what it makes of outputs, and whole runs with programs that only pretend."""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
sys.dont_write_bytecode = True
import gpu_check_judge as judge
import gpu_check_steps as steps

# The script itself, which has no suffix.
LOADER = importlib.machinery.SourceFileLoader("gpu_check", str(SCRIPTS / "gpu_check"))
gpu_check = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", LOADER))
LOADER.exec_module(gpu_check)

GOOD = {"op_or_block": "block", "status": "ok", "reason": "", "backend": "cuda", "check": "pass",
        "mfu_causal_pct": "80", "profiler_overhead_pct": "1.5", "mem_peak_bytes": "105",
        "mem_predicted_bytes": "100", "tflops_per_device": "70", "peak_tflops": "100",
        "peak_source": "measured_gemm"}


def report(**changes):
    """GoogleTest's, of tests that ran well except for the changes."""
    results = {**{name: {} for name in judge.TESTS_ON_GPU}, **changes}
    return json.dumps({"testsuites": [{"testsuite": [
        {"name": name, "result": "COMPLETED", **change} for name, change in results.items()]}]})


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


def tearDownModule():
    for folder in Folder.all:
        folder.scratch.cleanup()


def block(code=0, problem="", **changes):
    folder = Folder([{**GOOD, **changes}])
    return {check.name.removeprefix("block: "): check
            for check in judge.block("block", folder.path, code, problem)}


class Judging(unittest.TestCase):
    def test_a_good_block_passes(self):
        self.assertEqual({check.result for check in block().values()}, {judge.PASS})

    def test_a_goal_just_missed_fails(self):
        for column, value, name in (
                ("mfu_causal_pct", "74.999", "MFU of the best measured matmul"),
                ("profiler_overhead_pct", "2.001", "profiled over unprofiled"),
                ("mem_peak_bytes", "110.01", "memory over the prediction"),
                ("check", "fail", "check at a reduced shape")):
            checks = block(**{column: value})
            self.assertEqual(checks[name].result, judge.FAIL, name)
            self.assertEqual(sum(check.result == judge.FAIL for check in checks.values()), 1)

    def test_a_block_that_did_not_run_on_the_gpu_fails(self):
        for changes in ({"status": "failed"}, {"backend": "cpu"}, {"mfu_causal_pct": ""},
                        {"mfu_causal_pct": "inf"}, {"mem_peak_bytes": "-1"},
                        {"mem_predicted_bytes": "0"}, {"profiler_overhead_pct": "nan"},
                        {"peak_source": "H200 data sheet"}):
            results = {check.result for check in block(**changes).values()}
            self.assertIn(judge.FAIL, results, changes)
        self.assertIn("exit code 1", block(code=1)["MFU of the best measured matmul"].figure)
        self.assertIn("10 s", block(problem="did not end within 10 s")[
            "MFU of the best measured matmul"].figure)

    def test_a_missing_column_is_named(self):
        row = {key: value for key, value in GOOD.items() if key != "mfu_causal_pct"}
        checks = judge.block("block", Folder([row]).path, 0, "")
        self.assertEqual(checks[0].result, judge.FAIL)
        self.assertIn("mfu_causal_pct", checks[0].figure)

    def test_attention_has_its_goal(self):
        for tflops, result in (("60", judge.PASS), ("59.9", judge.FAIL), ("inf", judge.FAIL)):
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

    def test_only_a_barrier_needs_no_check(self):
        unchecked = {**GOOD, "check": "skipped"}
        barrier = {**unchecked, "op_or_block": "barrier"}
        self.assertEqual(self.rows([GOOD, barrier]).result, judge.PASS)
        self.assertEqual(self.rows([GOOD, unchecked]).result, judge.FAIL)
        self.assertEqual(self.rows([GOOD, {**barrier, "check": "fail"}]).result, judge.FAIL)

    def test_rows_without_a_column_fail(self):
        for column in ("status", "backend", "check", "op_or_block"):
            row = {key: value for key, value in GOOD.items() if key != column}
            found = self.rows([row, row])
            self.assertEqual(found.result, judge.FAIL)
            self.assertIn(column, found.figure)

    def test_the_exit_code(self):
        def of(*results):
            return judge.exit_code_of([judge.Check("s", "n", result) for result in results])
        self.assertEqual(of(judge.PASS, judge.SKIPPED, judge.INFO), 0)
        self.assertEqual(of(judge.INFO), 0)
        for results in ((judge.PASS, judge.FAIL), (judge.PASS, judge.NOT_RUN), (judge.SKIPPED,),
                        ()):
            self.assertEqual(of(*results), 1, results)

    def test_a_transport_that_refuses_is_skipped(self):
        refusal = "ranks 0, 1 would share GPU 0, and ...; use --transport staged, or fewer ranks"
        self.assertEqual(self.rows([], code=2, output=refusal).result, judge.SKIPPED)
        self.assertEqual(self.rows([], code=2, output=refusal + "\nmpirun: code 2").result,
                         judge.SKIPPED)
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
        for wrong in (-1, 0, None, True, float("nan"), float("inf")):
            self.assertEqual(of(enqueue_us=wrong, cupti_over_events=1)[0].result, judge.FAIL)
        self.assertEqual(of(enqueue_us=1)[0].result, judge.FAIL, "no word of CUPTI")

    def test_tests_on_the_gpu_must_run(self):
        def of(code=0, **changes):
            folder = Folder().path
            (folder / "a.json").write_text(report(**changes))
            return judge.tests("ops", folder, code, "")[0]
        self.assertEqual(of().result, judge.PASS)
        self.assertEqual(of(code=1).result, judge.FAIL)
        for name in judge.TESTS_ON_GPU:
            self.assertIn(name, of(**{name: {"result": "SKIPPED"}}).figure)
            self.assertEqual(of(**{name: {"result": "SKIPPED"}}).result, judge.FAIL)
            self.assertEqual(of(**{name: {"failures": [{}]}}).result, judge.FAIL)
        self.assertEqual(of(WithoutOneTheReasonIsGiven={"result": "SKIPPED"}).result, judge.PASS)
        self.assertEqual(judge.tests("ops", Folder().path, 0, "")[0].result, judge.FAIL)

    def test_the_label_and_the_steps_name_the_same_tests(self):
        """And they have the tests that must not be skipped."""
        here = pathlib.Path(__file__).parent
        labelled = re.findall(r"shardmark_add_test\((\w+)[^)]*LABELS unit gpu\)",
                              (here / "CMakeLists.txt").read_text())
        self.assertEqual(tuple(labelled), steps.GPU_TESTS)
        source = "".join((here / f"{name.removeprefix('cuda_')}.cpp").read_text()
                         for name in labelled)
        for name in judge.TESTS_ON_GPU:
            self.assertRegex(source, rf"TEST\(\w+, {name}\)")

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
TEST = """#!/usr/bin/env python3
import pathlib, sys
pathlib.Path(sys.argv[1].removeprefix("--gtest_output=json:")).write_text(%s)
"""
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
        self.addCleanup(self.scratch.cleanup)
        self.write(tools / "mpirun", MPIRUN)
        (self.folder / "build/tests").mkdir()
        for name in steps.GPU_TESTS:
            self.write(self.folder / "build/tests" / name, TEST % repr(report()))

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

    def test_programs_that_cannot_be_started(self):
        self.write(self.folder / "build/bin/shardmark-tp", "#!/nowhere/interpreter\n")
        run = self.run_check()
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("cannot be started", run.stderr)

    def test_old_results_are_not_judged(self):
        (self.folder / "out").mkdir()
        (self.folder / "out/checks.txt").write_text("old")
        run = self.run_check(FAKE_GPU="yes")
        self.assertEqual(run.returncode, 2)
        self.assertIn("is not empty", run.stderr)

    def test_what_does_not_fit_the_budget_is_not_run(self):
        run = self.run_check("--budget", "45.5", "--only", "ops,probe", FAKE_GPU="yes")
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        run = self.run_check("--out", str(self.folder / "less"), "--budget", "20", "--only",
                             "ops,probe", FAKE_GPU="yes")
        self.assertEqual(run.returncode, 1, "all that passes is not all")
        self.assertIn("of the budget, it takes 40", run.stdout)
        self.assertIn("1 not run", run.stdout)

    def test_a_program_that_crashes_is_named(self):
        self.write(self.folder / "build/bin/shardmark-gpu-probe", "#!/bin/sh\nkill -SEGV $$\n")
        run = self.run_check("--only", "probe", FAKE_GPU="yes")
        self.assertEqual(run.returncode, 1)
        self.assertIn("exit code -11", run.stdout)

    def hang(self):
        """The probe starts a program that hangs, as mpirun does, and writes down which."""
        file = self.folder / "pid"
        self.write(self.folder / "build/bin/shardmark-gpu-probe",
                   f"#!/bin/sh\nsleep 300 &\necho $! > {file}.new\nmv {file}.new {file}\nwait\n")
        return file

    def assert_ended(self, file):
        state = pathlib.Path(f"/proc/{file.read_text().strip()}/stat")
        for _ in range(100):
            try:
                if state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    return
            except OSError:
                return
            time.sleep(0.05)
        self.fail("the program's child still runs")

    def test_a_step_that_hangs_ends_with_all_it_started(self):
        file = self.hang()
        probe = next(step for step in steps.all_steps(self.folder / "build")
                     if step.name == "probe")
        code, reason = gpu_check.run_step(probe, self.folder, 1)
        self.assertEqual((code, reason), (None, "did not end within 1 s"))
        self.assertEqual({check.result for check in probe.judge(self.folder, code, reason)},
                         {judge.FAIL})
        self.assert_ended(file)

    def test_an_interrupt_keeps_what_is_there(self):
        file = self.hang()
        for number, out in ((signal.SIGINT, "a"), (signal.SIGTERM, "b")):
            file.unlink(missing_ok=True)
            process = subprocess.Popen(
                [sys.executable, SCRIPTS / "gpu_check", "--build", self.folder / "build", "--out",
                 self.folder / out, "--only", "ops,probe"], text=True, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, env={**os.environ, "FAKE_GPU": "yes"})
            for _ in range(400):
                if file.exists():
                    break
                time.sleep(0.05)
            process.send_signal(number)
            stdout, stderr = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 1, stderr)
            self.assertIn("1 pass, 0 FAIL, 0 skipped, 1 not run", stdout)
            self.assertEqual((self.folder / out / "checks.txt").read_text(), stdout)
            self.assert_ended(file)

    def test_only_what_concerns_gpus_of_the_environment_is_kept(self):
        self.run_check("--only", "environment", FAKE_GPU="yes", NCCL_DEBUG="WARN",
                       SOME_TOKEN="hidden")
        text = (self.folder / "out/environment/output.txt").read_text()
        self.assertIn("NCCL_DEBUG=WARN", text)
        self.assertNotIn("hidden", text)

    def test_bad_usage(self):
        for arguments in (("--only", "nothing"), ("--only", ""), ("--budget", "nan"),
                          ("--budget", "0"), ("--nonsense",)):
            self.assertEqual(self.run_check(*arguments).returncode, 2, arguments)

    def test_dry_run_needs_nothing(self):
        run = self.run_check("--dry-run", "--build", str(self.folder / "nowhere"))
        self.assertEqual(run.returncode, 0)
        for step in steps.all_steps("build"):
            self.assertIn(f"{step.name} ({step.seconds} s)", run.stdout)
        self.assertLessEqual(sum(step.seconds for step in steps.all_steps("build")), 300)


if __name__ == "__main__":
    unittest.main()
