#!/bin/sh
# interrupt_test.sh MPIEXEC PROGRAM: one SIGINT to mpirun lets the ranks end in order, and mpirun
# returns their exit code. Hydra loses the code of ranks that end at the same instant in one run of
# ten, hence the many runs.
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for run in $(seq 20); do
  : >"$out"
  "$1" -n 2 "$2" interrupt 130 >"$out" 2>&1 &
  launcher=$!
  for _ in $(seq 200); do
    grep -q running "$out" && break
    sleep 0.05
  done
  kill -INT "$launcher"
  wait "$launcher"
  code=$?
  if [ "$code" -ne 130 ] || ! grep -q "interrupted, rows kept" "$out" || ! grep -q complete "$out"
  then
    echo "run $run: exit code $code"
    cat "$out"
    exit 1
  fi
done
