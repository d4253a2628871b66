#!/bin/sh
# shutdown, poweroff, halt: a soft-off of the emulated machine alone. A reboot is the cloud's to do here (instances.reset).
[ "$(basename "$0")" != reboot ] || set -- -r
for word in "$@"; do
  case "$word" in
    -r | --reboot) echo "$(basename "$0"): a reboot from inside is not emulated; reset the instance" >&2; exit 1 ;;
    -c) exit 0 ;;
  esac
done
exec "$(dirname "$0")/systemctl" poweroff
