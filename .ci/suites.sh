# Sourced by `run` and `long`: suites one after another. One that fails does not end the run, so that one run tells all
# that is wrong; at the end stand the last lines of each that failed, and the minutes of all.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CI=true

LAST_LINES=60
figures=()
failed=()
logs=$(mktemp -d)

minutes() { printf '%d.%d' $(($1 / 60)) $(($1 % 60 / 6)); }

judge() { # name, status, seconds, word
  figures+=("$(printf '%-17s %7s%s%s' "$1" "$(minutes "$3")" "$4" "$([ "$2" -eq 0 ] || echo '  FAILED')")")
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

# A suite that takes its time where others leave some: begun by `beside`, and judged by `joined`.
beside() { # name, command ...
  local name=$1
  shift
  printf '\n== %s, beside the next ones: %s\n' "$name" "$*"
  setsid nice -n 19 bash -c 'kept=$1; shift; status=0; "$@" >"$kept.log" 2>&1 || status=$?; echo $SECONDS >"$kept.seconds"; exit $status' \
    beside "$logs/$name" "$@" &
  echo $! >"$logs/$name.pid"
}

joined() { # name
  local name=$1 status=0
  wait "$(cat "$logs/$name.pid")" || status=$?
  rm "$logs/$name.pid"
  printf '\n== %s\n' "$name"
  cat "$logs/$name.log"
  judge "$name" $status "$(cat "$logs/$name.seconds")" ' beside'
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
  printf '\nsuite             minutes\n'
  printf '%s\n' "${figures[@]:-none}"
  printf '%-17s %7s\n' total "$(minutes $SECONDS)"
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
