#!/usr/bin/env bash
# device_test.sh NAME: what the programs say about the device they compute on. SHARDMARK_TP, _CP, _PP,
# _COLLECTIVES, MPIEXEC and SCRATCH come from CTest.
set -uo pipefail

PROGRAM=$SHARDMARK_TP
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

quick=(--max-time 0.02 --min-samples 1 --warmup 0)
layers=(--ranks 2 --seq 32 --batch 1)
# each COMMAND...: runs it for every program, with arguments that make a short run.
each() {
  "$@" "$SHARDMARK_TP" "${layers[@]}" --hidden 64 --heads 4 --ffn 128 --tp 2 "${quick[@]}"
  "$@" "$SHARDMARK_CP" "${layers[@]}" --heads 4 --head-dim 8 --cp 2 --kind ring "${quick[@]}"
  "$@" "$SHARDMARK_PP" "${layers[@]}" --hidden 64 --heads 4 --ffn 128 --vocab 128 --layers 2 --pp 2 \
    --microbatches 2 --schedule 1f1b "${quick[@]}"
  "$@" "$SHARDMARK_COLLECTIVES" all_reduce --ranks 2 -b 8 -e 64 -f 8 --max-time 0.02 --min-samples 1
}

skip_with_gpu() {
  if "$SHARDMARK_TP" "${layers[@]}" --hidden 64 --heads 4 --ffn 128 --tp 1 --ranks 1 "${quick[@]}" \
    --backend cuda > out 2> err; then
    echo "there is a GPU"
    exit 77
  fi
}

refuses() {
  local program=$1
  shift
  expect 2 "$program" "$@" --backend cuda
  has err '^shardmark: --backend cuda: .*(without CUDA|driver|device)'
  has err '--backend cpu works'
  [ "$(wc -l < err)" -eq 1 ] || fail "more than one line"
  [ ! -s out ] || fail "something was printed"
}
cuda_names_what_is_missing() {
  skip_with_gpu
  each refuses
}

without_ranks() {  # the launcher decides how many: drops "--ranks 2"
  kept=()
  while [ $# -gt 0 ]; do
    if [ "$1" = --ranks ]; then shift; else kept+=("$1"); fi
    shift
  done
}
refuses_once() {
  local program=$1
  shift
  without_ranks "$@"
  expect 2 "$MPIEXEC" -n 2 "$program" "${kept[@]}" --backend cuda
  [ "$(grep -c -- '--backend cuda' err)" -eq 1 ] || fail "not one line: $program"
}
cuda_names_it_once_under_mpi() {
  skip_with_gpu
  each refuses_once
}

# What an earlier run left is still there, under its own name.
cuda_loses_nothing() {
  skip_with_gpu
  local run=(--ranks 1 --tp 1 --hidden 64 --heads 4 --ffn 128 --seq 32 --batch 1 "${quick[@]}" --out run)
  expect 0 "$SHARDMARK_TP" "${run[@]}"
  cp run/results.csv before
  expect 2 "$SHARDMARK_TP" "${run[@]}" --backend cuda
  cmp -s run/results.csv before || fail "results.csv is another"
  [ ! -e run/results.csv.old ] || fail "results.csv was renamed"
}

runs_on_cpu() {
  local program=$1
  shift
  rm -rf run
  expect 0 "$program" "$@" --backend auto --out run
  [ "$(column backend run | sort -u)" = cpu ] || fail "another backend: $program"
  [ "$(column transport run | sort -u)" = threads ] || fail "another transport: $program"
  [ -n "$(column device run | sort -u)" ] || fail "no device: $program"
  head -1 run/results.csv > auto_columns
  has run/run.json '"control_plane": "threads"'
  has run/run.json '"device": ".'
  [ "$(grep -c '^shardmark: ' err)" -le 1 ] || fail "more than a notice"
  rm -rf run
  expect 0 "$program" "$@" --backend cpu --out run
  head -1 run/results.csv | cmp -s - auto_columns || fail "other columns than with auto: $program"
}
auto_takes_the_cpu() {
  skip_with_gpu
  each runs_on_cpu
}

options_of_gpus_need_one() {
  skip_with_gpu
  expect 2 "$SHARDMARK_TP" --transport staged
  has err '--transport staged: '
  expect 2 "$SHARDMARK_TP" --transport staged --backend cpu
  has err 'leave one of them out'
}

records() {
  local program=$1
  shift
  expect 0 "$program" "$@" --dry-run
  cp out dry
  [ -s dry ] || fail "nothing was printed: $program"
  expect 0 "$program" "$@" --backend record
  cmp -s out dry || fail "--backend record and --dry-run differ: $program"
  expect 2 "$program" "$@" --backend record --device 0
  has err '--device 0'
}
record_is_a_dry_run() { each records; }

# Of all_reduce over n ranks each link carries at least 2 (n - 1) / n of the data, and a ring does that.
dry_run_of_collectives_has_the_bytes() {
  expect 0 "$SHARDMARK_COLLECTIVES" all_reduce --ranks 3 -b 3K -e 3K --algorithm native,ring --dry-run
  [ "$(awk '$1 == "all_reduce" { print $7 }' out | sort -u)" = 4096 ] || fail "not 4/3 of 3 KiB"
  [ "$(awk '$2 == "ring" { print $9 }' out)" -gt 1 ] || fail "a ring has several steps"
  expect 2 "$SHARDMARK_COLLECTIVES" all_reduce --dry-run --out run
  has err '--out'
}

"$1"
