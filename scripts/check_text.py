#!/usr/bin/env python3
"""No tracked file names a machine's own path, a package registry's host, or leaves a conflict mark.

What the project needs comes through package clients as each machine has them configured; a host or a
path written down here would be wrong elsewhere.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Written in pieces so that this file does not offend itself.
HOSTS = ["registry." + "npmjs.org", "registry." + "yarnpkg.com", "files." + "pythonhosted.org", "pypi" + ".org",
         "deb." + "debian.org", "security." + "debian.org", "static." + "crates.io", "proxy." + "golang.org",
         "repo1." + "maven.org", "huggingface" + ".co"]
PATTERNS = [
    (re.compile("|".join(re.escape(h) for h in HOSTS)), "a package registry's host"),
    (re.compile(r"(?<![\w.])/(?:wor" + r"k|roo" + r"t|hom" + r"e/\w+|tm" + r"p/w)/"), "a machine's own path"),
    (re.compile(r"^(?:<{7} |>{7} |={7}$)"), "a conflict mark"),
    (re.compile(r"[ \t]+$"), "space at the end of the line"),
]
BINARY = {".gguf", ".bin", ".gz", ".png", ".jpg"}


def main() -> int:
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, check=True).stdout
    found = 0
    for name in filter(None, listed.decode().split("\0")):
        path = ROOT / name
        if path.suffix in BINARY or name.startswith("tests/corpus/") or name == "LICENSE" or not path.is_file():
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, what in PATTERNS:
                if pattern.search(line) and not (path.suffix == ".md" and what.startswith("space")):
                    print(f"{name}:{number}: {what}: {line.strip()[:100]}")
                    found = 1
    return found


if __name__ == "__main__":
    sys.exit(main())
