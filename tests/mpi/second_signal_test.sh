#!/bin/sh
# second_signal_test.sh MPIEXEC PROGRAM: ranks that are busy note a signal to their keepers and go on;
# a second one ends the job at once, with the exit code a shell expects.
out=$(mktemp)
trap 'rm -f "$out"' EXIT
fail() {
  echo "$1"
  cat "$out"
  kill -KILL "$launcher" 2>/dev/null
  exit 1
}
"$1" -n 2 "$2" busy >"$out" 2>&1 &
launcher=$!
for _ in $(seq 200); do
  grep -q running "$out" && break
  sleep 0.05
done
keepers=$(for child in $(pgrep -P "$(pgrep -P "$launcher" | head -1)"); do
  [ "$(cat "/proc/$child/comm")" = shardmark-keep ] && echo "$child"
done)
[ -n "$keepers" ] || fail "no keeper found"
kill -INT $keepers
sleep 0.5
for keeper in $keepers; do
  kill -0 "$keeper" || fail "the first signal ended keeper $keeper"
done
kill -INT $keepers
for _ in $(seq 100); do
  kill -0 "$launcher" 2>/dev/null || break
  sleep 0.05
done
kill -0 "$launcher" 2>/dev/null && fail "the job goes on after two signals"
wait "$launcher"
code=$?
[ "$code" -eq 130 ] || fail "exit code $code"
