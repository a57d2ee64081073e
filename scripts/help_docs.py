#!/usr/bin/env python3
"""help_docs.py BINARY PREFIX: man pages and shell completions of all commands, below PREFIX/share.

Both are made from what `zerohop … --help` prints, so that help, manual and completion cannot differ.
"""
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple


class Entry(NamedTuple):
    head: str  # "-w,--workspace TEXT REQUIRED"
    text: str

    def names(self):
        return re.findall(r"(?:^|,)(--?[\w-]+)", self.head)

    def takes_value(self):
        return " " in self.head

    def choices(self):
        found = re.search(r"\{([^}]*)\}", self.head)
        return found.group(1).split(",") if found else []


class Command(NamedTuple):
    path: tuple  # ("key", "create"); the program itself: ()
    about: str
    usage: str
    sections: dict  # "Options" -> [Entry]
    footer: str


def read(binary, path=()):
    """All commands from `path` down, parents first."""
    help_text = subprocess.run([binary.name, *path, "--help"], executable=binary, check=True, text=True,
                               stdout=subprocess.PIPE).stdout
    about, rest = help_text.split("\nUsage: ", 1)
    usage, rest = rest.split("\n", 1)
    sections, footer = {}, []
    for block in re.split(r"\n\n", rest.strip("\n")):
        title, _, body = block.partition("\n")
        if footer or title not in ("Positionals:", "Options:", "Subcommands:"):
            footer.append(block)
            continue
        entries = sections.setdefault(title[:-1], [])
        for line in body.splitlines():
            if line[2:3] == " ":  # the text of a head too long for its column
                entries[-1] = entries[-1]._replace(text=f"{entries[-1].text} {line.strip()}".strip())
            else:
                head, _, text = line.strip().partition("  ")
                entries.append(Entry(head, text.strip()))
    # A default that names this user's home says nothing to others.
    home = str(Path.home())
    sections = {k: [e._replace(head=e.head.replace(home, "~")) for e in v] for k, v in sections.items()}
    command = Command(path, about.strip(), usage, sections, "\n\n".join(footer))
    return [command] + [c for e in sections.get("Subcommands", [])
                        for c in read(binary, (*path, e.head.split()[0]))]


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^(['.])", r"\\&\1", text, flags=re.M)


def man_page(command, program, version):
    name = "-".join((program, *command.path))
    about = re.sub(rf"^{program}: ", "", command.about).replace("\n", " ")
    out = [f'.TH {name.upper()} 1 "" "{program} {version}" "User Commands"', ".SH NAME",
           f"{roff(name)} \\- {roff(about)}", ".SH SYNOPSIS", f".B {roff(command.usage)}"]
    for title, entries in command.sections.items():
        out.append(f".SH {'COMMANDS' if title == 'Subcommands' else title.upper()}")
        for entry in entries:
            out += [".TP", f".B {roff(entry.head)}", roff(entry.text)]
    if command.footer:
        out += [".SH NOTES", ".nf", roff(command.footer), ".fi"]
    out += [".SH SEE ALSO", f"The README in /usr/share/doc/{program}."]
    return "\n".join(out) + "\n"


def flags_and_commands(command):
    options = [n for e in command.sections.get("Options", []) for n in e.names() if n.startswith("--")]
    return options + [e.head.split()[0] for e in command.sections.get("Subcommands", [])]


def bash_completion(commands, program):
    words = "\n".join(f"        '{' '.join(c.path)}') words='{' '.join(flags_and_commands(c))}' ;;" for c in commands)
    choices = {n: e.choices() for c in commands for e in c.sections.get("Options", []) for n in e.names() if e.choices()}
    values = "\n".join(f"        {n}) COMPREPLY=($(compgen -W '{' '.join(v)}' -- \"$word\")); return ;;"
                       for n, v in sorted(choices.items()))
    known = "|".join(f"'{' '.join(c.path)}'" for c in commands if c.path)
    return f"""# bash completion for {program}; zsh uses it too
_{program}() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command='' next words='' i
    COMPREPLY=()
    case $previous in
{values}
    esac
    for ((i = 1; i < COMP_CWORD; i++)); do
        next="${{command:+$command }}${{COMP_WORDS[i]}}"
        case $next in {known}) command=$next ;; esac
    done
    case $command in
{words}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    ((${{#COMPREPLY[@]}})) || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -o filenames -F _{program} {program}
"""


def fish_completion(commands, program):
    out = []
    for command in commands:
        seen = " ".join(f"and __fish_seen_subcommand_from {w};" for w in command.path)
        for entry in command.sections.get("Subcommands", []):
            names = " ".join(e.head.split()[0] for e in command.sections["Subcommands"])
            out.append(f"complete -c {program} -n 'true; {seen} and not __fish_seen_subcommand_from {names}' "
                       f"-f -a {entry.head.split()[0]} -d {quoted(entry.text)}")
        for entry in command.sections.get("Options", []):
            flags = " ".join(("-l " if n.startswith("--") else "-s ") + n.lstrip("-") for n in entry.names())
            value = f" -x -a '{' '.join(entry.choices())}'" if entry.choices() else " -r" if entry.takes_value() else ""
            out.append(f"complete -c {program} -n 'true; {seen}' {flags}{value} -d {quoted(entry.text)}")
    return "\n".join(out) + "\n"


def quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def main():
    binary, share = Path(sys.argv[1]).resolve(), Path(sys.argv[2]) / "share"
    program = binary.name
    version = subprocess.run([binary, "--version"], check=True, text=True,
                             stdout=subprocess.PIPE).stdout.split()[1]
    commands = read(binary)
    files = {f"man/man1/{'-'.join((program, *c.path))}.1": man_page(c, program, version) for c in commands}
    files[f"bash-completion/completions/{program}"] = bash_completion(commands, program)
    files[f"zsh/vendor-completions/_{program}"] = (
        f"#compdef {program}\nautoload -U bashcompinit && bashcompinit\n"
        f"source /usr/share/bash-completion/completions/{program}\n")
    files[f"fish/vendor_completions.d/{program}.fish"] = fish_completion(commands, program)
    for name, text in files.items():
        (share / name).parent.mkdir(parents=True, exist_ok=True)
        (share / name).write_text(text)


if __name__ == "__main__":
    main()
