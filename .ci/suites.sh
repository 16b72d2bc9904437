# Sourced by `run` and `long`: suites one after another, and the minutes of each at the end, also when one fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CI=true

figures=()

minutes() { printf '%d.%d' $(($1 / 60)) $(($1 % 60 / 6)); }

suite() { # name, command ...
  local name=$1 began=$SECONDS status=0
  shift
  printf '\n== %s: %s\n' "$name" "$*"
  "$@" || status=$?
  figures+=("$(printf '%-17s %7s%s' "$name" "$(minutes $((SECONDS - began)))" "$([ $status -eq 0 ] || echo '  FAILED')")")
  return $status
}

# A suite that takes its time where others leave some: begun by `beside`, and judged by `joined`.
besides=$(mktemp -d)

beside() { # name, command ...
  local name=$1
  shift
  printf '\n== %s, beside the next ones: %s\n' "$name" "$*"
  setsid nice -n 19 bash -c 'kept=$1; shift; status=0; "$@" >"$kept.log" 2>&1 || status=$?; echo $SECONDS >"$kept.seconds"; exit $status' \
    beside "$besides/$name" "$@" &
  echo $! >"$besides/$name.pid"
}

joined() { # name
  local name=$1 status=0
  wait "$(cat "$besides/$name.pid")" || status=$?
  printf '\n== %s\n' "$name"
  cat "$besides/$name.log"
  figures+=("$(printf '%-17s %7s beside%s' "$name" "$(minutes "$(cat "$besides/$name.seconds")")" "$([ $status -eq 0 ] || echo '  FAILED')")")
  return $status
}

report() {
  local status=$?
  for pid in "$besides"/*.pid; do # still at work beside a suite that failed
    if [ -e "$pid" ]; then kill -- -"$(cat "$pid")" 2>/dev/null || true; fi
  done
  rm -rf "$besides"
  printf '\nsuite             minutes\n'
  printf '%s\n' "${figures[@]:-none}"
  printf '%-17s %7s\n' total "$(minutes $SECONDS)"
  if [ $status -eq 0 ]; then echo "all suites passed"; else echo "FAILED, exit status $status"; fi
}
trap report EXIT
trap 'exit 143' TERM # else the report of a run that was cut short would say that all passed
trap 'exit 130' INT
