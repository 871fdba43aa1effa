#!/usr/bin/env bash
# hosts_test.sh NAME: runs one test of several hosts. HOSTS (scripts/hosts), PROGRAM and SCRATCH come
# from CTest. Exit code 77: this machine does not let us make hosts.
set -uo pipefail

one_op=(--block linear-row --hidden 512 --ffn 512 --seq 64 --max-time 0.1 --min-samples 2 --warmup 1
  --peak-tflops 0.1)

rm -rf "$SCRATCH"
mkdir -p "$SCRATCH"
cd "$SCRATCH" || exit 1

fail() {
  echo "FAILED: $*"
  for file in out links; do [ -f $file ] && sed "s/^/$file: /" $file; done
  exit 1
} >&2
# expect CODE OPTIONS...: scripts/hosts, what it printed in `out`.
expect() {
  local wanted=$1 code=0
  shift
  "$HOSTS" "$@" > out 2>&1 || code=$?
  if [ $code -eq 77 ]; then
    cat out >&2
    exit 77
  fi
  case $wanted in
    nonzero) [ $code -ne 0 ] || fail "exit code 0 of: hosts $*" ;;
    *) [ $code -eq "$wanted" ] || fail "exit code $code, not $wanted, of: hosts $*" ;;
  esac
}
has() { grep -qE -- "$2" "$1" || fail "no '$2' in $1"; }
# sent HOST: bytes.
sent() { awk -v host="$1" '$1 == host { print $2 }' links; }

ranks_are_placed_host_by_host() {
  expect 0 --hosts 3 --ranks-per-host 2 -- bash -c 'echo "rank $PMI_RANK on $(hostname)"'
  for rank in 0 1 2 3 4 5; do has out "^rank $rank on host$((rank / 2))\$"; done
}
exit_code_is_the_programs() {
  expect 3 -- bash -c 'exit 3'
  expect 2 --rate
  expect 2 --hosts 0 -- true
  has out '0 is not a number of hosts'
}
nothing_is_left() {
  expect 0 -- true
  ! ip netns list 2> /dev/null | grep -q '^host0' || fail "a namespace is left"
  ! ip link show port0 > /dev/null 2>&1 || fail "a link is left"
}

two_hosts_run_a_layer() {
  expect 0 --counters links -- "$PROGRAM" --tp 2 "${one_op[@]}"
  has out 'rank 0  host host0'
  has out 'rank 1  host host1'
  has out 'f32 +2 .* pass'
  # 128 KiB in each all-reduce, of which there are many.
  [ "$(sent host0)" -gt 500000 ] || fail "host0 sent $(sent host0) bytes"
}
# The advice knows the link: 80 Mbit/s are 0.01 GB/s. At this length nothing hides, and all-gather
# and Ulysses send less than a ring.
advice_and_rows_over_a_slow_link() {
  expect 0 --rate 80mbit -- "$PROGRAM" --cp 2 --seq 512 --heads 4 --head-dim 64 --check off \
    --max-time 0.1 --min-samples 2 --warmup 1 --peak-tflops 0.1
  has out 'ring of 2 ranks: [0-9.]+ us \+ bytes / 0\.0(0[5-9]|1)'
  has out 'cp 2 ring zigzag overlap .*; measured'
  has out 'predicted fastest: cp 2 (ulysses|all-gather)'
}
ranks_of_a_host_share_memory() {
  expect 0 --ranks-per-host 2 --counters links -- "$PROGRAM" --tp 2 "${one_op[@]}"
  [ "$(sent host0)" -lt 200000 ] || fail "host0 sent $(sent host0) bytes although no group crosses"
  expect 0 --ranks-per-host 2 --counters links -- "$PROGRAM" --tp 4 "${one_op[@]}"
  [ "$(sent host0)" -gt 500000 ] || fail "host0 sent $(sent host0) bytes"
}
# 1 MB/s: a single all-reduce of 128 KiB takes at least 0.1 s.
links_are_shaped() {
  expect 0 --rate 8mbit -- "$PROGRAM" --tp 2 "${one_op[@]}" --check off --out "$SCRATCH/run"
  awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "time_us_p50") c = i; next }
    { exit $c < 1e5 }' run/results.csv || fail "too fast for the link"
}
hanging_rank_is_named_with_its_host() {
  expect 1 -- "$PROGRAM" --tp 2 "${one_op[@]}" --timeout 2 --inject-fault hang:rank=1:op=1
  has out 'rank 1 \(host1\): watchdog'
  has out 'no answer for 2 s.*no sign of life from rank 1 \(host host1'
}
# mpirun told not to end the others at once, so that they can say what they see.
killed_rank_is_named_with_its_host() {
  expect nonzero --hosts 3 -- -disable-auto-cleanup "$PROGRAM" all_reduce -b 8 -e 8 --timeout 2 \
    --inject-fault kill:rank=1:op=9
  for rank in 0 2; do has out "rank $rank \(host$rank\): .*rank 1 \(host host1, pid [0-9]+\)"; done
}

# Bytes over the link of one call: what twenty calls more send more.
per_call() {
  local few many
  for calls in 2 22; do
    expect 0 --ranks-per-host 2 --counters links "$PROGRAM" all_reduce -b 1M -e 1M --algorithm "$1" \
      --out-of-place-only --no-waits -c 0 -n $calls -m 1 -w 1 --max-time 20
    if [ $calls = 2 ]; then few=$(sent host0); else many=$(sent host0); fi
  done
  echo $(((many - few) / 20))
}
collectives_over_two_hosts() {
  expect 0 "$PROGRAM" all_reduce,all_gather,all_to_all -b 8 -e 64K -f 8 --algorithm all --max-time 0.02 \
    --min-samples 3
  has out '#  *Rank  *1 .* host1|host1'
  has out 'Out of bounds values : 0 OK'
}
hierarchical_crosses_the_link_once() {
  local bytes
  bytes=$(per_call hierarchical) || exit $?
  [ "$bytes" -ge 1000000 ] && [ "$bytes" -le 1153434 ] ||
    fail "hierarchical sends $bytes bytes per call of 1048576 over the link"
  bytes=$(per_call ring) || exit $?
  [ "$bytes" -ge 1500000 ] && [ "$bytes" -le 1700000 ] || fail "ring sends $bytes bytes per call"
}
# MPI_Finalize of MPICH hangs when a rank is late there.
programs_end_over_four_hosts() {
  for _ in 1 2 3; do
    expect 0 --hosts 4 timeout -k 1 15 "$PROGRAM" all_reduce -b 8 -e 8 -n 3 -w 1 --no-waits
  done
}
# Hydra kills the other ranks of a host when one ends without a word, and their exit code is lost.
many_ranks_of_a_host_end_well() {
  for _ in 1 2 3 4 5; do
    expect 0 --ranks-per-host 6 "$PROGRAM" all_reduce -b 8 -e 8 -n 3 -w 1 --no-waits -c 0
  done
}

"$1"
echo passed
