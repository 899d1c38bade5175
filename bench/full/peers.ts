import { execFile } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { bound } from '../../test/support/bound.ts'
import { script } from '../middle.ts'
import type { Speech } from './load.ts'

/** Foreign gateways. A run installs peers on request, beside the project. */
export interface Peer {
  /** Its package, at the measured version. */
  readonly name: string
  readonly version: string
  readonly main: string
  /** Kinds of servers that the peer supports. */
  readonly upstreams: readonly ('http' | 'stdio')[]
  readonly speech: Speech
  /** Path to load, and the name of the upstream's `echo` there. */
  readonly path: string
  readonly tool: string
  readonly note: string
  launch(site: Site): Launch
}

/** The place of a peer in a cell. */
export interface Site {
  readonly port: number
  /** The server, over HTTP or as a command; exactly one of both. */
  readonly upstream: { readonly url: string } | { readonly command: string; readonly args: readonly string[] }
  /** A folder for its files. */
  readonly scratch: string
}

export interface Launch {
  readonly args: readonly string[]
  readonly env?: Readonly<Record<string, string>>
}

const commandOf = ({ upstream }: Site): readonly string[] =>
  'command' in upstream ? [upstream.command, ...upstream.args] : []

export const peers: readonly Peer[] = [
  {
    name: '@civic/passthrough-mcp-server',
    version: '0.12.1',
    main: 'dist/cli.js',
    upstreams: ['http'],
    speech: 'legacy',
    path: '/mcp',
    tool: 'echo',
    note: 'without hooks',
    launch: ({ port, upstream }) => ({
      args: [],
      env: { PORT: String(port), TARGET_SERVER_URL: 'url' in upstream ? new URL(upstream.url).origin : '' },
    }),
  },
  {
    name: 'mcp-hub',
    version: '4.2.1',
    main: 'dist/cli.js',
    upstreams: ['http', 'stdio'],
    speech: 'http+sse',
    path: '/mcp',
    tool: 'upstream__echo',
    note: 'agents use HTTP+SSE: two exchanges a call; one server session for all agents; logs to a file',
    launch: ({ port, upstream, scratch }) => {
      const file = join(scratch, `mcp-hub-${port}.json`)
      writeFileSync(file, JSON.stringify({ mcpServers: { upstream } }))
      return { args: ['--port', String(port), '--config', file] }
    },
  },
  {
    name: 'mcp-proxy',
    version: '6.7.19',
    main: 'dist/bin/mcp-proxy.mjs',
    upstreams: ['stdio'],
    speech: 'legacy',
    path: '/mcp',
    tool: 'echo',
    note: 'one server process for all sessions',
    launch: (site) => ({
      args: [
        '--host',
        '127.0.0.1',
        '--port',
        String(site.port),
        '--server',
        'stream',
        '--',
        ...commandOf(site),
      ],
    }),
  },
  {
    name: 'supergateway',
    version: '4.0.0',
    main: 'dist/index.js',
    upstreams: ['stdio'],
    speech: 'legacy',
    path: '/mcp',
    tool: 'echo',
    note: '--stateful: a server process for each session, not counted',
    launch: (site) => ({
      args: [
        ...['--stdio', commandOf(site).map(quoted).join(' '), '--outputTransport', 'streamableHttp'],
        ...['--stateful', '--port', String(site.port), '--logLevel', 'none'],
      ],
    }),
  },
]

/** For a POSIX shell, which supergateway uses to start servers. */
const quoted = (word: string) => `'${word.replaceAll("'", "'\\''")}'`

/** Folder of foreign packages: ignored by git, and kept for the next run. */
const FOLDER = resolve('.bench-peers')

const INSTALL_WITHIN_MS = 300_000

const home = ({ name, version }: Peer) => join(FOLDER, `${name.replace('/', '+')}@${version}`)
const folderOf = (peer: Peer) => join(home(peer), 'node_modules', peer.name)

/** Installs a peer if missing, without running package scripts. Rejects with the reason of a failure. */
export async function install(peer: Peer): Promise<void> {
  if (existsSync(join(folderOf(peer), peer.main)) && versionOf(peer) === peer.version) return
  mkdirSync(home(peer), { recursive: true })
  const options = ['--no-save', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error']
  const what = `${peer.name}@${peer.version}`
  const args = ['install', ...options, '--prefix', home(peer), what]
  try {
    await promisify(execFile)('npm', args, { timeout: INSTALL_WITHIN_MS, env: bound() })
  } catch (error) {
    const { stderr = '', message } = error as Error & { readonly stderr?: string }
    throw new Error(`npm install ${what}: ${(stderr.trim() || message).split('\n')[0]}`)
  }
}

function versionOf(peer: Peer): string {
  const { version } = JSON.parse(readFileSync(join(folderOf(peer), 'package.json'), 'utf8')) as {
    version: string
  }
  return version
}

/** Returns the arguments of node and the whole environment for a peer on loopback only. */
export function command(
  peer: Peer,
  site: Site,
): { readonly args: readonly string[]; readonly env: NodeJS.ProcessEnv } {
  const { args, env } = peer.launch(site)
  return {
    args: ['--import', script('./full/loopback.js'), join(folderOf(peer), peer.main), ...args],
    // The peer writes into its own home, reads no settings of the user, and finds no programs that would use the
    // network.
    env: { PATH: join(site.scratch, 'no-programs'), HOME: site.scratch, NODE_ENV: 'production', ...env },
  }
}
