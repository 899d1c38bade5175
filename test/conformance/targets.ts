import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { engine } from '../support/engine.ts'
import { start } from './children.ts'

const START_LIMIT_MS = 30_000

const script = (path: string) => fileURLToPath(new URL(path, import.meta.url))

/** Starts a fixture of the compiled tests; resolves with its URL. */
export function startFixture(name: string, scratch: string): Promise<string> {
  const child = start(
    process.execPath,
    [script(`../fixtures/${name}`), '--port', '0'],
    join(scratch, 'fixture.log'),
  )
  return child.line((line) => /^listening (\S+)$/.exec(line)?.[1], START_LIMIT_MS)
}

/** Starts the gateway with one server, `fixture`. Resolves with the URL of this server's own route. */
export async function startGateway(upstream: string, scratch: string): Promise<string> {
  const config = {
    gateway: { listen: '127.0.0.1:0', control: '127.0.0.1:0', environment: 'test', ...engine },
    mcpServers: { fixture: { url: upstream } },
  }
  const { data } = await startProgram(config, join(scratch, 'gateway'))
  return `${data}/mcp/fixture`
}

/** Base URLs of a gateway's listeners. */
export interface Addresses {
  readonly data: string
  readonly controlMcp?: string
}

/** Starts the gateway with a config, written to `path`.yaml; the log goes to `path`.log. Resolves with its addresses. */
export async function startProgram(config: object, path: string): Promise<Addresses> {
  await writeFile(`${path}.yaml`, JSON.stringify(config))
  const args = [script('../../dist/main.js'), 'start', '--config', `${path}.yaml`]
  return start(process.execPath, args, `${path}.log`).line(addressesIn, START_LIMIT_MS)
}

/** Returns the addresses in a line of the log; undefined for other lines. */
function addressesIn(line: string): Addresses | undefined {
  if (!line.startsWith('{')) return undefined
  const entry = JSON.parse(line) as { readonly msg?: unknown } & Addresses
  return entry.msg === 'listening' ? entry : undefined
}
