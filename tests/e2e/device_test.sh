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
  "$@" "$SHARDMARK_CP" "${layers[@]}" --heads 4 --head-dim 8 --cp 2 "${quick[@]}"
  "$@" "$SHARDMARK_PP" "${layers[@]}" --hidden 64 --heads 4 --ffn 128 --vocab 128 --layers 2 --pp 2 \
    --micro 2 --schedule 1f1b "${quick[@]}"
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

cuda_names_it_once_under_mpi() {
  skip_with_gpu
  expect 2 mpi 2 --tp 2 --hidden 64 --heads 4 --seq 32 --batch 1 "${quick[@]}" --backend cuda
  [ "$(grep -c -- '--backend cuda' err)" -eq 1 ] || fail "not one line"
}

runs_on_cpu() {
  local program=$1
  shift
  rm -rf run
  expect 0 "$program" "$@" --backend auto --out run
  [ "$(column backend run | sort -u)" = cpu ] || fail "another backend: $program"
  [ "$(column transport run | sort -u)" = threads ] || fail "another transport: $program"
  [ "$(wc -l < err)" -le 1 ] || fail "more than a notice"
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

record_is_a_dry_run() {
  local arguments=(--hidden 64 --heads 4 --seq 32 --tp 2)
  expect 0 "$SHARDMARK_TP" "${arguments[@]}" --dry-run
  cp out dry
  expect 0 "$SHARDMARK_TP" "${arguments[@]}" --backend record
  cmp -s out dry || fail "--backend record and --dry-run differ"
}

"$1"
