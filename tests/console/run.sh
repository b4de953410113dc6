#!/usr/bin/env bash
# A real browser in front of the running binary: signing in, every view of the console, accessibility, screenshots.
# usage: tests/console/run.sh BINARY [option of node --test...]
# Screenshots go to target/console-screenshots, or to CONSOLE_SCREENSHOTS. With CONSOLE_ASSETS=src/server/console/assets the page's files
# are read from there and not from the binary: a change is tried without a build.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/../tools/env.sh"
BINARY=$(realpath "${1:?usage: run.sh BINARY}")
shift

# need_chromium: a Chromium or Chrome that is installed already, or Debian's. Sets CHROMIUM.
need_chromium() {
  local name
  for name in chromium chromium-browser google-chrome; do
    if CHROMIUM=$(command -v "$name"); then return 0; fi
  done
  apt_install chromium && CHROMIUM=$(command -v chromium)
}

need_chromium
if ! command -v python3 >/dev/null; then apt_install python3; fi
node_env console "$HERE"
export CHROMIUM CONSOLE_SCREENSHOTS=${CONSOLE_SCREENSHOTS:-$ROOT/target/console-screenshots}
if [ -n "${CONSOLE_ASSETS:-}" ]; then CONSOLE_ASSETS=$(realpath "$CONSOLE_ASSETS"); fi
mkdir -p "$CONSOLE_SCREENSHOTS"
CONSOLE_SCREENSHOTS=$(realpath "$CONSOLE_SCREENSHOTS")
# Node resolves packages from a file's own folder upwards, so the tests run beside the installed ones.
rm -f "$NODE_ENV_DIR"/*.mjs
cp "$HERE"/*.mjs "$NODE_ENV_DIR/"
cd "$NODE_ENV_DIR"
exec python3 "$HERE/harness.py" "$BINARY" node --test --test-concurrency=1 --test-reporter=spec "$@" console.test.mjs
