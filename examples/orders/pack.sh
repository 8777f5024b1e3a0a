#!/bin/sh
# A worker's command: the task as JSON on standard input, a JSON object on standard output, logs on standard error.
task=$(cat)
order=$(printf '%s' "$task" | sed -n 's/.*"orderId":"\([^"]*\)".*/\1/p')
echo "packing order $order (attempt $NF_ATTEMPT)" >&2
sleep 1
printf '{"parcel":"parcel-%s","packedBy":"pack.sh"}\n' "$order"
