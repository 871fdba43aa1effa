#!/usr/bin/env python3
"""check_kernels.py finds what it is for in reports as ptxas writes them and in PTX, and
check_architectures.py in the containers of device code."""

import sys

from check_architectures import CONTAINER, ENTRY, architectures_in
from check_kernels import findings_in, kernels_of, narrow_accesses_in

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


PTX = """
.visible .entry _Z12run_elementsILi8E3AddE(
\t.param .align 8 .b8 p[8]
)
{{
\tld.param.b64 \t%rd1, [p];
\t{load} \t{{%r1, %r2, %r3, %r4}}, [%rd1];
\t{store} \t[%rd1], {{%r1, %r2, %r3, %r4}};
}}
.visible .entry _Z12run_elementsILi1E3AddE(
)
{{
\tld.global.f32 \t%r1, [%rd1];
}}
"""


def accesses(load="ld.global.v4.b32", store="st.global.v4.b32", ptx=PTX):
    return list(narrow_accesses_in(ptx.format(load=load, store=store)))


def fat_binary(*entries, damage=0):
    """A file with a container of entries (kind, architecture), each with a body of 24 bytes."""
    body = b"".join(
        ENTRY.pack(kind, 0x101, 64, 24, 0, 0, 0, 1, architecture).ljust(64, b"\0") + bytes(24)
        for kind, architecture in entries)
    return b"before" + CONTAINER.pack(0xBA55ED50, 1 + damage, 16, len(body)) + body + b"after"


def main():
    kernel = "_Z12run_elementsILi8E3AddE"
    both = fat_binary((2, 80), (2, 90)) + fat_binary((1, 100))
    cases = [
        ("wide accesses", accesses(), []),
        ("a narrow load", accesses(load="ld.global.v2.b32"), [f"{kernel}: no ld of 16 bytes"]),
        ("a narrow store", accesses(store="st.global.b32"), [f"{kernel}: no st of 16 bytes"]),
        ("no wide kernel", accesses(ptx=PTX.replace("Li8E", "Li4E")),
         ["no kernels for 8 elements (ILi8E) in the PTX"]),
        ("two containers", architectures_in(both), {"sm_80", "sm_90", "compute_100"}),
        ("another version", architectures_in(fat_binary((2, 80), damage=1)), set()),
        ("an entry cut off", architectures_in(fat_binary((2, 80), (2, 90))[:130]), {"sm_80"}),
        ("no device code", architectures_in(b"nothing here"), set()),
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
