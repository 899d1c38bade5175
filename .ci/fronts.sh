#!/usr/bin/env bash
# Installs missing `nginx` and `haproxy`, the front proxies of test/e2e/smuggling. For Debian and Ubuntu, as root
# or with sudo. The services are not started: the tests start their own. Without this script, the tests skip the
# missing fronts and say so.
set -euo pipefail

# Debian keeps haproxy in a folder that the PATH of users may lack.
PATH="$PATH:/usr/sbin"
if command -v nginx >/dev/null && command -v haproxy >/dev/null; then
  exit 0
fi

if ! command -v apt-get >/dev/null; then
  echo 'fronts.sh: needs apt-get; elsewhere put nginx and haproxy in the PATH' >&2
  exit 1
fi

sudo=()
if [ "$(id -u)" -ne 0 ]; then sudo=(sudo); fi

# Packages ask this file whether their services may start; an existing file of the machine is kept.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null
  "${sudo[@]}" chmod +x "$policy"
  trap '"${sudo[@]}" rm -f "$policy"' EXIT
fi

"${sudo[@]}" apt-get update -qq
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nginx-light haproxy >&2

# The services would also start at boot.
if command -v systemctl >/dev/null; then
  "${sudo[@]}" systemctl disable nginx haproxy >&2 || true
fi
