# Sourced by `run` and `long`: suites one after another. One that fails does not end the run, so that one run tells all
# that is wrong; at the end stand the last lines of each that failed, and the minutes of all.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CI=true

LAST_LINES=60
planned_total=$(awk '$1 !~ /^#/ && $3 != "beside" { sum += $2 } END { print sum }' .ci/budget)
figures=()
failed=()
logs=$(mktemp -d)

planned() { awk -v name="$1" '$1 == name { print $2 }' .ci/budget; }

minutes() { printf '%d.%d' $(($1 / 60)) $(($1 % 60 / 6)); }

judge() { # name, status, seconds, word
  figures+=("$(printf '%-17s %7s %7s%s%s' "$1" "$(planned "$1")" "$(minutes "$3")" "$4" "$([ "$2" -eq 0 ] || echo '  FAILED')")")
  [ "$2" -eq 0 ] || failed+=("$1")
  return "$2"
}

suite() { # name, command ...
  local name=$1 began=$SECONDS status=0
  shift
  printf '\n== %s: %s\n' "$name" "$*"
  "$@" > >(tee "$logs/$name.log") 2>&1 || status=$?
  judge "$name" $status $((SECONDS - began)) ''
}

# A suite that runs while others wait: begun by `beside`, and judged by `joined`. A niceness of 19 leaves the processor
# to the others; 0 is for a suite that waits as well, and has tests that must not be starved.
beside() { # niceness, name, command ...
  local niceness=$1 name=$2
  shift 2
  printf '\n== %s, beside the next ones: %s\n' "$name" "$*"
  setsid nice -n "$niceness" bash -c 'kept=$1; shift; status=0; "$@" >"$kept.log" 2>&1 || status=$?; echo $SECONDS >"$kept.seconds"; exit $status' \
    beside "$logs/$name" "$@" &
  echo $! >"$logs/$name.pid"
  echo $SECONDS >"$logs/$name.began"
}

joined() { # name
  local name=$1 status=0 seconds
  wait "$(cat "$logs/$name.pid")" || status=$?
  rm "$logs/$name.pid"
  printf '\n== %s\n' "$name"
  cat "$logs/$name.log"
  if ! seconds=$(cat "$logs/$name.seconds" 2>/dev/null); then # killed before it could write them
    seconds=$((SECONDS - $(cat "$logs/$name.began")))
    echo "$name was killed, exit status $status" | tee -a "$logs/$name.log"
    [ $status -ne 0 ] || status=1
  fi
  judge "$name" $status "$seconds" ' beside'
}

report() {
  local status=$?
  for pid in "$logs"/*.pid; do # still at work beside a run that was cut short
    if [ -e "$pid" ]; then kill -- -"$(cat "$pid")" 2>/dev/null || true; fi
  done
  for name in "${failed[@]}"; do
    printf '\n== %s FAILED; its last lines:\n' "$name"
    tail -n $LAST_LINES "$logs/$name.log"
  done
  rm -rf "$logs"
  printf '\nsuite             planned  actual\n'
  printf '%s\n' "${figures[@]:-none}"
  printf '%-17s %7s %7s\n' total "$planned_total" "$(minutes $SECONDS)"
  if [ ${#failed[@]} -gt 0 ]; then
    echo "FAILED: ${failed[*]}"
    exit 1
  elif [ $status -ne 0 ]; then
    echo "CUT SHORT, exit status $status"
  else
    echo "all suites passed"
  fi
}
trap report EXIT
trap 'exit 143' TERM # else the report of a run that was cut short would say that all passed
trap 'exit 130' INT
