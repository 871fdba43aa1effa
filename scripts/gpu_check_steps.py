"""The steps of scripts/gpu_check: what is run, how long it takes, and who judges it."""

import shlex
import shutil
from dataclasses import dataclass, field
from typing import Callable

import gpu_check_judge as judge

SMALLEST = ("--tp", "1", "--ranks", "1", "--hidden", "64", "--heads", "4", "--ffn", "128", "--seq",
            "16", "--batch", "1", "--max-time", "0.01", "--min-samples", "1", "--warmup", "0",
            "--check", "off")
# What has the label `gpu` in ctest, which a machine with binaries only may lack.
GPU_TESTS = ("cuda_gpu_test", "cuda_rank_gpu_test")
QUICK = ("--max-time", "0.1", "--min-samples", "3", "--warmup", "1")


@dataclass
class Step:
    name: str
    seconds: int
    about: str
    commands: Callable  # of the step's folder: a list of command lines
    judge: Callable     # (folder, exit code, why it did not run) -> checks
    environment: dict = field(default_factory=dict)
    may_fail: bool = False  # go on with the next command

    def not_run(self, reason):
        return [judge.Check(self.name, self.about, judge.NOT_RUN, reason)]


def describe(all_steps):
    """Text of --dry-run."""
    lines = [f"{len(all_steps)} steps, about {sum(step.seconds for step in all_steps)} s"]
    for step in all_steps:
        lines.append(f"{step.name} ({step.seconds} s): {step.about}")
        variables = "".join(f"{name}={value} " for name, value in step.environment.items())
        lines += [f"  {variables}{shlex.join(map(str, command))}"
                  for command in step.commands(f"OUT/{step.name}")]
    return "\n".join(lines)


def all_steps(build):
    """Most important first: what does not fit into the budget is left out."""
    program = {name: f"{build}/bin/shardmark-{name}" for name in
               ("tp", "cp", "pp", "collectives", "gpu-probe")}
    cuda = ("--backend", "cuda")

    def ranks(count, name, *arguments):
        """As MPI processes where MPI is, else as threads."""
        if shutil.which("mpirun"):
            return ["mpirun", "-n", str(count), program[name], *arguments, *cuda]
        return [program[name], *arguments, *cuda, "--ranks", str(count)]

    def rows(name, about, seconds, commands, least=1, **more):
        return Step(name, seconds, about, commands,
                    lambda folder, code, problem: [judge.all_rows_pass(name, about, folder, code,
                                                                       problem, least)], **more)

    def of(name, function):
        return lambda folder, code, problem: function(name, folder, code, problem)

    small = ("--hidden", "1k", "--seq", "512", "--batch", "1", "--dtype", "f32,bf16", *QUICK)
    return [
        Step("environment", 5, "what is there", lambda folder: [
            ["nvidia-smi"], ["nvidia-smi", "topo", "-m"],
            ["nvidia-smi", "-q", "-d", "CLOCK,POWER,TEMPERATURE,PERFORMANCE"], ["lscpu"],
            [program["tp"], "--version"], ["ldd", program["tp"]],
            # Not all of it: the folder is meant to be shown to others.
            ["sh", "-c", "env | grep -E '^(NCCL|CUDA|NVIDIA)_' | sort"]],
             of("environment", judge.environment), may_fail=True),
        Step("ops", 40, "every op against the reference", lambda folder: [
            [f"{build}/tests/{test}", f"--gtest_output=json:{folder}/{test}.json"]
            for test in GPU_TESTS],
             of("ops", judge.tests)),
        rows("layers-1", "layers at tp 1", 15, lambda folder: [
            [program["tp"], "--ranks", "1", "--tp", "1", "--block",
             "linear-column,linear-row,mlp,attention,block", *small, *cuda, "--transport", "nccl",
             "--out", f"{folder}/run"]], least=10),
        Step("block", 40, "block at hidden 8192, seq 4096, bf16", lambda folder: [
            [program["tp"], "--ranks", "1", "--tp", "1", "--block", "block", "--hidden", "8k",
             "--heads", "64", "--seq", "4k", "--batch", "1", "--dtype", "bf16", "--phase", "step",
             "--peak", "measured", "--max-time", "8", *cuda, "--out", f"{folder}/run"]],
             of("block", judge.block)),
        Step("attention", 20, "attention core forward", lambda folder: [
            [program["cp"], "--ranks", "1", "--cp", "1", "--heads", "64", "--head-dim", "128",
             "--seq", "4k", "--batch", "1", "--dtype", "bf16", "--phase", "forward", "--peak",
             "measured", "--max-time", "3", *cuda, "--out", f"{folder}/run"]],
             of("attention", judge.attention)),
        Step("probe", 15, "enqueue time, CUPTI against events", lambda folder: [
            [program["gpu-probe"]]], of("probe", judge.probe)),
        rows("layers-staged", "layers at tp 1, 2, 4, staged", 30, lambda folder: [
            ranks(4, "tp", "--tp", "1,2,4", *small, "--sequence-parallel", "off,on", "--overlap",
                  "off,on", "--transport", "staged", "--out", f"{folder}/run")], least=12),
        rows("context", "ring and Ulysses, staged", 20, lambda folder: [
            ranks(2, "cp", "--cp", "1,2", "--kind", "ring,ulysses", "--seq", "1k", "--heads", "8",
                  "--dtype", "f32,bf16", *QUICK, "--transport", "staged", "--out",
                  f"{folder}/run")], least=4),
        rows("pipeline", "pipeline schedules, staged", 20, lambda folder: [
            ranks(2, "pp", "--pp", "2", "--schedule", "gpipe,1f1b,zb-h1", "--layers", "4",
                  "--hidden", "256", "--microbatches", "4", *QUICK, "--transport", "staged",
                  "--out", f"{folder}/run")], least=3),
        rows("collectives", "collectives, staged", 20, lambda folder: [
            ranks(2, "collectives", "all", "-b", "1K", "-e", "1M", "-f", "32", "-d", "float,half",
                  "--max-time", "0.05", "--min-samples", "3", "--no-waits", "--transport", "staged",
                  "--out", f"{folder}/run")], least=20),
        rows("layers-nccl-2", "layers at tp 2, NCCL", 20, lambda folder: [
            ranks(2, "tp", "--tp", "2", *small, "--sequence-parallel", "off,on", "--transport",
                  "nccl", "--out", f"{folder}/run")], least=4,
             environment={"NCCL_MULTI_RANK_GPU_ENABLE": "1"}),
        rows("layers-nccl-4", "layers at tp 4, NCCL", 25, lambda folder: [
            ranks(4, "tp", "--tp", "4", *small, "--sequence-parallel", "off,on", "--transport",
                  "nccl", "--out", f"{folder}/run")], least=4,
             environment={"NCCL_MULTI_RANK_GPU_ENABLE": "1"}),
        rows("collectives-nccl", "collectives, NCCL", 20, lambda folder: [
            ranks(2, "collectives", "all", "-b", "1K", "-e", "1M", "-f", "32", "-d", "float,half",
                  "--max-time", "0.05", "--min-samples", "3", "--no-waits", "--transport", "nccl",
                  "--out", f"{folder}/run")], least=20,
             environment={"NCCL_MULTI_RANK_GPU_ENABLE": "1"}),
    ]
