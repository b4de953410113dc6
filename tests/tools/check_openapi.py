"""Checks the service's OpenAPI document: valid by the standard, true to its own examples, and in step with the error codes.

    check_openapi.py src/server/openapi.json src/error.rs
"""

import json
import pathlib
import re
import sys
from http import HTTPStatus

from jsonschema import Draft202012Validator, FormatChecker
from openapi_spec_validator import validate
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

DOCUMENT = "urn:ibex:openapi"
METHODS = ("get", "post", "put", "patch", "delete")
# The Rust name of a status is the one that older Pythons spell differently.
RENAMED = {"PAYLOAD_TOO_LARGE": "REQUEST_ENTITY_TOO_LARGE"}


def rust_codes(source):
    """Wire name -> status of every error code."""
    found = re.findall(r'^\s*\w+ = "([A-Z_]+)", ([A-Z_]+), "\w+";', source, re.MULTILINE)
    return {code: HTTPStatus[RENAMED.get(status, status)].value for code, status in found}


def validator(document, pointer):
    """A validator for the schema at `pointer`; references resolve inside the whole document."""
    registry = Registry().with_resource(DOCUMENT, Resource(contents=document, specification=DRAFT202012))
    return Draft202012Validator({"$ref": f"{DOCUMENT}#{pointer}"}, registry=registry, format_checker=FormatChecker())


def escaped(part):
    return str(part).replace("~", "~0").replace("/", "~1")


def examples(node, path=()):
    """(JSON pointer of a schema, example) for every `schema` that stands beside an `example`."""
    if isinstance(node, dict):
        if "schema" in node and "example" in node:
            yield "/" + "/".join(map(escaped, (*path, "schema"))), node["example"]
        for name, value in node.items():
            yield from examples(value, (*path, name))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from examples(value, (*path, index))


def code_faults(document, codes):
    """Where the document's codes differ from those of the program."""
    listed = set(document["components"]["schemas"]["ErrorCode"]["enum"])
    for code in sorted(listed ^ codes.keys()):
        yield f"ErrorCode: {code} is only in {'the document' if code in listed else 'the program'}"
    by_response = {code: name for name, response in document["components"]["responses"].items() for code in response["x-ibex-codes"]}
    for code in sorted(codes.keys() - by_response.keys()):
        yield f"responses: {code} belongs to no response"
    used = {}
    for operation in operations(document):
        for status, response in operation["responses"].items():
            used.setdefault(response.get("$ref", "").rpartition("/")[2], set()).add(int(status))
    for code, name in by_response.items():
        if name in used and used[name] != {codes.get(code)}:
            yield f"responses: {name} is used for {sorted(used[name])}, but {code} is {codes.get(code)}"


def operations(document):
    return [item[method] for item in document["paths"].values() for method in METHODS if method in item]


def unused(document):
    """Components that nothing refers to; the two responses for any route are named in the description."""
    text = json.dumps(document)
    for kind, members in document["components"].items():
        for name in members:
            if kind != "securitySchemes" and f'"#/components/{kind}/{name}"' not in text and name != "MethodNotAllowed":
                yield f"components: {kind}/{name} is not used"


def faults(document, codes):
    yield from code_faults(document, codes)
    yield from unused(document)
    names = [operation["operationId"] for operation in operations(document)]
    yield from (f"operationId: {name} is used twice" for name in set(names) if names.count(name) > 1)
    for pointer, example in examples(document):
        for error in validator(document, pointer).iter_errors(example):
            yield f"{pointer}: {error.message}"


def main(document_path, error_path):
    document = json.loads(pathlib.Path(document_path).read_text())
    validate(document)
    codes = rust_codes(pathlib.Path(error_path).read_text())
    if not codes:
        raise SystemExit(f"{error_path}: no error code found")
    found = list(faults(document, codes))
    for fault in found:
        print(fault, file=sys.stderr)
    count = len(list(examples(document)))
    print(f"openapi: {len(operations(document))} operations, {len(codes)} error codes, {count} examples checked, {len(found)} faults")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
