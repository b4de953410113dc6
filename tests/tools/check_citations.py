"""Every file and every test that a document cites in backquotes exists.

    check_citations.py DOCUMENT...
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(*documents):
    code = "\n".join(path.read_text() for folder in ("src", "tests") for path in (ROOT / folder).rglob("*.rs"))
    functions = set(re.findall(r"\bfn (\w+)", code))
    faults = cited = 0
    for document in documents:
        for name in re.findall(r"`([^`\n]+)`", (ROOT / document).read_text()):
            if re.fullmatch(r"(src|tests|config)/[\w./-]+", name):
                exists = (ROOT / name).exists()
            elif re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+){3,}", name) and not name.startswith("ibex_"):
                exists = name in functions
            else:
                continue
            cited += 1
            if not exists:
                faults += 1
                print(f"{document}: there is no {name}", file=sys.stderr)
    assert cited, "nothing is cited"
    print(f"citations: {cited} checked, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
