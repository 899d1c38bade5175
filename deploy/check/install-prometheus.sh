#!/usr/bin/env bash
# Installs missing `prometheus` and `promtool` for `npm run dashboards:check` and a test.
# For Debian and Ubuntu, as root or with sudo. The service is not started: the checks start their own.
set -euo pipefail

if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
  exit 0
fi

if ! command -v apt-get >/dev/null; then
  echo 'install-prometheus.sh: needs apt-get; elsewhere put prometheus and promtool 2.42 or later in the PATH' >&2
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
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus >&2

# The service would also start at boot.
if command -v systemctl >/dev/null; then
  "${sudo[@]}" systemctl disable prometheus >&2 || true
fi
