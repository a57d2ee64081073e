#!/usr/bin/env python3
"""Every header under src/ compiles alone, opens with a comment and has #pragma once.

Include paths and definitions come from build/release/compile_commands.json; the compiler only checks
syntax, one header per process, as many at a time as there are cores.
"""
import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def source_flags(database: pathlib.Path):
    """[(source, its text, the flags that decide what it means)] of every source under src/."""
    sources = []
    for entry in json.loads(database.read_text()):
        file = pathlib.Path(entry["file"])
        if not file.is_relative_to(ROOT / "src"):
            continue
        kept, take_next = [], False
        for word in shlex.split(entry["command"])[1:]:
            if take_next:
                kept.append(word)
                take_next = False
            elif word in ("-I", "-isystem", "-D"):
                kept.append(word)
                take_next = True
            elif word.startswith(("-I", "-D", "-isystem", "-std", "-W", "-f", "-m")):
                kept.append(word)
        sources.append((file, file.read_text(encoding="utf-8") if file.exists() else "", kept))
    return sources


def flags_for(header: pathlib.Path, sources):
    """Those of a source that includes it (its own first, then its module's), else of any in its module."""
    include = f'"{header.relative_to(ROOT / "src")}"'

    def rank(source):
        file, text, _ = source
        return (file.with_suffix("") == header.with_suffix(""), file.parent == header.parent and include in text,
                file.parent == header.parent, include in text, len(source[2]))

    return max(sources, key=rank)[2] if sources else ["-std=c++23", f"-I{ROOT / 'src'}"]


def check(header: pathlib.Path, flags, compiler):
    text = header.read_text(encoding="utf-8")
    name = str(header.relative_to(ROOT))
    if "#pragma once" not in text:
        return f"{name}: no #pragma once"
    if not text.startswith(("//", "/*")):
        return f"{name}: must open with what it is for, who owns it, what fails"
    include = header.relative_to(ROOT / "src")
    done = subprocess.run([compiler, *flags, "-Wno-psabi", "-x", "c++", "-fsyntax-only", "-"], capture_output=True, text=True,
                          input=f'#include "{include}"\n#include "{include}"\n')
    return None if done.returncode == 0 else f"{name} does not compile alone:\n{done.stderr}"


def main() -> int:
    database = ROOT / "build/release/compile_commands.json"
    if not database.exists():
        print("no build/release/compile_commands.json: run ./dev build first")
        return 2
    sources = source_flags(database)
    compiler = os.environ.get("CXX", "g++")
    headers = sorted((ROOT / "src").rglob("*.h"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda h: check(h, flags_for(h, sources), compiler), headers)
        problems = [r for r in results if r]
    for problem in problems:
        print(problem[:3000])
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
