#!/usr/bin/env bash
# Real clients against the running binary: the official OpenAI SDKs for Python and Node, LangChain and the Vercel AI SDK.
# usage: tests/sdk/run.sh BINARY [python|node]
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tools/env.sh"
BINARY=$(realpath "${1:?usage: run.sh BINARY [python|node]}")
ONLY=${2:-}
STATUS=0

python_env sdk-python "$HERE/python/requirements.txt"
if [ "$ONLY" != node ]; then
  note "clients in Python"
  "$PYTHON" "$HERE/harness.py" "$BINARY" "$PYTHON" -m pytest -q -p no:cacheprovider "$HERE/python" || STATUS=1
fi
if [ "$ONLY" != python ]; then
  node_env sdk-node "$HERE/node"
  note "clients in Node"
  # Node resolves packages from a file's own folder upwards, so the tests run beside the installed ones.
  rm -f "$NODE_ENV_DIR"/*.mjs
  cp "$HERE"/node/*.mjs "$NODE_ENV_DIR/"
  (cd "$NODE_ENV_DIR" && "$PYTHON" "$HERE/harness.py" "$BINARY" node --test --test-concurrency=1 --test-reporter=spec) || STATUS=1
fi
exit "$STATUS"
