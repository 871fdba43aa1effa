#!/usr/bin/env bash
# collectives_test.sh NAME: runs one test of shardmark-collectives. PROGRAM, MPIEXEC and SCRATCH come
# from CTest.
set -uo pipefail

brief=(--max-time 0.02 --min-samples 3 -w 1)

. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
bad() { # bad TEXT ARGUMENTS...: exit code 2 with TEXT on stderr and nothing measured
  local text=$1
  shift
  expect 2 "$PROGRAM" "$@"
  has err "$text"
  [ ! -s out ] || fail "something was measured: $*"
}

# A reader of nccl-tests' text: thirteen columns after any comment lines.
reads_like_nccl_tests() {
  has out '^# nThread 1 nGpus 1 minBytes 8 maxBytes 4096 step: 2\(factor\) warmup iters: '
  has out '^#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong'
  has out '^# Out of bounds values : 0 OK$'
  has out '^# Avg bus bandwidth    : [0-9.]+'
  awk '/^#/ { next } { if (NF < 13 || $1 != 4 * $2 || $9 != 0 || $13 != 0 || $6 <= 0 || $10 <= 0) exit 1; rows++ }
    END { exit rows == 10 ? 0 : 1 }' out || fail "a row does not read"
}
mpi_table() {
  expect 0 mpi 2 all_reduce -b 8 -e 4K -f 2 "${brief[@]}"
  reads_like_nccl_tests
}
threads_table() {
  expect 0 "$PROGRAM" all_reduce --ranks 2 -b 8 -e 4K -f 2 "${brief[@]}"
  reads_like_nccl_tests
}

everything_is_right() {
  expect 0 "$@" all --algorithm all -b 12K -e 12K --no-waits "${brief[@]}" -d float,int8 -o sum,avg --out run
  [ "$(column status run | sort -u)" = ok ] || fail "a row is not ok"
  diff <(column bytes_analytic run | head -2) <(column bytes_observed run | head -2) || fail "bytes differ"
  paste <(column bytes_plan run) <(column bytes_observed run) |
    awk 'NF == 2 && $1 != $2 { exit 1 }' || fail "a plan sends other bytes than it says"
  diff <(column bytes_analytic run) <(column bytes_observed run) || fail "a formula says something else"
  has run/run.json '"complete": true'
}
mpi_3_everything() { everything_is_right mpi 3; }
threads_4_everything() { everything_is_right "$PROGRAM" --ranks 4; }

bad_input_exits_with_2() {
  bad 'unknown option --frob' all_reduce --frob
  bad 'did you mean all_reduce' all_reduc
  bad 'is above -e' all_reduce -b 64 -e 8
  bad 'above 1' all_reduce -b 8 -e 64 -f 1
  bad 'too large' all_reduce -b 999999999999G
  bad 'not a whole number of float' all_reduce -b 6 -e 6
  bad 'roots are 0 to 1' broadcast --ranks 2 -r 2
  bad 'there are 3' all_reduce --ranks 3 --groups tp=2,dp=2
  bad 'tp is given more than once' all_reduce --ranks 2 --groups tp=1,tp=2
  bad 'axis dp has one rank per group' all_reduce --ranks 2 --groups tp=2 --axis dp
  bad 'for example --axis dp' all_reduce --ranks 2 --groups dp=2
  bad 'axis dp is one of --groups' all_reduce --ranks 2 --axis dp
  bad 'it is a folder' all_reduce --ranks 2 --plan .
  bad 'is none of sum' all_reduce -o mulsum
  bad 'GB for 2 ranks' all_reduce --ranks 2 -b 8 -e 60000G -f 100000
  bad 'cannot read nowhere' all_reduce --ranks 2 --plan nowhere
  bad 'the plan is empty' all_reduce --ranks 2 --plan /dev/null
  bad 'the plan is not text' all_reduce --ranks 2 --plan "$PROGRAM"
  bad 'with-matmul needs' all_reduce --ranks 2 --with-matmul 1000000,1000000,1000000
  bad 'takes -e 16 or more' all_gather --ranks 4 -b 8 -e 8
}
mpi_bad_input_is_printed_once() {
  expect 2 mpi 3 all_reduce -b 64 -e 8
  [ "$(grep -c 'is above -e' err)" -eq 1 ] || fail "not printed once"
}
mpi_rank_with_other_options_is_named() {
  expect 2 timeout 20 "$MPIEXEC" -n 1 "$PROGRAM" all_reduce -b 8 -e 8 : -n 1 "$PROGRAM" all_reduce -b 16 -e 16
  has err 'rank 1 was started with other options than rank 0'
}

corrupted_byte_is_caught() {
  expect 1 "$PROGRAM" all_reduce --ranks 2 -b 4K -e 4K "${brief[@]}" --inject-fault corrupt:rank=1:op=0
  has out 'rank 1: 1 of 1024 elements are wrong, the first at 512: expected -?[0-9]+, got -?[0-9]+'
  has out '^# Out of bounds values : 1 FAILED'
}
fault_that_never_happens_is_told() {
  expect 1 "$PROGRAM" all_reduce --ranks 3 -b 4K -e 4K "${brief[@]}" --inject-fault corrupt:rank=1:op=1000000
  has err 'never happened'
}

edited_plan_is_refused() {
  expect 0 "$PROGRAM" all_reduce --ranks 3 --algorithm ring --print-plan
  cp out plan
  expect 0 "$PROGRAM" all_reduce --ranks 3 --plan plan -b 12K -e 12K "${brief[@]}"
  cp plan 'my plan'
  expect 0 "$PROGRAM" all_reduce --ranks 3 --algorithm native --plan "$PWD/my plan" -b 12K -e 12K "${brief[@]}" --out run
  [ "$(column algorithm run | sort -u | xargs)" = "my_plan native" ] || fail "algorithm: $(column algorithm run)"
  sed '5d' plan > edited
  bad 'edited is not a correct plan: rank [0-9] step [0-9]' all_reduce --ranks 3 --plan edited
  head -4 plan > short
  bad 'short' all_reduce --ranks 3 --plan short
  expect 0 "$PROGRAM" all_reduce --ranks 3 --algorithm ring --svg ring.svg
  has ring.svg '<svg'
}

# Times of a busy machine say little; only the order of magnitude is looked at.
skew_is_waiting() {
  expect 0 mpi 2 all_reduce -b 64K -e 64K --skew-us 20000 --out-of-place-only "${brief[@]}" --out run
  awk "BEGIN { exit !($(column wait_us run) - $(column wait_unskewed_us run) > 15000) }" ||
    fail "nobody waited for the late rank"
  [ "$(tail -n +2 run/waits.csv | wc -l)" -eq 4 ] || fail "not 4 lines in waits.csv"
}

tuned_choice_is_used() {
  expect 0 "$PROGRAM" all_reduce --ranks 2 -b 1K -e 64K -f 8 --algorithm all --no-waits "${brief[@]}" --tune table
  has table '^all_reduce,2,0,'
  expect 0 "$PROGRAM" all_reduce --ranks 2 -b 1K -e 64K -f 8 --algorithm auto --no-waits "${brief[@]}" --tuning table --out run
  [ "$(column chosen run | sort -u | head -1)" != "" ] || fail "auto does not say what it chose"
  expect 0 mpi 2 all_reduce -b 1K -e 8K -f 8 --algorithm auto,all --no-waits "${brief[@]}" --tune table2 --out run2
  has table2 '^all_reduce,2,0,'
  has out '^# choice: all_reduce, 2 ranks, from 0 B'
  [ "$(grep -c ',auto,' run2/results.csv)" -eq 4 ] || fail "not 4 rows of auto"
}

groups_and_overlap() {
  expect 0 "$PROGRAM" all_reduce --ranks 4 --groups tp=2,dp=2 --axis dp -b 64K -e 64K --no-waits "${brief[@]}" \
    --with-matmul 64,64,64 --out run
  [ "$(column group_size run | sort -u)" = 2 ] || fail "group_size"
  [ -n "$(column contention run | head -1)" ] || fail "contention"
  [ -n "$(column overlap_of_shorter run | head -1)" ] || fail "overlap"
  [ "$(column progress run | sort -u)" = poll ] || fail "progress"
}
progress_thread() { # LAUNCH...
  expect 0 "$@" all_reduce -b 64K -e 64K --algorithm native,ring --no-waits "${brief[@]}" --with-matmul 128,128,128 \
    --progress thread --out run
  [ "$(column progress run | sort | uniq -c | xargs)" = "4 thread" ] || fail "progress: $(column progress run)"
  [ "$(column status run | sort -u)" = ok ] || fail "a row is not ok"
}
threads_progress_thread() { progress_thread "$PROGRAM" --ranks 3; }
mpi_progress_thread() { progress_thread mpi 3; }

resume_skips_finished_rows() {
  expect 0 "$PROGRAM" all_reduce --ranks 2 -b 8 -e 16 -f 2 --no-waits "${brief[@]}" --out run
  cp run/results.csv first
  expect 0 "$PROGRAM" all_reduce --ranks 2 -b 8 -e 32 -f 2 --no-waits "${brief[@]}" --out run --resume
  has out '4 rows are in run/results.csv already'
  [ "$(column size_bytes run | tr '\n' ' ')" = "8 8 16 16 32 32 " ] || fail "rows"
  cmp -n "$(stat -c %s first)" first run/results.csv || fail "finished rows changed"
}
# What does not exist in a sweep is a row, once.
skipped_rows_say_why() {
  for more in "" --resume; do
    expect 0 "$PROGRAM" all_reduce,all_gather --algorithm bruck --ranks 2 -b 8 -e 16 -f 2 --no-waits "${brief[@]}" --out run $more
    [ "$(column status run | sort | uniq -c | xargs)" = "4 ok 2 skipped" ] || fail "status: $(column status run)"
    [ "$(column size_bytes run | head -2 | xargs)" = "8 16" ] || fail "sizes: $(column size_bytes run)"
    [ "$(grep -c '^# skipped: ' out)" -eq $([ -z "$more" ] && echo 1 || echo 0) ] || fail "skipped is not said once"
  done
  has run/results.csv "there is no algorithm 'bruck' for all_reduce"
}

# Commands in the background of a script ignore SIGINT unless job control is on.
mpi_interrupt_keeps_rows() {
  set -m
  "$MPIEXEC" -n 2 "$PROGRAM" all_reduce -b 8 -e 64M -f 2 --min-samples 100000 --max-time 0.2 --no-waits --out run > out 2> err &
  local job=$!
  for _ in $(seq 150); do
    [ -f run/results.csv ] && [ "$(wc -l < run/results.csv)" -ge 3 ] && break
    sleep 0.1
  done
  kill -INT $job
  wait $job && fail "exit code 0 although interrupted"
  has err 'interrupted; finished rows are kept in run'
  [ "$(tail -n +2 run/results.csv | wc -l)" -ge 2 ] || fail "the finished rows are gone"
  has run/run.json '"complete": false'
}

# A signal to the launcher's own child of a rank, which is not the rank.
mpi_signals_to_the_keeper_reach_the_rank() {
  local signal code job keeper
  for signal in TERM INT; do
    rm -rf run
    "$MPIEXEC" -n 2 "$PROGRAM" all_reduce -b 8 -e 64M -f 2 --min-samples 100000 --max-time 0.2 --no-waits --out run > out 2> err &
    job=$!
    for _ in $(seq 150); do
      [ -f run/results.csv ] && [ "$(wc -l < run/results.csv)" -ge 3 ] && break
      sleep 0.1
    done
    keeper=$(for child in $(pgrep -P "$(pgrep -P $job | head -1)"); do
      [ "$(cat "/proc/$child/comm")" = shardmark-keep ] && echo "$child"; done | head -1)
    [ -n "$keeper" ] || fail "no keeper found"
    kill -$signal "$keeper"
    wait $job
    code=$?
    [ $code -eq $((128 + $(kill -l $signal))) ] || fail "exit code $code after $signal"
    has err 'interrupted; finished rows are kept in run'
    [ "$(grep -c interrupted err)" -eq 1 ] || fail "said more than once"
    has run/run.json '"complete": false'
  done
}

resume_drops_waits_without_a_row() {
  expect 0 "$PROGRAM" all_reduce --ranks 2 -b 8 -e 32 -f 2 --out-of-place-only "${brief[@]}" --out run
  sed -i '$d' run/results.csv
  expect 0 "$PROGRAM" all_reduce --ranks 2 -b 8 -e 32 -f 2 --out-of-place-only "${brief[@]}" --out run --resume
  [ "$(tail -n +2 run/waits.csv | wc -l)" -eq 6 ] || fail "not 2 lines per row in waits.csv"
  [ "$(tail -n +2 run/results.csv | wc -l)" -eq 3 ] || fail "not 3 rows"
}

lists_and_imports() {
  expect 0 "$PROGRAM" --list
  has out '^all_reduce: native, ring'
  expect 0 "$PROGRAM" --list-columns
  has out '`bytes_observed` \| B'
  expect 0 "$PROGRAM" --help
  has out 'mpirun -n 2 shardmark-collectives all_reduce -b 8 -e 64M -f 2'
  expect 0 "$PROGRAM" all_reduce --ranks 2 -b 8 -e 4K -f 2 --no-waits "${brief[@]}"
  cp out log
  expect 0 "$PROGRAM" --import log --out imported
  has out 'log: 20 measurements'
  expect 0 "$PROGRAM" all_reduce --ranks 2 -b 1K -e 1K --no-waits "${brief[@]}" --percentiles
  cp out log
  expect 0 "$PROGRAM" --import log --out imported
  [ "$(wc -l < imported/imported.csv.old)" -eq 21 ] || fail "the earlier import is gone"
  # Each half's own four.
  [ "$(tail -n +2 imported/imported.csv | grep -c ',p10(us)=[^;]*;p95(us)=[^;]*;p99(us)=[^;]*;cv(%)=[^;]*$')" -eq 2 ] ||
    fail "percentiles"
}

"$1"
echo passed
