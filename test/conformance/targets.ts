import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
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
  const file = join(scratch, 'gateway.yaml')
  const config = {
    gateway: { listen: '127.0.0.1:0', control: '127.0.0.1:0', environment: 'test' },
    mcpServers: { fixture: { url: upstream } },
  }
  await writeFile(file, JSON.stringify(config))
  const args = [script('../../dist/main.js'), 'start', '--config', file]
  const data = await start(process.execPath, args, join(scratch, 'gateway.log')).line(
    dataPlane,
    START_LIMIT_MS,
  )
  return `${data}/mcp/fixture`
}

/** Returns the data plane's base URL from its log line; undefined for other lines. */
function dataPlane(line: string): string | undefined {
  if (!line.startsWith('{')) return undefined
  const entry = JSON.parse(line) as { msg?: unknown; data?: unknown }
  return entry.msg === 'listening' && typeof entry.data === 'string' ? entry.data : undefined
}
