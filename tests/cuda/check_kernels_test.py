#!/usr/bin/env python3
"""check_kernels.py finds what it is for in reports as ptxas writes them."""

import sys

from check_kernels import findings_in, kernels_of

REPORT = """\
ptxas info    : Compiling entry function 'add' for 'sm_80'
ptxas info    : Function properties for add
    0 bytes stack frame, {spilled} bytes spill stores, 0 bytes spill loads
ptxas info    : Used 20 registers, used 0 barriers
ptxas info    : Compiling entry function 'add' for 'sm_90'
ptxas info    : Function properties for add
    {stack} bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers
"""


def findings(stack=0, spilled=0, architectures=("80", "90")):
    report = REPORT.format(stack=stack, spilled=spilled).splitlines()
    return list(findings_in(kernels_of(report), architectures))


def main():
    cases = [
        ("a clean report", findings(), []),
        ("a stack", findings(stack=8), ["sm_90 add: 8 bytes of stack, 0 spilled"]),
        ("a spill", findings(spilled=4), ["sm_80 add: 0 bytes of stack, 4 spilled"]),
        ("an architecture left out", findings(architectures=("80", "100")),
         ["sm_100 add: no code"]),
        ("no report", list(findings_in(kernels_of([]), ["80"])),
         ["no kernels in ptxas' report; is -Xptxas=-v missing?"]),
    ]
    failures = [f"{name}: {found}, not {expected}" for name, found, expected in cases
                if found != expected]
    print("\n".join(failures) if failures else f"{len(cases)} cases are right")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
