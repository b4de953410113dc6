# Sourced by the test runners: where their environments live and how they are made. Everything is installed by package name, with
# the clients' own settings deciding which registry serves it, and pinned by the requirements and lock files beside the tests.

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CACHE=${IBEX_TEST_CACHE:-${CARGO_TARGET_DIR:-$ROOT/target}/test-cache}
mkdir -p "$CACHE"
CACHE=$(cd "$CACHE" && pwd)
export UV_CACHE_DIR=${UV_CACHE_DIR:-$CACHE/uv-cache}
export PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH="$ROOT/tests/tools"

# note TEXT: a progress line.
note() { printf '    %s\n' "$*"; }

# apt_install PACKAGE...: as root on a Debian-like system; elsewhere says what is missing.
apt_install() {
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "missing on this machine: $* (install these packages, then run again)" >&2
    return 1
  fi
  note "apt-get install $*"
  apt-get -o DPkg::Lock::Timeout=300 update -qq >/dev/null
  DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" >/dev/null
}

# fingerprint FILE...: what an environment was made from.
fingerprint() { cat "$@" | sha256sum | cut -d' ' -f1; }

# need_python: a Python 3 that can make virtual environments, and uv in one of its own.
need_python() {
  if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then apt_install python3 python3-venv || return; fi
  UV=$CACHE/uv/bin/uv
  if ! "$UV" --version 2>/dev/null | grep -q '^uv 0\.13\.9'; then
    note "installing uv"
    rm -rf "$CACHE/uv"
    python3 -m venv "$CACHE/uv" && "$CACHE/uv/bin/pip" install -q --disable-pip-version-check uv==0.13.9
  fi
}

# python_env NAME REQUIREMENTS [uv pip install option...]: makes the environment, or keeps one that was made from the same file.
# Sets PYTHON to its interpreter.
python_env() {
  local name=$1 requirements=$2 want
  shift 2
  need_python || return
  PYTHON=$CACHE/$name/bin/python
  want=$(fingerprint "$requirements")
  if [ "$(cat "$CACHE/$name/.made-from" 2>/dev/null)" = "$want" ] && "$PYTHON" --version >/dev/null 2>&1; then return 0; fi
  note "installing the Python environment '$name'"
  rm -rf "${CACHE:?}/$name"
  "$UV" venv -q --python "$(python3 -c 'import sys; print(sys.executable)')" "$CACHE/$name" &&
    "$UV" pip install -q --python "$PYTHON" "$@" -r "$requirements" &&
    echo "$want" >"$CACHE/$name/.made-from"
}

# need_node: Node 20 or later with npm.
need_node() {
  if ! command -v node >/dev/null || ! command -v npm >/dev/null; then apt_install nodejs npm || return; fi
  if [ "$(node -p 'process.versions.node.split(".")[0]')" -lt 20 ]; then
    echo "Node 20 or later is needed, found $(node --version)" >&2
    return 1
  fi
}

# node_env NAME FOLDER: installs FOLDER's package.json and package-lock.json. Sets NODE_ENV_DIR to where node_modules is.
node_env() {
  local name=$1 folder=$2 want
  need_node || return
  NODE_ENV_DIR=$CACHE/$name
  want=$(fingerprint "$folder/package.json" "$folder/package-lock.json")
  if [ "$(cat "$NODE_ENV_DIR/.made-from" 2>/dev/null)" = "$want" ]; then return 0; fi
  note "installing the Node environment '$name'"
  rm -rf "$NODE_ENV_DIR" && mkdir -p "$NODE_ENV_DIR" && cp "$folder/package.json" "$folder/package-lock.json" "$NODE_ENV_DIR/" &&
    (cd "$NODE_ENV_DIR" && npm ci --silent --ignore-scripts --no-audit --no-fund) &&
    echo "$want" >"$NODE_ENV_DIR/.made-from"
}
