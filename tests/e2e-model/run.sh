#!/usr/bin/env bash
# A real model answers through the running binary: what only a stored memory knows must be in the answer. Then, where the evaluations
# of the project are at hand, the prompt cache of a real engine must stay whole behind the binary.
# usage: tests/e2e-model/run.sh BINARY
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tools/env.sh"
BINARY=$(realpath "${1:?usage: run.sh BINARY}")
python_env local-model "$HERE/../tools/model-requirements.txt" --no-deps --only-binary :all:
MODEL_PYTHON=$PYTHON
python_env sdk-python "$HERE/../sdk/python/requirements.txt"
E2E_BINARY=$BINARY E2E_MODEL_PYTHON=$MODEL_PYTHON "$PYTHON" -m pytest -v -s -p no:cacheprovider "$HERE"

# Kept beside the project and not in it.
EVALUATION=$HERE/../../../shared/eval/real_cache_eval.py
printf '\n==> prompt cache of a real engine\n'
if [ -f "$EVALUATION" ]; then
  "$PYTHON" "$HERE/prompt_cache.py" "$EVALUATION" "$BINARY" "$MODEL_PYTHON"
else
  echo "SKIPPED: prompt-cache evaluation (no ../shared)"
fi
