# What the end-to-end tests share; to be sourced. PROGRAM, MPIEXEC and SCRATCH come from CTest.

rm -rf "$SCRATCH"
mkdir -p "$SCRATCH"
cd "$SCRATCH" || exit 1

fail() {
  echo "FAILED: $*"
  for file in out err; do [ -f $file ] && sed "s/^/$file: /" $file; done
  exit 1
}
# expect CODE COMMAND...: runs it with stdout in `out` and stderr in `err`.
expect() {
  local wanted=$1 code
  shift
  "$@" > out 2> err
  code=$?
  case $wanted in
    nonzero) [ $code -ne 0 ] || fail "exit code 0 of: $*" ;;
    *) [ $code -eq "$wanted" ] || fail "exit code $code, not $wanted, of: $*" ;;
  esac
}
has() { grep -qE -- "$2" "$1" || fail "no '$2' in $1"; }
has_not() { if grep -qE -- "$2" "$1"; then fail "'$2' in $1"; fi; }
# column NAME FOLDER: its values.
column() {
  awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i; next } { print $c }' \
    "$2/results.csv"
}
mpi() { local ranks=$1; shift; "$MPIEXEC" -n "$ranks" "$PROGRAM" "$@"; }
