"""Runs the prompt-cache evaluation against a real engine: `prompt_cache.py EVALUATION BINARY MODEL_PYTHON`.

The evaluation is not part of the project. It asks the engine directly and through the proxy, and ends with an error when the proxy
makes the engine read again what it had already read. Its status is ours.
"""

import subprocess
import sys
import tempfile

from local_model import LocalModel

# With one slot the cache is the session's own, and a session of a dozen turns with memories fits.
SLOTS = 1
CONTEXT_TOKENS = 8192


def main(evaluation, binary, model_python):
    with tempfile.TemporaryDirectory(prefix="prompt-cache-") as scratch:
        # The evaluation sends no key when it asks directly.
        with LocalModel(model_python, scratch, SLOTS, CONTEXT_TOKENS, key=None) as model:
            return subprocess.run([sys.executable, evaluation, binary, model.base_url]).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
