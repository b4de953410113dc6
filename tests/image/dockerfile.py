"""Reads a Dockerfile: the stages, each with its instructions in order. As much of the language as this project's file uses; anything else
is an error, so that no instruction is left out unseen."""

import json
import re
from dataclasses import dataclass, field

KNOWN = {
    "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME",
    "WORKDIR",
}


@dataclass
class Instruction:
    """One instruction: its name, its --flags (a list of values each), and the rest of its text."""

    name: str
    flags: dict
    text: str

    def words(self):
        """The arguments, of either form."""
        return json.loads(self.text) if self.text.startswith("[") else self.text.split()


@dataclass
class Stage:
    """What stands between one FROM and the next."""

    base: str
    name: str
    instructions: list = field(default_factory=list)

    def last(self, name):
        """The instruction of that name that is in force at the end of the stage."""
        found = [i for i in self.instructions if i.name == name]
        assert found, f"the Dockerfile has no {name}"
        return found[-1]

    def environment(self):
        """The variables that a container is started with."""
        texts = [i.text for i in self.instructions if i.name == "ENV"]
        return dict(pair.split("=", 1) for text in texts for pair in text.split())


def read(path):
    """The stages of the file at `path`."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    defaults, stages = {}, []
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        instruction = parse(line)
        if instruction.name == "FROM":
            base, _, name = expand(instruction.text, defaults).partition(" AS ")
            stages.append(Stage(base, name or str(len(stages))))
        elif stages:
            stages[-1].instructions.append(instruction)
        else:
            assert instruction.name == "ARG", f"{instruction.name} stands before FROM"
            defaults.update([instruction.text.split("=", 1)])
    return stages


def parse(line):
    """One joined line as an instruction."""
    name, _, text = line.partition(" ")
    assert name in KNOWN, f"{name} is an instruction that this reader does not know"
    flags = {}
    while found := re.match(r"\s*--([a-z-]+)=(\S+)\s+", text):
        flags.setdefault(found[1], []).append(found[2])
        text = text[found.end():]
    return Instruction(name, flags, text.strip())


def expand(text, values):
    """`text` with its ${NAME}s replaced."""
    return re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], text)
