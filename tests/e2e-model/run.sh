#!/usr/bin/env bash
# A real model answers through the running binary: what only a stored memory knows must be in the answer.
# usage: tests/e2e-model/run.sh BINARY
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tools/env.sh"
BINARY=$(realpath "${1:?usage: run.sh BINARY}")
python_env local-model "$HERE/../tools/model-requirements.txt" --no-deps --only-binary :all:
MODEL_PYTHON=$PYTHON
python_env sdk-python "$HERE/../sdk/python/requirements.txt"
E2E_BINARY=$BINARY E2E_MODEL_PYTHON=$MODEL_PYTHON "$PYTHON" -m pytest -v -s -p no:cacheprovider "$HERE"
