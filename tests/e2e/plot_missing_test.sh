#!/usr/bin/env bash
# plot_missing_test.sh SCRIPTS PYTHON SCRATCH: without pandas or matplotlib every script that draws
# says in one line what is missing and how to get it, with exit code 2.
set -euo pipefail

scripts=$1 python=$2
mkdir -p "$3"
cd "$3"
for module in pandas matplotlib; do
  rm -rf without
  mkdir -p without/$module
  echo "raise ImportError(\"No module named '$module'\")" > without/$module/__init__.py
  for script in "$scripts"/plot*.py; do
    code=0
    PYTHONPATH=without "$python" "$script" run > out 2> err || code=$?
    if [ $code -ne 2 ] || [ "$(wc -l < err)" -ne 1 ] ||
      ! grep -q "$(basename "$script"): No module named '$module'.*Debian: python3-matplotlib python3-pandas" err; then
      echo "FAILED: $script without $module: exit code $code"
      cat err
      exit 1
    fi
  done
done
