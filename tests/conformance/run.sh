#!/usr/bin/env bash
# Two public suites of OpenAI compatibility, run against a real model server directly and through the running binary.
# usage: tests/conformance/run.sh BINARY
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tools/env.sh"
BINARY=$(realpath "${1:?usage: run.sh BINARY}")
python_env local-model "$HERE/../tools/model-requirements.txt" --no-deps --only-binary :all:
MODEL_PYTHON=$PYTHON
node_env conformance-node "$HERE"
python_env conformance-python "$HERE/requirements.txt"
"$PYTHON" "$HERE/compare.py" "$BINARY" --model-python "$MODEL_PYTHON" \
  --compatcanary "$NODE_ENV_DIR/node_modules/.bin/compatcanary" --llm-comply "$(dirname "$PYTHON")/llm-comply"
