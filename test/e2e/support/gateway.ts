import { mkdtemp, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { engine } from '../../support/engine.ts'
import { until } from '../../support/until.ts'
import { killAll, Program, type ProgramOptions } from './program.ts'
import { main as ownMain } from '../../support/main.ts'

export type Json = Record<string, unknown>

export interface GatewayParts {
  readonly servers: Readonly<Record<string, unknown>>
  /** Keys of the block `gateway` besides the addresses. */
  readonly gateway?: Json
  readonly policies?: Json
  /** The block `chaos`; needs a non-production `environment` in the block `gateway`. */
  readonly chaos?: Json
  readonly experiments?: readonly Json[]
  readonly health?: Json
  /** Keys of the block `telemetry`, except the maximum age of metrics: tests always get fresh metrics. */
  readonly telemetry?: Json
}

/** Returns the block `chaos` of a plan armed from the start; by default its faults hit each matching call. */
export const armed = (faults: readonly Json[], more: Json = {}): Json => ({
  ...{ enabled: true, persist: true, ...more },
  faults: faults.map((fault) => ({ rate: 1, ttl: '15m', allowWrites: true, ...fault })),
})

export interface GatewayOptions extends ProgramOptions {
  /** Default: this project's program. */
  readonly main?: string
  readonly nodeArgs?: readonly string[]
  readonly args?: readonly string[]
  /** The folder of config and token; a restart in the same folder continues there. Default: a new folder. */
  readonly folder?: string
}

export interface Reply<Body> {
  readonly status: number
  readonly body: Body
}

const folders: string[] = []

/** A running gateway, as its operator sees it. */
export class Gateway {
  readonly program: Program
  readonly file: string
  readonly data: string
  readonly control: string
  /** The control token, from the config or made by the gateway. */
  readonly token: string

  private constructor(program: Program, file: string, addresses: Addresses, token: string) {
    this.program = program
    this.file = file
    this.data = addresses.data
    this.control = addresses.control
    this.token = token
  }

  /** Starts a gateway on free ports, and waits until it listens. */
  static async start(parts: GatewayParts, options: GatewayOptions = {}): Promise<Gateway> {
    const folder = options.folder ?? (await newFolder())
    const file = join(folder, 'gateway.yaml')
    await writeFile(file, configText(parts))
    const { main = ownMain, nodeArgs = [], args = [] } = options
    // The token is in the config's folder, and is removed with it.
    const env = { XDG_RUNTIME_DIR: folder, ...options.env }
    const program = new Program([...nodeArgs, main, 'start', '--config', file, ...args], { ...options, env })
    const given = parts.gateway?.controlToken
    const own = typeof given === 'string' ? given : undefined
    const addresses = await program.line('the gateway listens', addressesIn(own === undefined))
    return new Gateway(program, file, addresses, own ?? (await tokenIn(addresses)))
  }

  /** Its log so far, without lines that are not JSON. */
  get log(): Json[] {
    return this.program.lines.filter((line) => line.startsWith('{')).map((line) => JSON.parse(line) as Json)
  }

  /** Returns the endpoint of all servers, or of one. */
  mcp(server?: string): string {
    return server === undefined ? `${this.data}/mcp` : `${this.data}/mcp/${server}`
  }

  /** Replaces the config file by renaming a new file over it. */
  async reconfigure(parts: GatewayParts): Promise<void> {
    await writeFile(`${this.file}.new`, configText(parts))
    await rename(`${this.file}.new`, this.file)
  }

  async admin<Body = Json>(path: string, init: RequestInit = {}): Promise<Reply<Body>> {
    const headers = new Headers(init.headers)
    if (!headers.has('authorization')) headers.set('authorization', `Bearer ${this.token}`)
    const response = await fetch(this.control + path, { ...init, headers })
    const text = await response.text()
    return { status: response.status, body: (text === '' ? undefined : JSON.parse(text)) as Body }
  }

  async post<Body = Json>(path: string, body?: unknown): Promise<Reply<Body>> {
    const json = { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }
    return this.admin<Body>(path, { method: 'POST', ...(body === undefined ? {} : json) })
  }

  /** Returns the value of a metric's first series with `labels`, such as `server="a"`. */
  async metric(name: string, labels = ''): Promise<number | undefined> {
    const text = await (await fetch(`${this.control}/metrics`)).text()
    const line = text.split('\n').find((row) => row.startsWith(name) && row.includes(labels))
    return line === undefined ? undefined : Number(line.split(' ').at(-1))
  }

  /** Returns sums of a metric's series with `labels`, by another label, without zeros. */
  async sums(metric: string, by: string, labels: string): Promise<Record<string, number>> {
    const text = await (await fetch(`${this.control}/metrics`)).text()
    const sums: Record<string, number> = {}
    for (const row of text.split('\n')) {
      const value = Number(row.split(' ').at(-1))
      if (!row.startsWith(`${metric}{`) || !row.includes(labels) || value === 0) continue
      const key = new RegExp(`${by}="([^"]*)"`).exec(row)?.[1] ?? ''
      sums[key] = (sums[key] ?? 0) + value
    }
    return sums
  }

  /** Returns the registry's state of a server; undefined for an unknown name. */
  async server(name: string): Promise<Json | undefined> {
    const { status, body } = await this.admin(`/admin/servers/${name}`)
    return status === 200 ? body : undefined
  }

  async waitFor(state: 'up' | 'down', ...names: string[]): Promise<void> {
    for (const name of names) {
      await until(`${name} is ${state}`, async () => (await this.server(name))?.state === state)
    }
  }

  async waitForListeners(): Promise<void> {
    await until('all sessions listen', async () => {
      const { body } = await this.admin<{ sessions: { listening: boolean }[] }>('/admin/sessions')
      return body.sessions.every(({ listening }) => listening)
    })
  }

  async waitForCalls(count: number): Promise<void> {
    await until(`${count} calls are under way`, async () => {
      const { body } = await this.admin<{ sessions: { inFlight: number }[] }>('/admin/sessions')
      return body.sessions.reduce((sum, { inFlight }) => sum + inFlight, 0) === count
    })
  }
}

/** Returns an empty folder; `cleanUp` removes it. */
export async function newFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-e2e-'))
  folders.push(folder)
  return folder
}

/** Ends all processes and removes all files that tests have made. */
export async function cleanUp(): Promise<void> {
  await killAll()
  await Promise.all(folders.splice(0).map((folder) => rm(folder, { recursive: true, force: true })))
}

/** Returns a config as JSON, which is also YAML, with a key per line. */
export function configText({
  servers,
  gateway,
  policies,
  chaos,
  experiments,
  health,
  telemetry,
}: GatewayParts): string {
  const addresses = { listen: '127.0.0.1:0', control: '127.0.0.1:0' }
  return JSON.stringify(
    {
      gateway: { ...addresses, ...engine, ...gateway },
      mcpServers: servers,
      policies,
      chaos,
      experiments,
      health,
      telemetry: { metrics: { maxAge: 0 }, ...telemetry },
    },
    undefined,
    2,
  )
}

export interface Addresses {
  readonly data: string
  readonly control: string
  /** The file with the control token, unless the config has a token. */
  readonly tokenFile?: string
}

/** Finds a gateway's addresses in its log: in JSON, or as a terminal shows it. */
function addressesIn(withToken: boolean): (line: string) => Addresses | undefined {
  const found: Record<string, string> = {}
  return (line) => {
    if (line.startsWith('{'))
      return line.includes('"listening"') ? (JSON.parse(line) as Addresses) : undefined
    for (const [, name = '', value = ''] of line.matchAll(/(data|control|tokenFile)=([^\s\u001b]+)/g))
      found[name] = value
    const { data, control, tokenFile } = found
    if (data === undefined || control === undefined || (withToken && tokenFile === undefined))
      return undefined
    return tokenFile === undefined ? { data, control } : { data, control, tokenFile }
  }
}

async function tokenIn({ tokenFile = '' }: Addresses): Promise<string> {
  return (await readFile(tokenFile, 'utf8')).trim()
}
