import { open, unlink } from 'node:fs/promises'
import { join } from 'node:path'
import { optionLines, type Output, runCommand } from '../shared/arguments.ts'
import { findConfig } from './find-config.ts'
import { makeFolder } from '../../units/folder.ts'

const options = {
  folder: {
    kind: 'text',
    value: 'FOLDER',
    about: 'the folder to write it into, which is made if it is not there (default: this one)',
  },
} as const

const usage = `breakwater init [--folder FOLDER]

  Writes a commented breakwater.yaml, and says what to do next. Never overwrites anything.

${optionLines(options)}`

/** The config that `init` writes. */
export const starter = `# Breakwater: what agents reach at http://127.0.0.1:8080/mcp, and operators at http://127.0.0.1:8081.
# Save this file and a running gateway follows; a mistake changes nothing. \`breakwater validate\` finds it beforehand.
# Relative paths are relative to this file.

gateway:
  # What this gateway serves: dev, development, test, staging, sandbox, qa or local. Elsewhere faults are never armed.
  environment: development

# MCP servers, as Claude, VS Code and Cursor write them. Agents see their tools as {server}__{tool}.
mcpServers:
  # A program that speaks over standard input and output.
  memory:
    command: npx
    args: [-y, '@modelcontextprotocol/server-memory']
    trusted: true # what it says of its tools is believed: those that only read may be tried again, and hit by faults

  # One behind HTTP. \${NAME} is a variable of the environment, \${NAME:-text} has a default.
  # search:
  #   url: https://example.com/mcp
  #   headers: { Authorization: 'Bearer \${SEARCH_TOKEN}' }

# Deadlines, gates, retries and the other policies have defaults and are in force already.
# policies:
#   defaults:
#     attemptTimeout: { timeout: 30s }
#   overrides:
#     - match: { server: memory, tool: 'read_*' }
#       effect: read_only # may be tried again

# Faults on purpose: \`breakwater chaos inject memory conn.latency --delay 1s --duration 1m\`.
chaos:
  enabled: true
`

const NAME = 'breakwater.yaml'

/** `breakwater init`. Resolves to the exit code; 1 when there is a config already. */
export function init(args: readonly string[], out: Output): Promise<number> {
  return runCommand(args, { usage, options, positionals: [] }, out, async ({ folder }) => {
    const found = await findConfig(folder ?? '.')
    // An editor's config works unchanged; a new config would take its place.
    if (found !== undefined) {
      const [there, start] =
        folder === undefined ? ['here', 'start'] : ['there', `start --config ${join(folder, found)}`]
      out.stderr(
        `breakwater: ${there} is a ${found} already: \`breakwater ${start}\` runs it, and nothing was written`,
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

  breakwater ${validate.padEnd(width)}   checks it, whenever you have changed it
  breakwater ${start.padEnd(width)}   runs the gateway, and says what to paste into an MCP client
  breakwater ${'status'.padEnd(width)}   says how its servers are, from another terminal`)
    return 0
  })
}

/** Writes a new file as a whole or not at all: an incomplete file would be taken for a config. */
async function write(path: string, text: string): Promise<void> {
  const file = await open(path, 'wx')
  try {
    await file.writeFile(text).finally(() => file.close())
  } catch (error) {
    await unlink(path)
    throw error
  }
}
