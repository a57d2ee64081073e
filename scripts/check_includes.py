#!/usr/bin/env python3
"""Includes point upward only: each src/<module> may include itself and the modules above it in ORDER, engines
nothing of the clients' side.

llama.h and its relatives are for engine alone; nobody includes a path relative to the file ("../").
Prints every offence as file:line and exits 1 if there is one.
"""
import pathlib
import re
import sys

ORDER = ["base", "request", "sched", "wire", "skeleton", "auth", "api", "admit", "kv", "draft",
         "engine", "net", "app", "cli"]
LEVEL = {name: i for i, name in enumerate(ORDER)}
# Of those above them these use only what both sides of the engine's port know.
ENGINE_SIDE = {"kv", "draft", "engine"}
CLIENT_SIDE = {"wire", "skeleton", "auth", "api", "admit"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
TEST = re.compile(r"/testing/|_(test|fuzz|bench)\.cc$")
LLAMA = re.compile(r"^(llama|ggml|gguf|common|chat|sampling|json-schema-to-grammar|log)(-[a-z]+)?\.h(pp)?$")


def offences(root: pathlib.Path):
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in (".h", ".cc", ".cpp"):
            continue
        module = path.relative_to(root / "src").parts[0]
        if module not in LEVEL:
            yield path, 1, f"src/{module} is not a module of STYLE's list: {' '.join(ORDER)}"
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not (match := INCLUDE.match(line)):
                continue
            form, target = match.groups()
            first = target.split("/")[0]
            if target.startswith("."):
                yield path, number, f'"{target}": write the path from src/'
            elif "/" in target and first in LEVEL and (form == '"' or (root / "src" / target).exists()):
                if LEVEL[first] > LEVEL[module]:
                    yield path, number, f"{module} must not include {first}/ (it stands below in the list)"
                elif module in ENGINE_SIDE and first in CLIENT_SIDE:
                    yield path, number, f"{module} must not include {first}/: engines know requests, not protocols"
                elif "/testing/" in target and not TEST.search(str(path)):
                    yield path, number, f'"{target}" is for tests'
                elif not (root / "src" / target).exists():
                    yield path, number, f'"{target}" does not exist'
            elif form == '"' and "/" not in target and (path.parent / target).exists():
                yield path, number, f'"{target}": write "{module}/{target}"'
            elif LLAMA.match(target) and module != "engine":
                yield path, number, f"{target}: only engine may include llama.cpp's headers"


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    found = list(offences(root))
    for path, number, what in found:
        print(f"{path.relative_to(root)}:{number}: {what}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
