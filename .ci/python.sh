#!/usr/bin/env bash
# Installs the Python SDK of MCP for the programs of docs/connect.md, into the folder of tools.sh outside the project, and keeps
# the SDK for the next run. Prints the path of the interpreter.
#
#   BREAKWATER_TOOLS   the folder (default: breakwater-tools under TMPDIR or /tmp)
set -euo pipefail

package='mcp>=2,<3'

tools="${BREAKWATER_TOOLS:-${TMPDIR:-/tmp}/breakwater-tools}"
mkdir -p "$tools"
# Another user of a shared temporary folder must not choose the programs run here.
if [ ! -O "$tools" ]; then
  echo "python.sh: $tools belongs to somebody else; set BREAKWATER_TOOLS" >&2
  exit 1
fi

python="$tools/python-mcp/bin/python"
if ! "$python" -c 'from mcp import Client' 2>/dev/null; then
  rm -rf "$tools/python-mcp"
  python3 -m venv "$tools/python-mcp"
  "$python" -m pip install --quiet --retries 0 "$package" >&2
fi
echo "$python"
