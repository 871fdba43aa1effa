#!/usr/bin/env python3
"""Compiler launcher for device code: runs nvcc and checks what it made of every kernel.

Usage: check_kernels.py nvcc ARGUMENTS...     (with -Xptxas=-v among them)
Fails with a line per finding if, by ptxas' report, a kernel spills registers, needs a stack or is
missing for one of the architectures of the command line, or if, in the PTX, the instance of a
kernel for `wide` elements loads or stores no 16 bytes at once. Otherwise prints a line per
architecture.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

# In mangled names: the first argument of a template, 8 elements at a time.
WIDE = "ILi8E"
# One value per row is all that these move; they are launched one element at a time.
NARROW = ("CrossEntropyLossKernel", "MergeSumsKernel")
# One value per row is all that these store.
SUMS = ("RowMaxKernel", "CrossEntropySumKernel", "OutputSlopeKernel")
ACCESS = re.compile(r"\b(ld|st)\.(?!param|shared|local)[\w.]*(v4\.[bfu]32|v8\.[bfu]32|v2\.[bfu]64)")


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


def bodies_in(ptx):
    """{kernel: its instructions} of a PTX text."""
    parts = re.split(r"\.entry\s+(\S+?)\(", ptx)
    return dict(zip(parts[1::2], parts[2::2]))


def narrow_accesses_in(ptx):
    bodies = bodies_in(ptx)
    if not any(WIDE in kernel for kernel in bodies):
        yield f"no kernels for 8 elements ({WIDE}) in the PTX"
    for kernel, body in sorted(bodies.items()):
        if WIDE in kernel and not any(name in kernel for name in NARROW):
            kinds = {found.group(1) for found in ACCESS.finditer(body)}
            wanted = {"ld", "st"}
            if any(name in kernel for name in SUMS):
                wanted = {"ld"}
            if "FillKernel" in kernel:
                wanted = {"st"}
            for kind in sorted(wanted - kinds):
                yield f"{kernel}: no {kind} of 16 bytes"


def main():
    with tempfile.TemporaryDirectory() as folder:
        return checked(sys.argv[1:], folder)


def checked(command, folder):
    run = subprocess.run(command + ["--keep", "--keep-dir", folder], text=True,
                         stderr=subprocess.PIPE, check=False)
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
    texts = sorted(Path(folder).glob("*.ptx"))
    if not texts:
        findings.append("nvcc kept no PTX")
    for text in texts:
        findings.extend(f"{text.stem}: {f}" for f in narrow_accesses_in(text.read_text()))
    for finding in findings:
        print(f"check_kernels: {finding}", file=sys.stderr)
    for architecture in architectures:
        of_one = kernels.get(architecture, {})
        most = max((registers for _, _, registers in of_one.values()), default=0)
        print(f"check_kernels: sm_{architecture}: {len(of_one)} kernels, at most {most} registers")
    if not findings:
        print(f"check_kernels: accesses of 16 bytes in the PTX of {len(texts)} architectures")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
