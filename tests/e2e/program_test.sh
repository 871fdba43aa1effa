#!/usr/bin/env bash
# program_test.sh NAME: runs one test of shardmark-tp. PROGRAM, MPIEXEC and SCRATCH come from CTest.
set -uo pipefail

# A stated peak saves the probes, which take longer than these rows.
brief=(--max-time 0.1 --min-samples 2 --warmup 1 --peak-tflops 0.1)
tiny=(--hidden 256 --seq 64 "${brief[@]}")
one_op=(--block linear-row --hidden 256 --ffn 256 --check off "${brief[@]}")

. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
rows() { [ "$(tail -n +2 "$1/results.csv" | wc -l)" -eq "$2" ] || fail "not $2 rows in $1/results.csv"; }
trace_of() { if [ -f "$1/trace.json.gz" ]; then gunzip -c "$1/trace.json.gz"; else cat "$1/trace.json"; fi; }

all_files_are_there() {
  rows run 5
  [ "$(column check run | sort -u)" = pass ] || fail "a check did not pass"
  [ "$(column status run | sort -u)" = ok ] || fail "a row is not ok"
  has run/run.json '"complete": true'
  has run/run.json '"cost_models"'
  [ "$(head -1 run/kernels.csv | cut -d, -f1)" = schema_version ] || fail "kernels.csv has no header"
  trace_of run > trace || fail "the timeline cannot be read"
  has trace '"name":"ProfilerStep#4"'
  has trace 'ncclDevKernel_AllReduce_Sum_f32 \(shardmark'
  has out 'speedup'
  has out 'Summary'
  has out 'rank.* host .* pid '
  # The time identity: at most 0.1 % of the window is unexplained.
  paste <(column residual_us run) <(column window_us run) |
    awk '{ if ($1 < 0) $1 = -$1; if ($1 > 0.001 * $2) exit 1 }' || fail "a residual is above 0.1 %"
  # What was counted is what the formulas say.
  diff <(column bytes_analytic run) <(column bytes_observed run) || fail "bytes differ"
}

threads_run_writes_all_files() {
  expect 0 "$PROGRAM" --ranks 2 "${tiny[@]}" --sequence-parallel off,on --overlap off,on --out run
  all_files_are_there
}
mpi_run_writes_all_files() {
  expect 0 mpi 2 "${tiny[@]}" --sequence-parallel off,on --overlap off,on --out run
  all_files_are_there
}

# The communication of each layer per step at tp 2 in f32: T h e = 64 x 256 x 4 = 65.54 kB, and an
# all-reduce moves 2(t-1)/t = 1 of it, gathering the 1024 output columns (t-1)/t of 262.14 kB.
blocks_print_their_communication() {
  expect 0 "$PROGRAM" --ranks 2 --tp 2 "${tiny[@]}" --block linear-column,linear-row,mlp,attention
  has out 'comm/step: forward 1 all-gather, backward 1 all-reduce: 196.61 kB by formula, 196.61 kB counted'
  has out 'comm/step: forward 1 all-reduce: 65.54 kB by formula, 65.54 kB counted'
  [ "$(grep -c 'forward 1 all-reduce, backward 1 all-reduce: 131.07 kB by formula, 131.07 kB counted' out)" -eq 2 ] ||
    fail "MLP and attention do not print 131.07 kB"
}

resume_skips_finished_rows() {
  expect 0 "$PROGRAM" --ranks 2 "${one_op[@]}" --seq 32 --out run
  rows run 2
  cp run/results.csv first.csv
  expect 0 "$PROGRAM" --ranks 2 "${one_op[@]}" --seq 32,64 --out run --resume
  has out '2 of 4 rows are in run/results.csv already'
  rows run 4
  cmp -n "$(stat -c %s first.csv)" first.csv run/results.csv || fail "finished rows changed"
  has run/run.json resumed_from
  expect 0 "$PROGRAM" --ranks 2 "${one_op[@]}" --seq 32,64 --out run --resume
  rows run 4
}

resume_says_what_it_cannot_know() {
  expect 0 "$PROGRAM" --ranks 2 --tp 1 "${one_op[@]}" --seq 32,64 --out run
  local kernels
  kernels=$(wc -l < run/kernels.csv)
  # Killed between the kernels and the row: the row is measured again and its kernels replaced.
  truncate -s -20 run/results.csv
  expect 0 "$PROGRAM" --ranks 2 --tp 1 "${one_op[@]}" --seq 32,64 --out run --resume --seed 9
  rows run 2
  [ "$(wc -l < run/kernels.csv)" -eq "$kernels" ] || fail "kernels of the lost row were kept"
  has out 'measured with other settings: seed 1, now 9'
  has out 'the 1 from before are only in the files'
  [ -f run/trace-2.json.gz ] || [ -f run/trace-2.json ] || fail "no second timeline"
  expect 0 "$PROGRAM" --ranks 2 --tp 1 "${one_op[@]}" --seq 32 --out run
  if ls run/trace-2.json run/trace-2.json.gz > /dev/null 2>&1; then fail "a timeline of before"; fi
}
lost_output_is_an_error() {
  [ -w /dev/full ] || { echo "skipped: no /dev/full"; exit 77; }
  "$PROGRAM" --help > /dev/full 2> err && fail "exit code 0 although the output was lost"
  has err 'could not be written'
}
mpi_single_rank_is_one_rank() {
  expect 0 mpi 1 "${one_op[@]}" --seq 32
  has out '1 rank \('
}

resume_refuses_another_schema() {
  expect 0 "$PROGRAM" --ranks 1 "${one_op[@]}" --seq 32 --out run
  sed -i '2s/^1,/9,/' run/results.csv
  expect 2 "$PROGRAM" --ranks 1 "${one_op[@]}" --seq 32 --out run --resume
  has err 'schema_version 9'
  sed -i '1s/batch/sequences/' run/results.csv
  expect 2 "$PROGRAM" --ranks 1 "${one_op[@]}" --seq 32 --out run --resume
  has err 'other columns'
}

earlier_files_are_renamed() {
  expect 0 "$PROGRAM" --ranks 1 "${one_op[@]}" --seq 32 --out run
  cp run/results.csv first.csv
  expect 0 "$PROGRAM" --ranks 1 "${one_op[@]}" --seq 32 --out run
  cmp first.csv run/results.csv.old || fail "the earlier rows are gone"
}

bad_input_exits_with_2() {
  expect 2 "$PROGRAM" --hidden 0
  has err '^shardmark: --hidden'
  expect 2 "$PROGRAM" --hiden 4
  has err 'did you mean --hidden\?'
  expect 2 "$PROGRAM" --model gpt3-13
  has err 'did you mean gpt3-13b'
  expect 2 "$PROGRAM" --ranks 2 --tp 4
  has err 'tp 4 needs 4 ranks'
  expect 2 "$PROGRAM" --ranks 2 --tp 2 --hidden 1000
  has err 'hidden 1000'
  expect 2 "$PROGRAM" --ranks 2 --tp 2 --seq 63 --sequence-parallel on
  has err 'seq 63'
  expect 2 "$PROGRAM" --model LLAMA3-8B
  has err 'did you mean llama3-8b'
  expect 2 "$PROGRAM" --ranks 100000 --tp 1
  has err 'ranks 100000 is not between 1 and 1024'
  expect 2 "$PROGRAM" --ranks 2 --inject-fault kill:rank=2:op=0
  has err 'rank 2 of 2 ranks'
  expect 2 "$PROGRAM" --ranks 2 --inject-fault exit:0:rank=1:op=0
  has err 'start under mpirun'
  [ ! -s out ] || fail "something was measured"
}

unwritable_folder_is_refused() {
  expect 2 "$PROGRAM" "${one_op[@]}" --out /proc/nowhere
  has err '/proc/nowhere'
  touch file
  expect 2 "$PROGRAM" "${one_op[@]}" --out file/run
  has err 'file/run'
  expect 2 "$PROGRAM" "${one_op[@]}" --dump file/dump
  has err 'file/dump'
}

# A small file system of its own where that is allowed, a limit on the size of files elsewhere (MPI
# needs files, too, so its test is skipped then).
full_disk_keeps_rows() {
  local full='No space left on device|the file system is full'
  if ! mount_small_disk; then
    [ "$1" = "$PROGRAM" ] || exit 77
    full='File too large'
    trap '' XFSZ
    ulimit -f 3
  fi
  expect 1 "$@" "${one_op[@]}" --seq 32,64,96,128,160,192,224,256 --phase forward,backward,step \
    --out disk/run
  has err "cannot write( to)? disk/run/.*: ($full)"
  [ "$(tail -n +2 disk/run/results.csv | wc -l)" -ge 2 ] || fail "rows are lost"
  [ "$(tail -c 1 disk/run/results.csv | od -An -c | tr -d ' ')" = '\n' ] || fail "half a row is in the file"
  has_not disk/run/run.json '"complete": true'
}
mount_small_disk() {
  mkdir disk
  mount -t tmpfs -o size=24k none disk 2> /dev/null || return 1
  trap 'umount "$SCRATCH/disk"' EXIT
}
threads_full_disk() { full_disk_keeps_rows "$PROGRAM" --ranks 1; }
mpi_full_disk() { full_disk_keeps_rows "$MPIEXEC" -n 2 "$PROGRAM" --tp 1; }

too_large_is_skipped_with_the_estimate() {
  expect 0 "$PROGRAM" --ranks 1 "${one_op[@]}" --seq 32,1m --batch 1k --out run
  has out 'skipped: needs [0-9.]+ GB on one host'
  has run/results.csv 'skipped,"?needs '
  rows run 2
}

nan_is_named() {
  expect nonzero "$PROGRAM" --ranks 2 --tp 2 "${one_op[@]}" --check-nan --inject-fault nan:rank=1:op=0
  has err 'rank 1.*NaN|NaN.*rank 1'
}

hanging_rank_is_named() {
  expect nonzero timeout 30 "$PROGRAM" --ranks 2 --tp 2 "${one_op[@]}" --timeout 2 \
    --inject-fault hang:rank=1:op=1
  has err 'rank 1 .*watchdog: lane [a-z]+ at [a-z-].*: [a-z_]+ #[0-9]+ has not ended for 2 s'
  has err 'no answer for 2 s.*no sign of life from rank 1 while waiting for .*lane tp at [a-z/]+: all_reduce #'
}
mpi_hanging_rank_is_named() {
  expect nonzero timeout 30 "$MPIEXEC" -n 2 "$PROGRAM" --tp 2 "${one_op[@]}" --timeout 2 \
    --inject-fault hang:rank=1:op=1
  has err 'no answer for 2 s.*no sign of life from rank 1 \(host.*while waiting for .*lane tp at [a-z/]+: all_reduce #'
}
# Nobody waits for it in time: the others are idle, or there are none.
only_rank_hangs() {
  SECONDS=0
  expect nonzero timeout -k 1 12 "$@" "${one_op[@]}" --timeout 2 --inject-fault hang:rank=0:op=1
  [ $SECONDS -le 7 ] || fail "it took $SECONDS s"
  has err 'rank 0 .*watchdog: lane [a-z]+ at [a-z-].*: [a-z_]+ #[0-9]+ has not ended for 2 s'
}
hanging_only_rank_is_named() { only_rank_hangs "$PROGRAM" --ranks 1; }
mpi_hanging_only_rank_is_named() { only_rank_hangs "$MPIEXEC" -n 2 "$PROGRAM" --tp 1; }

failing_rank_ends_the_run() {
  expect 1 "$PROGRAM" --ranks 2 --tp 2 "${one_op[@]}" --inject-fault throw:rank=1:op=1
  has err 'rank 1'
}

# The first row (tp 1) runs on rank 0 alone; rank 1 dies in the second.
mpi_dying_rank_keeps_rows() {
  expect nonzero timeout 20 "$MPIEXEC" -n 2 "$PROGRAM" --tp 1,2 "${one_op[@]}" --seq 32 --out run \
    --inject-fault kill:rank=1:op=3
  rows run 1
  has_not run/run.json '"complete": true'
  has out 'rank 1  host'
}
mpi_early_exit_fails() {
  expect nonzero timeout 20 "$MPIEXEC" -n 2 "$PROGRAM" --tp 1,2 "${one_op[@]}" --seq 32 --out run \
    --inject-fault exit:0:rank=1:op=3
  rows run 1
}

# Hydra forgets exit codes if the output closes first; once in a few times, so several times.
mpi_exit_code_is_kept() {
  for _ in 1 2 3 4 5 6; do expect 2 mpi 2 --block block --hidden 1001 "${brief[@]}"; done
}

# interrupt COMMAND...: one SIGINT after the first row of a sweep that takes longer.
interrupt() {
  "$@" --out run > out 2> err &
  local job=$! code
  for _ in $(seq 150); do
    [ -f run/results.csv ] && [ "$(wc -l < run/results.csv)" -ge 2 ] && break
    sleep 0.1
  done
  kill -INT $job
  wait $job
  code=$?
  [ $code -ne 0 ] || fail "exit code 0 although interrupted"
  has err 'interrupted; finished rows are kept in run'
  [ "$(tail -n +2 run/results.csv | wc -l)" -ge 1 ] || fail "the finished row is gone"
  has run/run.json '"complete": false'
}
# Commands in the background of a script ignore SIGINT unless job control is on.
interrupt_keeps_rows() {
  set -m
  interrupt "$PROGRAM" --ranks 2 --peak-tflops 0.1 --hidden 256 --seq 64,128,256,512 --max-time 3 \
    --min-samples 1000
}
mpi_interrupt_keeps_rows() {
  set -m
  interrupt "$MPIEXEC" -n 2 "$PROGRAM" --peak-tflops 0.1 --hidden 256 --seq 64,128,256,512 --max-time 3 \
    --min-samples 1000
}

replicas_fill_idle_ranks() {
  expect 0 "$PROGRAM" --ranks 2 --tp 1 "${one_op[@]}" --fill replicate --out run
  [ "$(column replicated run)" = true ] || fail "not replicated"
}

both_dtypes_and_phases() {
  expect 0 "$PROGRAM" --ranks 2 --tp 2 "${tiny[@]}" --block mlp --dtype f32,bf16 \
    --phase forward,backward,step --out run
  rows run 6
  [ "$(column check run | sort -u)" = pass ] || fail "a check did not pass"
  [ "$(column phase run | sort | uniq -c | tr -s ' \n' ' ')" = " 2 bwd 2 fwd 2 step " ] || fail "phases"
}

dry_run_needs_no_ranks() {
  expect 0 timeout 2 "$PROGRAM" --dry-run --model llama3-70b --tp 1,2,4,8 --seq 8k
  has out 'tp 8'
  has out 'no race, all collectives match, no deadlock'
  expect 0 "$PROGRAM" --backend record --tp 2 --hidden 256
  has out 'peak memory per rank'
}

help_and_lists() {
  expect 0 "$PROGRAM" --help
  has out 'example: --tp 1,2,4'
  expect 0 "$PROGRAM" --version
  has out '^shardmark [0-9]'
  expect 0 "$PROGRAM" --list-models
  has out '^gpt3-13b: 40 layers, hidden 5120, 40 heads'
  expect 0 "$PROGRAM" --list-columns
  has out '`time_us_p50` \| us'
}

peak_is_stated_or_measured() {
  expect 0 "$PROGRAM" --ranks 1 "${one_op[@]}" --seq 32 --out stated
  [ "$(column peak_tflops stated)" = 0.1 ] || fail "peak_tflops is $(column peak_tflops stated)"
  [ "$(column peak_source stated)" = user ] || fail "peak_source"
  expect 0 "$PROGRAM" --ranks 1 --block linear-row --hidden 256 --seq 32 --max-time 0.1 --out measured
  [ "$(column peak_source measured)" = measured_gemm ] || fail "peak_source"
}

mpi_bad_input_is_printed_once() {
  expect 2 mpi 3 --tp 2 --hidden 1000
  [ "$(grep -c 'hidden 1000' err)" -eq 1 ] || fail "not printed once"
  expect 2 mpi 2 --tp 1 "${one_op[@]}" --out /proc/nowhere
  [ "$(grep -c '/proc/nowhere' err)" -eq 1 ] || fail "not printed once"
}

mpi_refuses_threads() {
  expect 2 mpi 2 --transport threads --ranks 2
  has err 'leave out --transport threads'
}

built_without_mpi_refuses_a_launcher() {
  PMI_SIZE=2 PMI_RANK=0 expect 2 "$PROGRAM" "${one_op[@]}"
  has err 'built without MPI'
}

"$1"
echo passed
