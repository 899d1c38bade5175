import { createRequire } from 'node:module'
import { createServer, type AddressInfo } from 'node:net'
import { dirname, join } from 'node:path'
import { Gateway } from './gateway.ts'
import { Program } from './program.ts'

const manifest = createRequire(import.meta.url).resolve(
  '@modelcontextprotocol/server-everything/package.json',
)
const script = join(dirname(manifest), 'dist', 'index.js')

/** Ways to run the same server. */
export const kinds = ['shared', 'private', 'remote'] as const

export type Kind = (typeof kinds)[number]

/** A path to a server: the endpoint, and the prefixes of its names there. */
export interface Route {
  readonly title: string
  readonly kind: Kind
  readonly url: (gateway: Gateway) => string
  /** Returns the name of a tool or prompt on this route. */
  readonly name: (own: string) => string
  readonly uri: (own: string) => string
}

/** Every kind of server, on its own endpoint and on the aggregate. */
export const routes: readonly Route[] = kinds.flatMap((kind): Route[] => [
  {
    title: `a ${kind} server on its own endpoint`,
    kind,
    url: (gateway) => gateway.mcp(kind),
    name: (own) => own,
    uri: (own) => own,
  },
  {
    title: `a ${kind} server among others`,
    kind,
    url: (gateway) => gateway.mcp(),
    name: (own) => `${kind}__${own}`,
    uri: (own) => `breakwater://${kind}/${own}`,
  },
])

/** Starts a gateway before the reference server: over stdio, shared and per session, and over HTTP. */
export async function startEverything(): Promise<Gateway> {
  const remote = await startRemote()
  const local = { command: process.execPath, args: [script, 'stdio'] }
  const gateway = await Gateway.start({
    servers: { shared: local, private: { ...local, sharing: 'per_session' }, remote: { url: remote } },
  })
  await gateway.waitFor('up', ...kinds)
  return gateway
}

async function startRemote(): Promise<string> {
  const port = await freePort()
  const program = new Program([script, 'streamableHttp'], { env: { PORT: String(port) } })
  await program.line('the server listens', (line) => (line.includes('listening on port') ? true : undefined))
  return `http://127.0.0.1:${port}/mcp`
}

/** Returns a port free just now: the server cannot report its own port. */
export async function freePort(): Promise<number> {
  const server = createServer()
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return port
}
