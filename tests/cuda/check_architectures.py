#!/usr/bin/env python3
"""Which architectures a library, object or program holds device code for.

Usage: check_architectures.py FILE sm_80 sm_90 ... compute_100
Reads the containers ("fat binaries") that nvcc embeds: a header of 16 bytes, then entries of which
each has a header with its kind (1: PTX, 2: machine code), its size and its architecture. Prints
what it finds; exit code 1 if one of the architectures that are asked for is not there.
"""

import struct
import sys
from pathlib import Path

MAGIC = struct.pack("<I", 0xBA55ED50)
CONTAINER = struct.Struct("<IHHQ")  # magic, version, bytes of this header, bytes of all entries
ENTRY = struct.Struct("<HHIQIIHHI")  # kind, ., bytes of this header, bytes behind it, ., ., ., ., architecture
PREFIXES = {1: "compute_", 2: "sm_"}


def entries_of(data, at, end):
    """The architectures of entries in data[at:end]; nothing from one that is damaged on."""
    while at + ENTRY.size <= end:
        kind, _, header, size, _, _, _, _, architecture = ENTRY.unpack_from(data, at)
        if kind not in PREFIXES or header < ENTRY.size:
            return
        yield f"{PREFIXES[kind]}{architecture}"
        at += header + size


def architectures_in(data):
    """Like {"sm_80", "compute_100"}: of all containers."""
    found, at = set(), data.find(MAGIC)
    while at >= 0:
        if at + CONTAINER.size <= len(data):
            _, version, header, size = CONTAINER.unpack_from(data, at)
            if version == 1 and header == CONTAINER.size:
                found.update(entries_of(data, at + header, min(at + header + size, len(data))))
        at = data.find(MAGIC, at + len(MAGIC))
    return found


def main():
    path, wanted = Path(sys.argv[1]), sys.argv[2:]
    found = architectures_in(path.read_bytes())
    print(f"{path.name}: {' '.join(sorted(found)) or 'no device code'}")
    missing = [name for name in wanted if name not in found]
    if missing:
        print(f"missing: {' '.join(missing)}", file=sys.stderr)
    return 1 if missing or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
