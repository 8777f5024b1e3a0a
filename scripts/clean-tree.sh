#!/bin/sh
# Fails when the work tree differs from the last commit, and shows how.
set -eu
changed=$(git status --porcelain)
[ -n "$changed" ] || exit 0
echo "These files are not as committed (make verify generates, formats and tidies):" >&2
echo "$changed" >&2
git --no-pager diff --stat >&2
exit 1
