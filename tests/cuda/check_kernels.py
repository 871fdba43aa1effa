#!/usr/bin/env python3
"""Compiler launcher for device code: runs nvcc and checks ptxas' report of every kernel.

Usage: check_kernels.py nvcc ARGUMENTS...     (with -Xptxas=-v among them)
Fails with a line per finding if a kernel spills registers, needs a stack or is missing for one of
the architectures of the command line; otherwise prints a line per architecture.
"""

import re
import subprocess
import sys


def kernels_of(report):
    """{architecture: {kernel: [stack bytes, spilled bytes, registers]}} of ptxas' lines."""
    kernels, current = {}, None
    for line in report:
        if found := re.search(r"Compiling entry function '(\S+)' for 'sm_(\d+)'", line):
            current = kernels.setdefault(found.group(2), {}).setdefault(found.group(1), [0, 0, 0])
        elif current is None:
            continue
        elif found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)", line):
            stack, stores, loads = map(int, found.groups())
            current[0] = max(current[0], stack)
            current[1] += stores + loads
        elif found := re.search(r"Used (\d+) registers", line):
            current[2] = int(found.group(1))
    return kernels


def findings_in(kernels, architectures):
    if not any(kernels.values()):
        yield "no kernels in ptxas' report; is -Xptxas=-v missing?"
    names = set().union(*kernels.values())
    for architecture in architectures:
        of_one = kernels.get(architecture, {})
        for kernel in sorted(names - set(of_one)):
            yield f"sm_{architecture} {kernel}: no code"
        for kernel, (stack, spilled, _) in sorted(of_one.items()):
            if stack > 0 or spilled > 0:
                yield f"sm_{architecture} {kernel}: {stack} bytes of stack, {spilled} spilled"


def main():
    command = sys.argv[1:]
    run = subprocess.run(command, text=True, stderr=subprocess.PIPE, check=False)
    lines = run.stderr.splitlines()
    report = [line for line in lines if line.startswith(("ptxas info", "    "))]
    for line in lines:
        if line not in report:
            print(line, file=sys.stderr)
    if run.returncode != 0:
        return run.returncode
    kernels = kernels_of(report)
    architectures = sorted(set(re.findall(r"\bsm_(\d+)", " ".join(command))), key=int)
    findings = list(findings_in(kernels, architectures))
    for finding in findings:
        print(f"check_kernels: {finding}", file=sys.stderr)
    for architecture in architectures:
        of_one = kernels.get(architecture, {})
        most = max((registers for _, _, registers in of_one.values()), default=0)
        print(f"check_kernels: sm_{architecture}: {len(of_one)} kernels, at most {most} registers")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
