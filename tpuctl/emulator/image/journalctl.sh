#!/bin/sh
# journalctl [-u UNIT] [-n LINES] …: the log files of the emulated machine.
log="$(dirname "$0")/../log"
unit="" lines=""
while [ $# -gt 0 ]; do
  case "$1" in
    -u | --unit) unit="$2"; shift ;;
    -u*) unit="${1#-u}" ;;
    --unit=*) unit="${1#--unit=}" ;;
    -n | --lines) lines="$2"; shift ;;
    -n*) lines="${1#-n}" ;;
    --lines=*) lines="${1#--lines=}" ;;
  esac
  shift
done
case "${unit%.service}" in
  "") set -- "$log"/*.log ;;
  google-startup-scripts) set -- "$log/startup.log" ;;
  google-shutdown-scripts) set -- "$log/shutdown.log" ;;
  *) set -- "$log/${unit%.service}.log" ;;
esac
[ -e "$1" ] || { echo "-- No entries --"; exit 0; }
cat -- "$@" | if [ -n "$lines" ]; then tail -n "$lines"; else cat; fi
