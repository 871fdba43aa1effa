#!/bin/sh
# interrupt_test.sh MPIEXEC PROGRAM: one SIGINT to mpirun lets the ranks end in order with code 0.
out=$(mktemp)
trap 'rm -f "$out"' EXIT
"$1" -n 2 "$2" interrupt >"$out" 2>&1 &
launcher=$!
for _ in $(seq 100); do
  grep -q running "$out" && break
  sleep 0.1
done
kill -INT "$launcher"
wait "$launcher"
code=$?
if [ "$code" -ne 0 ] || ! grep -q "interrupted, rows kept" "$out" || ! grep -q complete "$out"; then
  echo "exit code $code"
  cat "$out"
  exit 1
fi
