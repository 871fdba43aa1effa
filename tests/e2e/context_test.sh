#!/usr/bin/env bash
# context_test.sh NAME: runs one test of shardmark-cp. PROGRAM, MPIEXEC and SCRATCH come from CTest.
set -uo pipefail

# A stated peak saves the probes, which take longer than these rows.
brief=(--max-time 0.05 --min-samples 2 --warmup 1 --peak-tflops 0.1)
tiny=(--seq 96 --heads 4 --head-dim 16 "${brief[@]}")

. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
rows() { [ "$(tail -n +2 "$1/results.csv" | wc -l)" -eq "$2" ] || fail "not $2 rows in $1/results.csv"; }

# Every row is right: checks, the time identity, and the three counts of bytes.
rows_are_right() {
  [ "$(column check "$1" | sort -u)" = pass ] || fail "a check did not pass"
  [ "$(column status "$1" | sort -u)" = ok ] || fail "a row is not ok: $(column reason "$1" | sort -u)"
  paste <(column residual_us "$1") <(column window_us "$1") |
    awk '{ if ($1 < 0) $1 = -$1; if ($1 > 0.001 * $2) exit 1 }' || fail "a residual is above 0.1 %"
  diff <(column bytes_analytic "$1") <(column bytes_observed "$1") || fail "formula and count differ"
  diff <(column bytes_plan "$1") <(column bytes_observed "$1") || fail "plan and count differ"
}

all_files_are_there() {
  rows run 15
  rows_are_right run
  has run/run.json '"complete": true'
  has run/run.json '"program": "shardmark-cp"'
  has run/run.json '"hiding_seq_forward"'
  [ "$(head -1 run/kernels.csv | cut -d, -f1)" = schema_version ] || fail "kernels.csv has no header"
  has run/kernels.csv 'step/ring_backward/step1'
  [ -f run/trace.json.gz ] || [ -f run/trace.json ] || fail "no timeline"
  # Contiguous causal on 2 ranks: at most P^2 / (2P - 1) = 4/3 times as fast.
  column speedup_ceiling run | grep -q '^1\.3[234]' || fail "no ceiling of 1.33"
  has out 'ring zigzag.*predicted|predicted fastest: cp 2'
  has out 'equal at P = \(h\+hkv\)/hkv = 2\.0'
}
every_kind_and_order=(--kind ring,ulysses,all-gather --order contiguous,zigzag,striped --overlap both)
threads_run_writes_all_files() {
  expect 0 "$PROGRAM" --ranks 2 "${tiny[@]}" "${every_kind_and_order[@]}" --out run
  all_files_are_there
}
mpi_run_writes_all_files() {
  expect 0 mpi 2 "${tiny[@]}" "${every_kind_and_order[@]}" --out run
  all_files_are_there
}

three_ranks_of_every_kind() {
  expect 0 "$PROGRAM" --ranks 3 --cp 3 --heads 6 --kv-heads 6,3,1 --seq 96 --head-dim 16 \
    "${brief[@]}" --kind ring,ulysses,all-gather --order contiguous,zigzag,striped --out run
  rows run 21
  rows_are_right run
}
masks_and_grouped_queries() {
  expect 0 "$PROGRAM" --ranks 2 --cp 2 "${tiny[@]}" --kv-heads 1 --causal off --window 17,200 \
    --order contiguous,striped --out window
  rows window 10
  rows_are_right window
  expect 0 "$PROGRAM" --ranks 2 --cp 2 "${brief[@]}" --heads 4 --head-dim 16 --seqlens 40,24,64 \
    --order contiguous,zigzag --out packed
  [ "$(column seqlens packed | sort -u)" = 40+24+64 ] || fail "seqlens"
  [ "$(column seq packed | sort -u)" = 128 ] || fail "seq is not the sum"
  rows_are_right packed
}
hybrid_and_tp() {
  expect 0 "$PROGRAM" --ranks 4 --cp 4 --kind hybrid "${tiny[@]}" --order contiguous,zigzag --out inner
  expect 0 "$PROGRAM" --ranks 4 --cp 4 --kind hybrid --ulysses-outer on "${tiny[@]}" --out outer
  expect 0 "$PROGRAM" --ranks 4 --cp 1,2 --tp 2 "${tiny[@]}" --kv-heads 2 --out tp
  expect 0 "$PROGRAM" --ranks 4 --cp 4 --kind hybrid --seq 64 --heads 16 --kv-heads 2 --head-dim 16 \
    "${brief[@]}" --out few_kv
  [ "$(column group_size tp | sort -u | tr '\n' ' ')" = "2 4 " ] || fail "group_size"
  for folder in inner outer tp few_kv; do rows_are_right $folder; done
}
a_block_with_sequence_parallelism() {
  expect 0 "$PROGRAM" --ranks 4 --cp 1,2 --tp 2 --sp off,on "${tiny[@]}" --scope block \
    --positions rotary --norm rms --mlp swiglu --biases off --kv-heads 2 --out run
  rows run 8
  rows_are_right run
}
both_dtypes_and_phases() {
  expect 0 "$PROGRAM" --ranks 2 --cp 2 "${tiny[@]}" --dtype f32,bf16 --phase fwd,bwd,step --out run
  rows run 18
  rows_are_right run
}

resume_skips_finished_rows() {
  expect 0 "$PROGRAM" --ranks 2 "${tiny[@]}" --kind ring --out run
  rows run 2
  expect 0 "$PROGRAM" --ranks 2 "${tiny[@]}" --kind ring,ulysses --out run --resume
  has out '2 of 3 rows are in run/results.csv already'
  rows run 3
  # The columns of another program are not continued.
  sed -i '1s/cp_kind/kind/' run/results.csv
  expect 2 "$PROGRAM" --ranks 2 "${tiny[@]}" --kind ring --out run --resume
  has err 'other columns'
}

bad_input_exits_with_2() {
  expect 2 "$PROGRAM" --ranks 3 --cp 2 "${tiny[@]}"
  has err 'cp 2 x tp 1 does not divide the 3 ranks; try cp 1 or 3'
  expect 2 "$PROGRAM" --ranks 2 --cp 4 "${tiny[@]}"
  has err 'cp 4 x tp 1 needs 4 ranks'
  expect 2 "$PROGRAM" --ranks 2 --cp 2 --kind ring --order zigzag --heads 4 --seq 98
  has err 'seq 98'
  expect 2 "$PROGRAM" --ranks 4 --cp 4 --kind ulysses --heads 2
  has err 'heads 2'
  expect 2 "$PROGRAM" --ranks 2 --cp 2 --heads 6 --kv-heads 4
  has err 'kv_heads 4'
  expect 2 "$PROGRAM" --ranks 2 --window 0
  has err "--window: '0'"
  expect 2 "$PROGRAM" --ranks 2 --seqlens 40,24 --seq 128 --heads 4
  has err '64'
  expect 2 "$PROGRAM" --kind rings
  has err 'did you mean ring\?'
  [ ! -s out ] || fail "something was measured"
}
mpi_bad_input_is_printed_once() {
  expect 2 mpi 3 --cp 2 "${tiny[@]}"
  [ "$(grep -c 'does not divide the 3 ranks' err)" -eq 1 ] || fail "not printed once"
}
what_cannot_run_is_skipped() {
  expect 0 "$PROGRAM" --ranks 4 --cp 4 --kind ring,ulysses --heads 2 --seq 96 --head-dim 16 \
    "${brief[@]}" --out run
  rows run 2
  [ "$(column status run | sort | tr '\n' ' ')" = "ok skipped " ] || fail "status"
  has out 'skipped: heads 2'
}

dry_run_of_a_million_tokens() {
  expect 0 timeout 60 "$PROGRAM" --dry-run --cp 64 --kind ring,ulysses,all-gather --seq 1m --heads 64
  [ "$(grep -c 'no race, all collectives match, no deadlock' out)" -eq 3 ] || fail "a check is missing"
  has out 'cp 64 ring zigzag'
}

advice_needs_no_rows() {
  expect 0 "$PROGRAM" --ranks 3 --advise --seq 1536,96k --heads 6 --kv-heads 6,2 --phase fwd
  [ "$(grep -c 'predicted fastest: cp 3' out)" -eq 4 ] || fail "not four shapes"
  has out 'the ring hides its exchange from s = [0-9]+ tokens'
  has out 'at most heads / tp = 6 ranks; beyond kv-heads / tp = 2'
  has out 'ring of 3 ranks: [0-9.]+ us \+ bytes / [0-9.]+ GB/s'
  expect 2 "$PROGRAM" --ranks 1 --advise
  has err 'start more'
}

help_and_lists() {
  expect 0 "$PROGRAM" --help
  has out 'example: --order contiguous,zigzag'
  expect 0 "$PROGRAM" --list-columns
  has out '`speedup_ceiling` \|'
  expect 0 "$PROGRAM" --version
  has out '^shardmark [0-9]'
}

"$1"
echo passed
