#!/usr/bin/env bash
# pipeline_test.sh NAME: runs one test of shardmark-pp. PROGRAM, MPIEXEC and SCRATCH come from CTest.
set -uo pipefail

# A stated peak saves the probes, which take longer than these rows.
brief=(--max-time 0.05 --min-samples 2 --warmup 1 --peak-tflops 0.1)
tiny=(--hidden 32 --heads 2 --seq 16 --vocab 64 "${brief[@]}")

. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
rows() { [ "$(tail -n +2 "$1/results.csv" | wc -l)" -eq "$2" ] || fail "not $2 rows in $1/results.csv"; }
all_are() { [ "$(column "$1" "$2" | sort -u)" = "$3" ] || fail "$1: $(column "$1" "$2" | sort -u)"; }

# Every row is right: checks, the time identity, and the two counts of bytes.
rows_are_right() {
  [ "$(column status "$1" | sort -u)" = ok ] || fail "a row is not ok: $(column reason "$1" | sort -u)"
  all_are check "$1" pass
  paste <(column residual_us "$1") <(column window_us "$1") |
    awk '{ if ($1 < 0) $1 = -$1; if ($1 > 0.001 * $2) exit 1 }' || fail "a residual is above 0.1 %"
  diff <(column bytes_analytic "$1") <(column bytes_observed "$1") || fail "formula and count differ"
  paste <(column hfu_pct "$1") <(column mfu_causal_pct "$1") | awk '{ if ($1 < 0.999 * $2) exit 1 }' ||
    fail "fewer operations done than the model has"
  paste -d, <(column pp "$1") <(column transfer_us "$1") <(column wait_us "$1") <(column comm_tax_pct "$1") |
    awk -F, '{ if ($1 > 1 && $2 $3 $4 != "") exit 1 }' || fail "waiting by collectives of several stages"
  paste <(column bubble_of_total "$1") <(column bubble_theory_of_total "$1") \
    <(column pp_residual_us "$1") <(column pp_window_us "$1") <(column step_replayed_us "$1") |
    awk '{ if ($3 < 0) $3 = -$3
           if ($1 <= 0 || $1 >= 1 || $2 < -1e-9 || $2 >= 1 || $3 > 0.001 * $4 || $5 <= 0) exit 1 }' ||
    fail "a bubble is no share, or its parts do not add up"
  diff <(column peak_inflight "$1") <(column peak_inflight_measured "$1") || fail "held and claimed differ"
  paste -d+ <(column rank_activation_bytes "$1") <(column rank_activation_claim_bytes "$1") |
    awk -F+ '{ for (i = 1; i <= NF / 2; ++i) if ($i < $(i + NF / 2) || $(i + NF / 2) <= 0) exit 1 }' ||
    fail "ranks hold less than the schedule claims"
}

every_schedule=(--schedule gpipe,1f1b,interleaved,zb-h1,zb-h2,zb-v,dualpipe,dualpipe-v --chunks 2)
all_files_are_there() {
  rows run 16
  rows_are_right run
  has run/run.json '"complete": true'
  has run/run.json '"program": "shardmark-pp"'
  [ "$(head -1 run/kernels.csv | cut -d, -f1)" = schema_version ] || fail "kernels.csv has no header"
  [ -f run/trace.json.gz ] || [ -f run/trace.json ] || fail "no timeline"
  [ "$(column split run | sort -u | tr '\n' ' ')" = "2+2+2+2 4+4 " ] || fail "split"
  [ "$(paste <(column schedule run) <(column peak_inflight run) | grep -c '^1f1b.2+1$')" -eq 2 ] ||
    fail "peak_inflight of 1f1b"
  has out 'theory: [0-9.]+ % \('
}
every_schedule_on_two_threads() {
  expect 0 "$PROGRAM" --ranks 2 --pp 2 --layers 8 "${tiny[@]}" "${every_schedule[@]}" --microbatches 4,8 --out run
  all_files_are_there
}
every_schedule_on_two_mpi_ranks() {
  expect 0 mpi 2 --pp 2 --layers 8 "${tiny[@]}" "${every_schedule[@]}" --microbatches 4,8 --out run
  all_files_are_there
}

three_ranks_are_right() {
  rows run 8
  [ "$(column status run | sort | uniq -c | tr -s ' \n' ' ')" = " 5 ok 3 skipped " ] ||
    fail "$(column status run)"
  has run/results.csv 'dualpipe: 3 ranks; its two directions'
  has run/results.csv 'dualpipe-v: 4 micro-batches on 3 ranks'
  has run/results.csv 'leave 1, and the last group needs at least 3'
  has out 'skipped: schedule dualpipe'
}
three_ranks_skip_what_is_not_allowed() {
  expect 0 "$PROGRAM" --ranks 3 --layers 24 "${tiny[@]}" "${every_schedule[@]}" --microbatches 4 --out run
  three_ranks_are_right
}
mpi_three_ranks() {
  expect 0 mpi 3 --layers 24 "${tiny[@]}" "${every_schedule[@]}" --microbatches 4 --out run
  three_ranks_are_right
}
one_rank_runs_all_stages() {
  expect 0 "$PROGRAM" --ranks 1 "${tiny[@]}" --schedule gpipe,zb-v,interleaved --microbatches 3 --out run
  rows run 3
  rows_are_right run
  all_are p2p run none
}

tp_inside_a_stage_and_dp_around_it() {
  expect 0 "$PROGRAM" --ranks 4 "${tiny[@]}" --pp 2 --tp 1,2 --schedule 1f1b,zb-v --out tp
  rows tp 4
  rows_are_right tp
  expect 0 "$PROGRAM" --ranks 4 "${tiny[@]}" --pp 2 --dp 1,2 --schedule 1f1b,dualpipe --out dp
  rows dp 4
  rows_are_right dp
  [ "$(column group_size dp | sort -u | tr '\n' ' ')" = "2 4 " ] || fail "group_size"
}
merged_messages() {
  expect 0 "$PROGRAM" --ranks 3 --layers 6 "${tiny[@]}" --p2p split,merged \
    --schedule 1f1b,zb-v,interleaved --microbatches 6 --out run
  rows run 6
  rows_are_right run
  [ "$(column p2p run | sort -u | tr '\n' ' ')" = "merged split " ] || fail "p2p"
}
both_dtypes() {
  expect 0 "$PROGRAM" --ranks 2 "${tiny[@]}" --dtype f32,bf16 --schedule gpipe,zb-h1 --out run
  rows run 4
  rows_are_right run
}
uneven_and_given_splits() {
  expect 0 "$PROGRAM" --ranks 3 --layers 7 "${tiny[@]}" --schedule 1f1b,zb-v --microbatches 2,5 --out even
  rows even 4
  rows_are_right even
  has out '7 layers in 3 stages are uneven: 3\+2\+2 blocks'
  # Of ranks with unequal work a measured row and a predicted one count alike.
  expect 0 "$PROGRAM" --predict h100-sxm-8 --pp 3 --layers 7 --hidden 32 --heads 2 --seq 16 --vocab 64 \
    --schedule 1f1b,zb-v --microbatches 2,5 --out predicted
  for name in flops_hw bytes_analytic bytes_observed mem_predicted_bytes; do
    diff <(column $name even) <(column $name predicted) || fail "$name differs from the predicted one"
  done
  expect 0 "$PROGRAM" --ranks 3 --layers 7 "${tiny[@]}" --split 4,2,1 --out given
  rows_are_right given
  all_are split given 4+2+1
}

balance_by_measured_cost() {
  expect 0 "$PROGRAM" --ranks 2 --layers 6 --hidden 32 --heads 2 --seq 64 --vocab 16k "${brief[@]}" \
    --balance count,measured --out run
  rows run 2
  rows_are_right run
  [ "$(column balance run | tr '\n' ' ')" = "count measured " ] || fail "balance"
  [ "$(column split run | tr '\n' ' ')" = "3+3 5+1 " ] || fail "split: $(column split run)"
  has out 'head [0-9.]+ ms of a micro-batch: 5\+1 blocks instead of 3\+3; slowest rank .* % less'
  has run/run.json '"gain_pct"'
  has out '5\+1 blocks instead of 3\+3: the slowest rank computes [0-9.]+ instead of [0-9.]+ ms'
  has run/run.json '"balance_measured"'
}

fitted_to_measured_times() {
  expect 0 "$PROGRAM" --ranks 3 --layers 6 "${tiny[@]}" --schedule zb-h1,zb-v --fit --memory-limit 6 --out run
  rows run 2
  rows_are_right run
  [ "$(column schedule run | tr '\n' ' ')" = "zb-h1-fit-max6 zb-v-fit-max6 " ] || fail "schedule"
  has out 'ms: embedding [0-9.]+ \+ .*; block .*; head .*; message [0-9.]+'
}

recomputation_and_tied_embeddings() {
  expect 0 "$PROGRAM" --ranks 3 --layers 6 "${tiny[@]}" --schedule 1f1b,interleaved --microbatches 6 \
    --recompute none,selective,full --tie-embeddings on --out run
  rows run 6
  rows_are_right run
  all_are tied_embeddings run true
  all_are check_exact run true
  [ "$(column recompute run | tr '\n' ' ')" = "none selective full none selective full " ] || fail recompute
  # More memory for activations, fewer operations, and the other way round.
  paste <(column rank_activation_bytes run | cut -d+ -f1) <(column flops_hw run) <(column flops_model_causal run) |
    awk '{ if (NR % 3 != 1 && ($1 >= bytes || $2 <= flops || $3 != model)) exit 1
           bytes = $1; flops = $2; model = $3 }' || fail "bytes and operations of recomputation"
  expect 2 "$PROGRAM" --ranks 3 --layers 6 "${tiny[@]}" --schedule zb-v --recompute full
  has err 'recompute full: zb-v has weight gradients apart'
}
sequence_parallelism_inside_a_stage() {
  expect 0 "$PROGRAM" --ranks 4 "${tiny[@]}" --pp 2 --tp 2 --schedule 1f1b,zb-v --sequence-parallel off,on \
    --kv-heads 1 --positions learned --out run
  rows run 4
  rows_are_right run
  [ "$(column sp run | tr '\n' ' ')" = "false true false true " ] || fail "sp"
}

# Both steps on all ranks as pp and as tp, one request and more than stages.
inference=(--mode infer --heads 6 --hidden 48 --ffn 96 --seq 16 --vocab 96 --layers 6 --batch 2
  --tokens 3 "${brief[@]}")
inference_is_right() {
  local ranks=$1
  rows run 8
  [ "$(column status run | sort -u)" = ok ] || fail "a row is not ok: $(column reason run | sort -u)"
  all_are check run pass
  all_are mode run infer
  all_are phase run fwd
  diff <(column bytes_analytic run) <(column bytes_observed run) || fail "formula and count differ"
  [ "$(paste -d' ' <(column step run) <(column pp run) <(column tp run) <(column microbatches run) | tr '\n' ',')" = \
    "prefill $ranks 1 1,prefill $ranks 1 4,prefill 1 $ranks 1,prefill 1 $ranks 4,decode $ranks 1 1,decode $ranks 1 4,decode 1 $ranks 1,decode 1 $ranks 4," ] ||
    fail "rows"
  paste -d, <(column step run) <(column ttft_us run) <(column time_per_token_us run) <(column tokens_per_s run) |
    awk -F, '{ if (($1 == "prefill") != ($2 > 0) || ($1 == "decode") != ($3 > 0) || $4 <= 0) exit 1 }' ||
    fail "a time is missing"
  paste -d, <(column pp run) <(column microbatches run) <(column hop_us run) |
    awk -F, '{ if (($1 > 1 && $2 == 1) != ($3 != "")) exit 1 }' || fail "hop_us"
  has out "[pt]p $ranks is [0-9.]+x as fast per token at 1 request; [pt]p $ranks gives [0-9.]+x the tokens/s"
  has run/run.json '"tp_against_pp"'
}
inference_on_two_threads() {
  expect 0 "$PROGRAM" --ranks 2 --tp 1,2 "${inference[@]}" --out run
  inference_is_right 2
  [ "$(column kv_cache_bytes run | sort -n | head -1)" -eq $((3 * 2 * 16 * 2 * 48 * 4)) ] || fail "kv_cache_bytes"
  expect 0 "$PROGRAM" --ranks 2 --tp 1,2 "${inference[@]}" --microbatches 1,4,5 --step decode --out run --resume
  has out '4 of 6 rows are in run/results.csv already'
  rows run 10
}
inference_on_three_threads() {
  expect 0 "$PROGRAM" --ranks 3 --tp 1,3 "${inference[@]}" --positions rotary --kv-heads 3 --out run
  inference_is_right 3
  expect 0 "$PROGRAM" --ranks 3 "${inference[@]}" --split 1,2,3 --step decode --dtype bf16 --out split
  all_are check split pass
  all_are split split 1+2+3
}
inference_on_three_mpi_ranks() {
  expect 0 mpi 3 --tp 1,3 "${inference[@]}" --out run
  inference_is_right 3
}
inference_without_ranks() {
  expect 0 "$PROGRAM" --dry-run --pp 1,4 --tp 1,2 "${inference[@]}"
  [ "$(grep -c 'no race, all collectives match, no deadlock' out)" -eq 16 ] || fail "a check is missing"
  has out 'decode pp 4 requests 4 tokens 3 tp 2'
  expect 0 "$PROGRAM" --predict h100-sxm-8 --mode infer --model llama3-70b --dtype bf16 --seq 2k --tp 1,8 \
    --microbatches 1,8 --tokens 2 --out run
  rows run 8
  has out 'tp 8 is [0-9.]+x as fast per token at 1 request; pp 8 gives [0-9.]+x the tokens/s from'
  expect 2 "$PROGRAM" --mode infer --schedule 1f1b
  has err '--schedule is about training'
  expect 2 "$PROGRAM" --mode infer --ranks 3 --layers 2
  has err '2 layers for 3 stages'
}

resume_skips_finished_rows() {
  expect 0 "$PROGRAM" --ranks 2 "${tiny[@]}" --out run
  rows run 1
  expect 0 "$PROGRAM" --ranks 2 "${tiny[@]}" --schedule gpipe,1f1b --out run --resume
  has out '1 of 2 rows are in run/results.csv already'
  rows run 2
}

a_printed_schedule_runs_again() {
  expect 0 "$PROGRAM" --print-schedule csv --schedule zb-v --pp 3 --microbatches 6
  cp out mine.csv
  expect 0 "$PROGRAM" --schedule-file mine.csv --layers 6 "${tiny[@]}" --out run
  rows_are_right run
  all_are schedule run mine.csv
  all_are vpp run 2
  expect 0 "$PROGRAM" --schedule-file mine.csv --print-schedule csv
  diff out mine.csv || fail "the schedule changed"
  expect 0 "$PROGRAM" --schedule 1f1b,dualpipe --pp 3 --microbatches 3 --print-schedule grid
  has out '^rank 2  '
  has out 'dualpipe, 3 ranks.*must be even'
}
a_fitted_schedule_is_printed_and_runs_again() {
  local fit=(--fit --pp 3 --microbatches 6 --layers 6 --hidden 64 --heads 2 --seq 32 --vocab 64)
  expect 0 "$PROGRAM" "${fit[@]}" --schedule zb-h1 --print-schedule csv
  cp out fitted.csv
  [ "$(wc -l < fitted.csv)" -eq 3 ] || fail "not a line for each of three ranks"
  has_not fitted.csv SEND
  expect 0 "$PROGRAM" --schedule-file fitted.csv --layers 6 "${tiny[@]}" --out run
  rows_are_right run
  expect 0 "$PROGRAM" "${fit[@]}" --schedule zb-h1 --p2p split --print-schedule csv
  has out 'SEND_F0'
  expect 0 "$PROGRAM" "${fit[@]}" --schedule 1f1b,zb-h1 --print-schedule grid
  has out 'zb-h1-fit pp 3 m 6.*: bubble [0-9.]+ % of the window at measured times'
  has out ' 1f1b pp 3 m 6.*: bubble '
  [ "$(grep -c '^rank 2  ' out)" -eq 2 ] || fail "not two grids"
}
broken_schedules_are_refused() {
  printf '0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n' > deadlock.csv
  expect 2 "$PROGRAM" --schedule-file deadlock.csv "${tiny[@]}"
  has err 'deadlock'
  has err '>0B0<'
  printf '0F0,0B0\n1F0\n' > missing.csv
  expect 2 "$PROGRAM" --schedule-file missing.csv "${tiny[@]}"
  has err '1B0, or 1I0 and 1W0, is missing'
}

bad_input_exits_with_2() {
  expect 2 "$PROGRAM" --ranks 2 --pp 4 "${tiny[@]}"
  has err 'pp 4 x tp 1 x dp 1 needs 4 ranks'
  expect 2 "$PROGRAM" --ranks 3 --layers 2 "${tiny[@]}"
  has err '2 layers for 3 stages'
  expect 2 "$PROGRAM" --ranks 3 --schedule dualpipe "${tiny[@]}"
  has err 'must be even'
  expect 2 "$PROGRAM" --ranks 2 --schedule dualpipe --microbatches 2 "${tiny[@]}"
  has err 'at least 2 per rank'
  expect 2 "$PROGRAM" --ranks 2 --split 4,5 "${tiny[@]}"
  has err 'split 4,5 adds up to 9'
  expect 2 "$PROGRAM" --schedule 1f2b
  has err 'did you mean 1f1b\?'
  [ ! -s out ] || fail "something was measured"
}
mpi_bad_input_is_printed_once() {
  expect 2 mpi 3 --layers 2 "${tiny[@]}"
  [ "$(grep -c '2 layers for 3 stages' err)" -eq 1 ] || fail "not printed once"
}

dry_run_needs_no_ranks() {
  expect 0 "$PROGRAM" --dry-run --pp 4 --tp 2 "${tiny[@]}" --schedule 1f1b,zb-v,dualpipe
  [ "$(grep -c 'no race, all collectives match, no deadlock' out)" -eq 3 ] || fail "a check is missing"
  has out 'zb-v pp 4 x 2 chunks m 8 tp 2'
}

help_and_lists() {
  expect 0 "$PROGRAM" --help
  has out 'example: --print-schedule grid'
  expect 0 "$PROGRAM" --list-columns
  has out '`microbatches` \|'
  expect 0 "$PROGRAM" --list-schedules
  has out '^zb-h1: '
  expect 0 "$PROGRAM" --list-models
  has out '^gpt3-175b: '
}

"$1"
echo passed
