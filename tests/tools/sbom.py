"""Writes the bill of materials of the binary, as CycloneDX JSON: every crate that it is made of, macros included, with its licence, the checksum of
the lock file, and who needs whom. The same lock file gives the same bytes.

    sbom.py OUTPUT [FEATURE...]
"""

import json
import subprocess
import sys
import tomllib
import uuid
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parents[2]


def main(output, *features):
    host = next(line.split()[1] for line in run("rustc", "-vV").splitlines() if line.startswith("host:"))
    asked = ["--features", ",".join(features)] if features else []
    graph = json.loads(run("cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", host, *asked))
    needs = linked(graph)
    lock = (ROOT / "Cargo.lock").read_text()
    checksums = {(p["name"], p["version"]): p["checksum"] for p in tomllib.loads(lock)["package"] if "checksum" in p}
    packages = {package["id"]: package for package in graph["packages"] if package["id"] in needs}
    components = {name: component(package, checksums) for name, package in packages.items()}

    root = components.pop(graph["resolve"]["root"])
    # A time of its own would make every bill another one.
    bom = Bom(components=components.values(), metadata=BomMetaData(component=root), serial_number=uuid.uuid5(uuid.NAMESPACE_OID, lock))
    everything = {**components, graph["resolve"]["root"]: root}
    for name, others in needs.items():
        bom.register_dependency(everything[name], [everything[other] for other in others])
    text = json.loads(make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string())
    text["metadata"].pop("timestamp", None)
    text = json.dumps(text, indent=1) + "\n"
    faults = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert faults is None, faults
    assert len(components) > 100 and {"rustls", "tokio", "rusqlite"} <= {c.name for c in components.values()}, "crates are missing"
    assert not {"criterion", "proptest"} & {c.name for c in components.values()}, "tools of the tests are in it"
    Path(output).write_text(text)
    print(f"sbom: {output}, {len(components)} crates in the binary for {host}")


def linked(graph):
    """{package: the packages that it links}, from the root on: neither tools of the tests nor of the build."""
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    needs, waiting = {}, [graph["resolve"]["root"]]
    while waiting:
        name = waiting.pop()
        if name in needs:
            continue
        needs[name] = [d["pkg"] for d in nodes[name]["deps"] if any(kind["kind"] is None for kind in d["dep_kinds"])]
        waiting += needs[name]
    return needs


def component(package, checksums):
    name, version = package["name"], package["version"]
    checksum = checksums.get((name, version))
    # Older manifests have a slash where SPDX has OR.
    licence = package["license"].replace(" / ", " OR ").replace("/", " OR ")
    return Component(
        type=ComponentType.LIBRARY if package["source"] else ComponentType.APPLICATION,
        name=name,
        version=version,
        bom_ref=f"{name}@{version}",
        purl=PackageURL("cargo", None, name, version),
        licenses=[LicenseExpression(licence)],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)] if checksum else [],
    )


def run(*command):
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
