#!/usr/bin/env python3
"""Checks what neither compiler nor formatter does: which folder may include which, #pragma once,
length of files, functions and lines, and plain ASCII.

Usage: scripts/check_includes.py [ROOT]     (default: the repository this script is in)
Prints `file:line: reason` for each finding; exit code 1 if there are any.
"""

import re
import sys
from pathlib import Path

MAY_INCLUDE = {
    "core": {"core"},
    "collectives": {"core", "collectives"},
    "layers": {"core", "collectives", "layers"},
    "profiler": {"core", "profiler"},
    "sim": {"core", "collectives", "sim"},
    "bench": {"core", "collectives", "layers", "profiler", "sim", "bench"},
    "tests": {"core", "collectives", "layers", "profiler", "sim", "bench", "tests"},
}
SUFFIXES = {".hpp", ".cpp", ".h", ".cu", ".cuh", ".inl"}
HEADERS = {".hpp", ".h", ".cuh"}
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80
MAX_COLUMNS = 100

INCLUDE = re.compile(r'\s*#\s*include\s*[<"]([^>"]+)[>"]')
# Blocks whose length says nothing; neither does that of a table, whose head has no parentheses.
CONTAINER = re.compile(r"\b(namespace|class|struct|union|enum)\b[^()=]*$|\bextern\s*$")


def blank_out(text):
    """The text with comments, strings and characters replaced by spaces; lines stay in place."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^()\s]*)\(.*?\)(?P=tag)"'
        r'|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])*\'',
        re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def drop_else_branches(text):
    """Keeps one branch of each #if: braces balance in a branch, not across branches."""
    lines, skipping = [], []
    for line in text.split("\n"):
        directive = re.match(r"\s*#\s*(\w+)", line)
        name = directive.group(1) if directive else ""
        if name in ("if", "ifdef", "ifndef"):
            skipping.append(False)
        elif name in ("else", "elif") and skipping:
            skipping[-1] = True
        elif name == "endif" and skipping:
            skipping.pop()
        lines.append("" if directive or any(skipping) else line)
    return "\n".join(lines)


def functions(text):
    """(first line, last line) of every outermost block that is not a namespace, type or table."""
    text = drop_else_branches(blank_out(text))
    line, head, head_line = 1, "", 1
    stack = []  # (is a container, may be a function, first line)
    for character in text:
        if character == "{":
            head = head.strip()
            stack.append((bool(CONTAINER.search(head)), ")" in head, head_line))
            head = ""
        elif character == "}" and stack:
            is_container, may_be_function, first = stack.pop()
            if may_be_function and not is_container and all(outer[0] for outer in stack):
                yield first, line
            head = ""
        elif character == ";":
            head = ""
        else:
            if not head.strip():
                head_line = line
            head += character
        if character == "\n":
            line += 1


def check_includes(folder, lines):
    for number, line in enumerate(lines, 1):
        found = INCLUDE.match(line)
        if not found:
            continue
        path = found.group(1)
        other = path.split("/")[0]
        if "/" in path and other in MAY_INCLUDE and other not in MAY_INCLUDE[folder]:
            allowed = ", ".join(sorted(MAY_INCLUDE[folder]))
            yield number, f"{folder} must not include {path} (only: {allowed})"
        elif path.startswith("."):
            yield number, f"include {path} from the source root, not relative to the file"


def check_file(path, folder):
    data = path.read_bytes()
    text = data.decode("latin-1")
    lines = text.splitlines()
    yield from check_includes(folder, lines)
    if path.suffix in HEADERS and not any(line.strip() == "#pragma once" for line in lines):
        yield 1, "header without #pragma once"
    if len(lines) > MAX_FILE_LINES:
        yield len(lines), f"{len(lines)} lines; at most {MAX_FILE_LINES}"
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_COLUMNS:
            yield number, f"{len(line)} columns; at most {MAX_COLUMNS}"
        if not line.isascii():
            yield number, "not ASCII"
    for first, last in functions(text):
        if last - first + 1 > MAX_FUNCTION_LINES:
            yield first, f"a function of {last - first + 1} lines; at most {MAX_FUNCTION_LINES}"


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    findings = 0
    for folder in MAY_INCLUDE:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in SUFFIXES:
                continue
            for number, reason in sorted(check_file(path, folder)):
                print(f"{path.relative_to(root)}:{number}: {reason}")
                findings += 1
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
