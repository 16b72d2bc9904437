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

report() {
  local status=$?
  printf '\nsuite             minutes\n'
  printf '%s\n' "${figures[@]:-none}"
  printf '%-17s %7s\n' total "$(minutes $SECONDS)"
  if [ $status -eq 0 ]; then echo "all suites passed"; else echo "FAILED, exit status $status"; fi
}
trap report EXIT
trap 'exit 143' TERM # else the report of a run that was cut short would say that all passed
trap 'exit 130' INT
