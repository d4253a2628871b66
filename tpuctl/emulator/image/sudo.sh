#!/bin/sh
# The user of an emulated machine is its root: options are passed over, the rest is run.
while [ $# -gt 0 ]; do
  case "$1" in
    -u | -g) shift 2 ;;
    --) shift; break ;;
    -*) shift ;;
    *) break ;;
  esac
done
while [ $# -gt 0 ]; do
  case "$1" in
    [A-Za-z_]*=*) export "${1?}"; shift ;;
    *) break ;;
  esac
done
[ $# -eq 0 ] || exec "$@"
