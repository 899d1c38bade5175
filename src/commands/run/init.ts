import { open, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { optionLines, type Output, runCommand } from '../shared/arguments.ts'
import { findConfig } from './find-config.ts'
import { makeFolder } from '../../units/folder.ts'

const options = {
  folder: {
    kind: 'text',
    value: 'FOLDER',
    about: 'the folder for the file, created if missing (default: the current folder)',
  },
} as const

const usage = `breakwater init [--folder FOLDER]

  Writes a commented breakwater.yaml, and prints the next steps. Never overwrites a file.

${optionLines(options)}`

export const starter = `# Breakwater: agents connect to http://127.0.0.1:8080/mcp, operators to http://127.0.0.1:8081.
# A running gateway reloads this file when saved, unless it has errors. \`breakwater validate\` finds errors beforehand.
# Relative paths are relative to this file.

gateway:
  # Faults can be armed in dev, development, test, staging, sandbox, qa or local only.
  environment: development

# MCP servers, as Claude, VS Code and Cursor write them. Agents see their tools as {server}__{tool}.
mcpServers:
  # A program that speaks over standard input and output.
  memory:
    command: npx
    args: [-y, '@modelcontextprotocol/server-memory']
    trusted: true # believes its tool hints: read-only tools may be retried, and hit by faults

  # A server behind HTTP. \${NAME} is an environment variable, \${NAME:-text} has a default.
  # search:
  #   url: https://example.com/mcp
  #   headers: { Authorization: 'Bearer \${SEARCH_TOKEN}' }

# Deadlines, gates, retries and the other policies have defaults and are in force already.
# policies:
#   defaults:
#     attemptTimeout: { timeout: 30s }
#   overrides:
#     - match: { server: memory, tool: 'read_*' }
#       effect: read_only # may be retried

# Faults on purpose: \`breakwater chaos inject memory conn.latency --delay 1s --duration 1m\`.
chaos:
  enabled: true
`

const NAME = 'breakwater.yaml'

/** `breakwater init`. Resolves to the exit code; 1 when there is a config already. */
export function init(args: readonly string[], out: Output): Promise<number> {
  return runCommand(args, { usage, options, positionals: [] }, out, async ({ folder }) => {
    const found = await findConfig(folder ?? '.')
    // An existing config, such as an editor's `.mcp.json`, works unchanged; a new config would override it.
    if (found !== undefined) {
      const [there, start] =
        folder === undefined ? ['here', 'start'] : ['there', `start --config ${join(folder, found)}`]
      out.stderr(
        `breakwater: ${there} is a ${found} already, so nothing was written: \`breakwater ${start}\` runs it`,
      )
      return 1
    }
    if (folder !== undefined) makeFolder(folder)
    const file = join(folder ?? '', NAME)
    await write(file, starter)
    const [validate, start] =
      folder === undefined ? ['validate', 'start'] : [`validate ${file}`, `start --config ${file}`]
    const width = Math.max(validate.length, start.length)
    out.stdout(`${file} is written. Next:

  breakwater ${validate.padEnd(width)}   checks it after each change
  breakwater ${start.padEnd(width)}   runs the gateway, and prints the settings for an MCP client
  breakwater ${'status'.padEnd(width)}   shows its servers, from another terminal`)
    return 0
  })
}

/** Writes a new file completely or not at all, because an incomplete file would look like a config. */
async function write(path: string, text: string): Promise<void> {
  const file = await open(path, 'wx')
  try {
    await file.writeFile(text).finally(() => file.close())
  } catch (error) {
    await unlink(path)
    throw error
  }
}
