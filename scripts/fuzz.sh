#!/bin/sh
# Runs each fuzz target of the module for the given number of seconds.
set -eu
seconds=${1:?seconds}
go=${GO:-go}
grep -rlE --include='*_test.go' '^func Fuzz[A-Z]' . | grep -v '^\./bench/' | xargs -r -n 1 dirname | sort -u | while read -r dir; do
  cat "$dir"/*_test.go | sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' | sort -u | while read -r target; do
    "$go" test -run '^$' -fuzz "^$target\$" -fuzztime "${seconds}s" "$dir" </dev/null
  done
done
