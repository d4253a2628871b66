#!/bin/bash
# The startup script of tpuctl's VMs: the same text on the head and on every host, run on every boot, safe to run again.
# It reads the attribute `tpuctl-config`, checks the Python environment, mounts the head's data disk and hands over to
# systemd units. Everything that it writes is below $PREFIX. No secret passes through it.
set -u
umask 022

PREFIX="${HOME:-/opt}/tpuctl" # a VM's startup script has no HOME
DATA_DISK="/dev/disk/by-id/google-tpuctl-data"
UNIT_HOME="${HOME:-/root}"

say() { echo "tpuctl-startup: $*"; }

# metadata KEY [VALUE]: print instance/KEY of the metadata server, or write VALUE to it. Status 3: there is no such key.
metadata() {
    python3 -c '
import os, sys, urllib.error, urllib.request
host = os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
body = sys.argv[2].encode() if len(sys.argv) > 2 else None
request = urllib.request.Request(
    f"http://{host}/computeMetadata/v1/instance/{sys.argv[1]}", data=body,
    headers={"Metadata-Flavor": "Google"}, method="PUT" if body is not None else "GET")
try:
    # No proxy: the address is link-local, and what a proxy says would be another machine'"'"'s truth.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10) as answer:
        sys.stdout.write(answer.read().decode())
except urllib.error.HTTPError as error:
    sys.exit(3 if error.code == 404 else f"metadata server: {error}")
except OSError as error:
    sys.exit(f"metadata server: {error}")
' "$@"
}

# stage TEXT: tell the boot stage where the pass and people can read it without a login.
stage() {
    say "$1"
    metadata guest-attributes/tpuctl/stage "$1" || say "the guest attribute tpuctl/stage could not be written"
}

stop_here() {
    stage "refused: $1"
    exit 1
}

# retry TIMES PAUSE_S COMMAND...: until it succeeds, or says with status 3 that it never will.
retry() {
    local times="$1" pause_s="$2" status=1 n
    shift 2
    for ((n = 1; n <= times; n++)); do
        "$@" && return 0
        status=$?
        [ "$status" -eq 3 ] && return 3
        say "attempt $n of $times failed: $*"
        [ "$n" -lt "$times" ] && sleep "$pause_s"
    done
    return "$status"
}

store_config() {
    metadata attributes/tpuctl-config >"$PREFIX/.config.json.new" || return
    mv -f "$PREFIX/.config.json.new" "$PREFIX/config.json"
}

# config KEY: a top-level text of config.json; nothing when it is absent.
config() {
    python3 -c '
import json, sys
with open(sys.argv[1]) as file:
    print(json.load(file).get(sys.argv[2], ""))
' "$PREFIX/config.json" "$1"
}

# A disk is formatted only when nothing at all is on it: no signature, and zeros where any file system has its header.
is_blank() {
    [ -b "$1" ] || return 1
    blkid -p "$1" >/dev/null
    [ $? -eq 2 ] && cmp -s -n 1048576 "$1" /dev/zero
}

mount_data() {
    mkdir -p "$PREFIX/data" || return
    mountpoint -q "$PREFIX/data" && return 0
    mount "$DATA_DISK" "$PREFIX/data" && return 0
    is_blank "$DATA_DISK" || return 1
    say "the data disk is blank: formatting it"
    mkfs.ext4 -q -m 0 "$DATA_DISK" && mount "$DATA_DISK" "$PREFIX/data"
}

# unit_text NAME KILL_MODE ARGUMENTS: what systemd is to keep alive. The digest is in it so that new code is a new unit.
unit_text() {
    cat <<UNIT
# tpuctl $DIGEST
[Unit]
Description=$1
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=$PYTHON $3
WorkingDirectory=/
Restart=always
RestartSec=2
KillMode=$2
TimeoutStopSec=28
Environment="TPUCTL_VM_DIR=$PREFIX"
Environment="HOME=$UNIT_HOME"
Environment="PATH=$PATH"
UNIT
    local name
    for name in TMPDIR GCE_METADATA_HOST GCE_METADATA_IP STORAGE_EMULATOR_HOST TPU_DEV_ROOT; do
        if [ -n "${!name:-}" ]; then echo "Environment=\"$name=${!name}\""; fi
    done
    cat <<UNIT
StandardOutput=append:$PREFIX/log/$1.log
StandardError=append:$PREFIX/log/$1.log
UNIT
}

# start_unit NAME KILL_MODE ARGUMENTS: a unit that runs as it should is left alone; a changed one is restarted.
# Units are never enabled: at a boot this script alone starts them, after the disk is mounted and the config is read. An
# agent that came up before its disk would take an empty directory for an empty store.
start_unit() {
    local file="$PREFIX/units/$1.service" verb=start
    unit_text "$@" >"$file.new" || return
    if [ -f "$file" ] && ! cmp -s "$file" "$file.new"; then verb=restart; fi
    mv -f "$file.new" "$file" || return
    systemctl link "$file" && systemctl daemon-reload && systemctl "$verb" "$1.service"
}

cd / # `python -m` looks in the working directory first, and below HOME lies a directory called tpuctl
mkdir -p "$PREFIX/units" "$PREFIX/log" || { say "cannot write below $PREFIX"; exit 1; }
retry 90 2 metadata id >/dev/null || { say "the metadata server does not answer"; exit 1; }
retry 30 2 store_config || stop_here "this VM has no readable attribute tpuctl-config"
if ! ROLE="$(config role)" || ! DIGEST="$(config digest)"; then stop_here "the attribute tpuctl-config is not JSON"; fi
stage "booting"

PYTHON="$(command -v python)" || PYTHON=""
FOUND=""
[ -n "$PYTHON" ] && FOUND="$(retry 3 2 "$PYTHON" -m tpuctl.hosts digest)"
if [ -z "$DIGEST" ] || [ "$FOUND" != "$DIGEST" ]; then
    stop_here "python on PATH (${PYTHON:-none}) has tpuctl ${FOUND:-none}, wanted is ${DIGEST:-none}; making the\
 environment on a VM is not there yet: use an image that has it"
fi

case "$ROLE" in
head)
    retry 30 2 mount_data || stop_here "the data disk $DATA_DISK cannot be mounted at $PREFIX/data"
    retry 10 3 start_unit tpuctl-ray mixed "-m tpuctl.hosts head" || stop_here "unit tpuctl-ray cannot be started"
    retry 10 3 start_unit tpuctl-agent process "-m tpuctl.agent" || stop_here "unit tpuctl-agent cannot be started"
    ;;
host)
    retry 10 3 start_unit tpuctl-host mixed "-m tpuctl.hosts" || stop_here "unit tpuctl-host cannot be started"
    ;;
*) stop_here "the attribute tpuctl-config names the role '$ROLE', known are head and host" ;;
esac
stage "units started"
