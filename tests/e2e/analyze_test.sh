#!/usr/bin/env bash
# analyze_test.sh NAME: runs one test of shardmark-analyze. PROGRAM and SCRATCH come from CTest.
set -uo pipefail

MPIEXEC=
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
bad() { # bad TEXT ARGUMENTS...: exit code 2 with TEXT on stderr and nothing on stdout
  local text=$1
  shift
  expect 2 "$PROGRAM" "$@"
  has err "$text"
  [ ! -s out ] || fail "something was printed: $*"
}

# event CATEGORY NAME START_US LENGTH_US [ARGS]: an event of a trace, behind others.
event() {
  echo ",{\"ph\": \"X\", \"cat\": \"$1\", \"name\": \"$2\", \"pid\": 0, \"tid\": 7, \"ts\": $3, \"dur\": $4, \"args\": {\"device\": 0, \"stream\": 7${5:+, $5}}}"
}
# trace RANK COMPUTE_US: two steps of 1000 us, each COMPUTE_US of compute, then an all-reduce until
# 900 us. The clock of rank 1 is 50 us ahead.
trace() {
  local rank=$1 compute=$2 step begin all_reduce
  all_reduce='"Collective name": "allreduce", "In msg nelems": 262144, "Out msg nelems": 262144, "Group size": 2'
  all_reduce+=', "dtype": "Float", "Process Group Name": "5", "Process Group Description": "tensor parallel"'
  all_reduce+=', "Process Group Ranks": "[0, 1]"'
  echo "{\"schemaVersion\": 1, \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": $rank, \"world_size\": 2}, \"traceEvents\": ["
  echo "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": 0, \"args\": {\"name\": \"python\"}}"
  for step in 0 1; do
    begin=$((1000000 + 1000 * step + 50 * rank))
    event user_annotation "ProfilerStep#$((7 + step))" $begin 1000
    event user_annotation forward $begin $((compute / 2))
    event kernel gemm $begin "$compute.125"
    event kernel ncclDevKernel_AllReduce_Sum_f32_RING_LL "$((begin + compute)).125" "$((899 - compute)).875" "$all_reduce"
  done
  echo ']}'
}
two_ranks() { # two_ranks FOLDER COMPUTE_US_OF_RANK_1
  mkdir -p "$1"
  trace 0 600 > "$1/rank0.json"
  trace 1 "$2" | gzip > "$1/rank1.json.gz"
}
# value COLUMN RANK WINDOW FILE: a cell of results.csv, none of whose cells before it has a comma.
value() {
  awk -F, -v name="$1" -v rank="$2" -v window="$3" '
    NR == 1 { for (i = 1; i <= NF; i++) { if ($i == name) c = i; if ($i == "rank") r = i; if ($i == "window") w = i }; next }
    $r == rank && $w == window { print $c }' "$4"
}
is() { [ "$1" = "$2" ] || fail "$3: '$1', not '$2'"; }

a_folder_is_answered() {
  two_ranks traces 850
  expect 0 "$PROGRAM" traces
  has out '2 files \(Kineto\), [0-9]+ events, ranks 0-1 of 2'
  has out '^0 +1900\.000 +1200\.250 +63\.2 +599\.750 +31\.6 +0\.000 +0\.0 +100\.000 +5\.3 +0\.000 +0\.0$'
  has out '^7 \(0\) +1000\.000 +600\.125 +60\.0 +299\.875 +30\.0 '
  has out '^all_reduce +5 +tp +2 +Float +1\.05 MB +2 .* 599\.750 +599\.750 +100\.0 '
  has out '^0 +500\.000 +99\.750 +0 '
  has out '^1 +0\.000 +99\.750 +2 '
  has out '^imbalance: rank 1 computes 1\.417x as long as rank 0 in the steps that all ranks have$'
  has out '^critical: rank 1 in 2 of 2 steps$'
  has out '^verdict: imbalanced$'
  has out 'rank 1 computes 1\.42x as long as rank 0'
  [ ! -s err ] || fail "something on stderr"
}

all_files_are_written() {
  two_ranks traces 850
  expect 0 "$PROGRAM" traces --out analysis --csv split.csv --json all.json --merged-trace merged.json
  for table in results collectives kernels across stages gaps; do
    [ -s "analysis/$table.csv" ] || fail "no $table.csv"
  done
  [ -s merged.json.gz ] || fail "no merged trace"
  diff split.csv analysis/results.csv || fail "--csv differs from results.csv"
  is "$(value window_us 0 trace split.csv)" 1900.000 window_us
  is "$(value comp_us 0 trace split.csv)" 1200.250 comp_us
  is "$(value exposed_comm_us 0 step:ProfilerStep#7 split.csv)" 299.875 exposed_comm_us
  is "$(value residual_us 1 trace split.csv)" 0.000 residual_us
  has analysis/run.json '"verdict": "imbalanced"'
  has all.json '"comp_us": 1200.25'
  # The trace of all ranks gives the same figures.
  expect 0 "$PROGRAM" analysis --csv again.csv
  for window in trace step:ProfilerStep#7 step:ProfilerStep#8; do
    for column in window_us comp_us comm_us exposed_comm_us overlapped_us idle_us wait_us; do
      is "$(value $column 1 $window again.csv)" "$(value $column 1 $window split.csv)" "$column of $window"
    done
  done
  expect 0 "$PROGRAM" traces --out analysis
  [ -s analysis/results.csv.old ] || fail "the earlier results are gone"
  bad 'is the folder that is analysed' traces --out traces
  bad 'is the folder that is analysed' traces/rank0.json --out traces
}

inputs_and_outputs_stay_apart() {
  two_ranks traces 850
  cp -r traces kept
  bad 'is one of the files that are analysed' traces --csv traces/rank0.json
  bad 'is one of the files that are analysed' traces --merged-trace traces/rank1.json
  bad 'is one of the files that are analysed' --diff traces/rank0.json traces/rank1.json.gz --json traces/rank1.json.gz
  bad '--csv and --json both write' traces --csv x --json x
  bad 'there is no folder nowhere' traces --json nowhere/x.json
  bad "'-' is no file" traces --json -
  diff -r traces kept || fail "an input has changed"
  [ ! -e x ] || fail "something was written"
}

single_ranks_are_compared() {
  two_ranks traces 850
  expect 0 "$PROGRAM" --diff traces/rank0.json traces/rank1.json.gz
  has out 'A is rank 0 and B rank 1: they are compared as one'
  has out 'what changes most is (compute|exposed communication)'
  mkdir two && trace 2 600 > two/rank2.json && trace 3 600 > two/rank3.json
  bad 'no rank in common' --diff traces two
}

# What shardmark-tp says of a row and what its timeline gives: the row is of one of its ranks.
own_trace_gives_own_figures() {
  expect 0 "$SHARDMARK_TP" --transport threads --ranks 2 --tp 2 --hidden 128 --heads 4 --seq 32 --min-samples 2 \
    --max-time 0.05 --check off --peak-tflops 0.1 --out run
  expect 0 "$PROGRAM" run --csv split.csv
  local name rank found=no
  for rank in 0 1; do
    local same=yes
    for name in window_us comp_us comm_us exposed_comm_us overlapped_us; do
      awk -v a="$(column $name run | head -1)" -v b="$(value $name $rank step:ProfilerStep#0 split.csv)" \
        'BEGIN { d = a - b; if (d < 0) d = -d; exit !(d < 0.0005) }' || same=no
    done
    [ $same = yes ] && found=yes
  done
  [ $found = yes ] || fail "no rank has the row's figures"
  bad 'holds a run of shardmark-tp' split.csv --out run
}

broken_files_exit_with_1() {
  two_ranks traces 850
  head -c 1500 traces/rank0.json > cut && mv cut traces/rank0.json
  expect 1 "$PROGRAM" traces
  has err 'rank0.json breaks off'
  has out '^verdict: '
  two_ranks traces 850
  cp traces/rank0.json traces/second.json
  expect 1 "$PROGRAM" traces/rank0.json traces/second.json traces/rank1.json.gz
  has err 'second.json is left out'
  echo '{"traceEvents": [nonsense' > broken.json
  expect 1 "$PROGRAM" broken.json traces/rank1.json.gz
  has err 'broken.json'
  has out '^verdict: '
  expect 1 "$PROGRAM" broken.json
  [ ! -s out ] || fail "nothing could be read, but something was printed"
}

bad_input_exits_with_2() {
  mkdir empty
  two_ranks traces 850
  bad 'give files, a folder or a glob'
  bad 'unknown option --frob' --frob
  bad 'there is no file or folder nowhere' nowhere
  bad 'holds no recording' empty
  bad 'there are only 7-8' traces --steps 9
  bad "no rank has a host range named 'forwards'; did you mean forward" traces --range forwards
  bad 'comm-pattern' traces --comm-pattern '('
  bad 'compares two inputs' --diff traces
  bad 'is in every name' traces --comm-pattern ''
  bad 'shardmark-tp --list-models' traces --model nope
  bad 'the last device work ends at 1900.000 us; try --window 0,1900.000' traces --window 5e6,6e6
  has_not err 'terminate called'
}

steps_and_windows_are_cut() {
  two_ranks traces 600
  expect 0 "$PROGRAM" traces --steps last:1 --csv split.csv
  is "$(value window_us 1 steps:8 split.csv)" 1000.000 "one step"
  expect 0 "$PROGRAM" traces --range forward --csv split.csv
  is "$(value window_us 0 range:forward split.csv)" 600.000 "two ranges"
  is "$(value comp_us 0 range:forward split.csv)" 600.000 "compute in ranges"
  expect 0 "$PROGRAM" traces --window 100,200.5 --csv split.csv
  is "$(value window_us 1 window:100-200.5us split.csv)" 100.500 "a window"
  is "$(value comp_us 1 window:100-200.5us split.csv)" 100.500 "compute in a window"
  expect 0 "$PROGRAM" traces --comm-pattern '^gemm$' --csv split.csv
  is "$(value comp_us 0 trace split.csv)" 0.000 "a pattern"
}

no_communication_is_no_overlap() {
  trace 0 600 | grep -v ncclDevKernel > rank0.json
  sed -i 's/"distributedInfo": {[^}]*}, //' rank0.json
  expect 0 "$PROGRAM" rank0.json --csv split.csv
  has out ' none$'
  is "$(value overlap_pct 0 trace split.csv)" "" overlap_pct
  has_not out 'nan|inf'
}

difference_names_the_slow_rank() {
  two_ranks before 600
  two_ranks after 800
  expect 0 "$PROGRAM" --diff before after --json diff.json
  tail -1 out > conclusion
  has conclusion 'rank 1'
  has conclusion 'all_reduce'
  has diff.json '"conclusion"'
  expect 0 "$PROGRAM" --diff before before
}

help_and_lists() {
  expect 0 "$PROGRAM" --help
  has out 'shardmark-analyze traces/'
  expect 0 "$PROGRAM" --list-columns
  has out '`exposed_comm_us` \| us'
  expect 0 "$PROGRAM" --version
  has out '^shardmark '
}

plots_are_drawn() {
  two_ranks traces 850
  expect 0 "$PROGRAM" traces --out analysis
  expect 0 "$PYTHON" -B "$PLOT" analysis
  for name in time_split steps collectives waits kernels; do
    [ -s "analysis/plots/$name.png" ] || fail "no $name.png"
  done
}

"$1"
echo passed
