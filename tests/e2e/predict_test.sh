#!/usr/bin/env bash
# predict_test.sh NAME: runs one test of predictions. PROGRAM (shardmark-tp), CONTEXT (-cp), PIPELINE
# (-pp), MPIEXEC, PYTHON, SOURCE and SCRATCH come from CTest.
set -uo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
rows() { [ "$(tail -n +2 "$1/results.csv" | wc -l)" -eq "$2" ] || fail "not $2 rows in $1/results.csv"; }
all_are() { [ "$(column "$1" "$3" | sort -u)" = "$2" ] || fail "$1 in $3 is not '$2'"; }
llama=(--predict h100-sxm-8 --model llama3-8b --dtype bf16)
short=(--hidden 128 --seq 32 --check off --max-time 0.1 --min-samples 2 --warmup 1 --peak-tflops 0.1)

predicts_a_model() {
  expect 0 "$PROGRAM" "${llama[@]}" --tp 1,2,4,8 --out run
  has out 'predicted, nothing was run'
  has out 'machine h100-sxm-8: NVIDIA H100'
  has out 'Summary'
  rows run 4
  all_are status ok run
  all_are source predicted run
  all_are machine h100-sxm-8 run
  all_are peak_source machine:h100-sxm-8 run
  all_are backend record run
  for name in transport samples cv_pct check check_mode profiler_overhead_pct; do all_are $name '' run; done
  [ "$(column world_size run | tr '\n' ' ')" = '1 2 4 8 ' ] || fail "world_size"
  # More ranks take less time.
  column time_us_p50 run | sort -c -g -r || fail "times do not fall"
  has run/kernels.csv ',predicted,h100-sxm-8,0,step/'
  has run/run.json '"complete": true'
  has run/run.json '"predicted_for"'
  if [ -f run/trace.json.gz ]; then gunzip -c run/trace.json.gz; else cat run/trace.json; fi > trace
  has trace 'ncclDevKernel_AllReduce_Sum_bf16 \(shardmark predicted\)'
  has trace '"world_size": 8'
}

resumes() {
  expect 0 "$PROGRAM" "${llama[@]}" --tp 1 --out run
  expect 0 "$PROGRAM" "${llama[@]}" --tp 1,2 --out run --resume
  has out '1 of 2 rows are in run/results.csv already'
  rows run 2
  expect 0 "$PROGRAM" "${llama[@]/h100-sxm-8/a100-sxm-8}" --tp 1,2 --out run --resume
  has out '0 of 2 rows'
  rows run 4
  expect 2 "$PROGRAM" --ranks 1 "${short[@]}" --out run --resume
  has err 'run/results.csv has rows that are predicted, and these would be measured; use another --out'
  rows run 4
  expect 0 "$PROGRAM" --ranks 1 "${short[@]}" --out measured
  expect 2 "$PROGRAM" "${llama[@]}" --tp 1 --out measured --resume
  has err 'has rows that are measured, and these would be predicted'
  rows measured 1
}

machines_are_listed() {
  expect 0 "$PROGRAM" --list-machines
  has out '^a100-sxm-8: '
  has out '^h200-sxm-8: '
  expect 2 "$PROGRAM" --predict h100
  has err "no machine 'h100'.*the machines are a100-sxm-8, h100-sxm-8, h200-sxm-8"
}

bad_machine_files_exit_with_2() {
  local good=$SOURCE/sim/machines/h100-sxm-8.json
  expect 0 "$PROGRAM" --predict "$good" --tp 1
  refused() { # PATTERN REASON: the file with the pattern (of sed) applied
    sed "$1" "$good" > bad.json
    cmp -s "$good" bad.json && fail "nothing changed by $1"
    expect 2 "$PROGRAM" --predict bad.json --tp 1
    has err "machine file bad.json: $2"
    [ ! -s out ] || fail "something was predicted"
  }
  refused '/"memory_bandwidth"/s,"GB/s","GiB/s",' "memory_bandwidth.unit is 'GiB/s'; allowed are GB/s"
  refused '/"launch_overhead"/s/"value": 1/"value": -1/' 'launch_overhead.value is -1; it must be 0 or more'
  refused 's/"memory_bandwidth"/"memory"/' "has the unknown key 'memory'"
  refused '/"launch_overhead"/d' "lacks the key 'launch_overhead'"
  echo '{' > bad.json
  expect 2 "$PROGRAM" --predict bad.json
  has err 'machine file bad.json is not JSON'
  : > bad.json
  expect 2 "$PROGRAM" --predict bad.json
  has err 'machine file bad.json is empty'
}

# A tiny run: what it predicts is not looked at, only that all of it can be used.
calibrates_and_predicts_itself() {
  local sp=(--sequence-parallel off,on)
  local brief=(--ranks 2 --tp 1,2 --max-time 0.1 --min-samples 2 --warmup 1 --peak-tflops 0.1 --check off)
  expect 0 "$PROGRAM" "${brief[@]}" "${sp[@]}" --hidden 256 --seq 64,128 --out run
  expect 0 "$PROGRAM" --calibrate run --machine-name mine
  cp out mine.json
  has mine.json '"name": "mine"'
  has mine.json 'measured by shardmark-tp run '
  expect 0 "$PROGRAM" --predict mine.json --tp 1,2,4 "${sp[@]}" --hidden 512 --seq 64 --out predicted
  all_are machine mine predicted
  has out 'skipped: machine mine is one node of 2 ranks, and this takes 4'
  diff <(head -1 run/results.csv) <(head -1 predicted/results.csv) || fail "other columns"
  diff <(head -1 run/kernels.csv) <(head -1 predicted/kernels.csv) || fail "other columns of kernels"
  expect 0 "$PROGRAM" --calibrate run
  has out '"name": "calibrated"'
  expect 2 "$PROGRAM" --calibrate predicted
  has err '--calibrate predicted: the run is itself a prediction'
  expect 2 "$PROGRAM" --calibrate nowhere
  has err '--calibrate nowhere: cannot read nowhere/kernels.csv'
  [ -n "$PYTHON" ] || return 0
  expect 0 "$PROGRAM" "${brief[@]}" "${sp[@]}" --hidden 512 --seq 64 --out measured
  expect 0 "$PYTHON" -B "$SOURCE/scripts/goals_predict.py" run measured predicted
  has out '^\| op_or_block block phase step dtype f32 tp 2 sp true .*hidden 512.* \| [0-9.]+ \| [0-9.]+ \| '
  has out 'mean error of their predicted times'
}

contradictions_are_refused() {
  expect 2 "$PROGRAM" "${llama[@]}" --ranks 2
  has err '--predict runs nothing that --ranks'
  expect 2 "$PROGRAM" "${llama[@]}" --algorithm tp=ring
  has err 'leave out --algorithm'
}

refuses_a_launcher() {
  expect 2 mpi 2 "${llama[@]}" --tp 1,2
  has err '--predict needs no ranks, but 2 were started'
  [ "$(grep -c 'needs no ranks' err)" -eq 1 ] || fail "not printed once"
  expect 0 mpi 1 "${llama[@]}" --tp 1,2
}

# A run of another program makes a machine that predicts its own rows; one without communication does not.
calibrates_pipelines() {
  local brief=(--ranks 2 --layers 2 --hidden 64 --heads 2 --seq 32 --vocab 64 --microbatches 2
    --max-time 0.1 --min-samples 2 --warmup 1 --peak-tflops 0.1 --check off)
  expect 0 "$PIPELINE" "${brief[@]}" --pp 1,2 --out run
  expect 0 "$PROGRAM" --calibrate run --machine-name mine
  cp out mine.json
  has mine.json 'measured by shardmark-pp run '
  has mine.json '"send_recv"'
  expect 0 "$PIPELINE" --predict mine.json --layers 4 --hidden 64 --heads 2 --seq 32 --vocab 64 --pp 2 --microbatches 2
  expect 0 "$PIPELINE" "${brief[@]}" --pp 1 --out alone
  expect 2 "$PROGRAM" --calibrate alone
  has err 'or --pp 2\) among its degrees'
}
calibrates_split_sequences() {
  local brief=(--ranks 2 --cp 1,2 --heads 2 --head-dim 16 --seq 64 --max-time 0.1 --min-samples 2 --warmup 1
    --peak-tflops 0.1 --check off)
  expect 0 "$CONTEXT" "${brief[@]}" --scope block --overlap off --out run
  expect 0 "$PROGRAM" --calibrate run
  has out 'measured by shardmark-cp run '
  has out '"all_to_all"'
  expect 0 "$CONTEXT" "${brief[@]}" --overlap on --out hidden
  expect 2 "$PROGRAM" --calibrate hidden
  has err 'no communication between ranks without --overlap'
}

predicts_split_sequences() {
  expect 0 "$CONTEXT" --predict h100-sxm-8 --cp 1,3,8 --kind ring,ulysses --order contiguous,zigzag --seq 6k \
    --heads 24 --dtype bf16 --out run
  all_are status ok run
  all_are source predicted run
  has out 'machine h100-sxm-8'
  has_not out 'links'
  for name in samples check; do all_are $name '' run; done
  expect 2 "$CONTEXT" --predict h100-sxm-8 --advise
  has err '--advise measures no rows for --predict'
}

predicts_pipelines() {
  expect 0 "$PIPELINE" --predict h100-sxm-8 --model gpt3-175b --tp 8 --pp 8 --dp 2 --microbatches 64 \
    --schedule 1f1b,interleaved --dtype bf16
  has out '^    bubble: [0-9.]+ % of [0-9.]+ ms'
  # Theory for equal stages: 7 / (64 + 7) = 9.9 % of the window, and 7 / (2 x 64 + 7) = 5.2 %.
  grep -oE 'bubble: [0-9.]+' out | awk '{ print $2 }' | paste -sd' ' |
    awk '{ exit !($1 > 8.9 && $1 < 10.9 && $2 > 4.2 && $2 < 6.2) }' || fail "bubbles are not as in theory"
  expect 0 "$PIPELINE" --predict h100-sxm-8 --pp 3 --layers 6 --hidden 512 --seq 128 --vocab 512 --microbatches 4,8 \
    --schedule gpipe,1f1b,zb-h1 --out run
  rows run 6
  all_are status ok run
  all_are source predicted run
  for name in samples check bubble_iterations; do all_are $name '' run; done
  has run/kernels.csv ',predicted,h100-sxm-8,2,step/'
  # 65 GB of weights and gradients on each rank leave no room for what forward keeps.
  expect 0 "$PIPELINE" --predict h100-sxm-8 --model gpt3-175b --tp 8 --pp 2 --microbatches 2 --dtype bf16 \
    --recompute none,full --out large
  has out 'does_not_fit: a rank needs [0-9.]+ GB, .* and has 80.0 GB; try more tp or pp, or --recompute full; '
  all_are status ok large
  [ "$(column verdict large | grep -c does_not_fit)" -eq 1 ] || fail "not one row that does not fit"
  expect 2 "$PIPELINE" --predict h100-sxm-8 --balance measured
  has err 'give a --split'
}

"$1"
echo passed
