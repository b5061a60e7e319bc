#!/usr/bin/env bash
# Install what the tests call: mkfs and losetup for disks that die, and Python's venv. Nothing is done
# where they are there already; without root or apt-get it only says what is missing.
set -euo pipefail
PATH="$PATH:/usr/sbin:/sbin"

# `install-tools.sh btrfs` brings the tools of the RAID layouts besides, and `install-tools.sh jepsen`
# those of network namespaces and of clocks that jump, `install-tools.sh browser` a browser, and
# `install-tools.sh clients` clients of a broker.
declare -A package=(
    [mkfs.ext4]=e2fsprogs
    [mkfs.xfs]=xfsprogs
    [losetup]=mount
    [mount]=mount
)
[ "${1:-}" = btrfs ] && package[mkfs.btrfs]=btrfs-progs
[ "${1:-}" = jepsen ] && package+=([ip]=iproute2 [nsenter]=util-linux [cc]=build-essential)
[ "${1:-}" = browser ] && package+=([chromium]=chromium)
[ "${1:-}" = clients ] && package+=([kcat]=kcat)
missing=()
for tool in "${!package[@]}"; do
    command -v "$tool" >/dev/null || missing+=("${package[$tool]}")
done
[ -n "$("$(dirname "$0")/find-python.sh")" ] || missing+=(python3-venv)
[ ${#missing[@]} -eq 0 ] && exit 0

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "note: the tests on real disks need ${missing[*]}" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -q && apt-get install -q -y --no-install-recommends "${missing[@]}"; } >&2; then
    echo "note: could not install ${missing[*]}; the tests on real disks use what is there" >&2
fi
