import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import { askModern } from '../src/commands/break/scenario/traffic.ts'
import { config as schema, type Config } from '../src/config/schema/schema.ts'
import { startGateway } from '../src/gateway/gateway.ts'
import { createKeyedRandom } from '../src/mesh/keyed-random.ts'
import { INTENT_KEY } from '../src/protocol/task.ts'
import { type Comparison, compareColumns, type Figure } from '../src/sim/replay-figures.ts'
import { readRecording, type Recording } from '../src/sim/recording.ts'
import { playOf, replay } from '../src/sim/replay.ts'
import { createLog } from '../src/telemetry/log.ts'

/** How a replay is held against live runs: the same traffic, under two sets of policies, each recorded. */

/** What is to be met. p99 of a run of minutes is that of a handful of calls. */
export const judged: readonly Figure[] = ['tcsr', 'eta', 'blastRadius', 'p50', 'p95', 'attempts', 'retries']

/** Policies by a name. */
export interface PolicySet {
  readonly name: string
  /** As `policies.defaults` has them. */
  readonly defaults: Readonly<Record<string, unknown>>
}

/** The policies that are recorded, and those that are predicted from that, by name. */
export const policySets: Readonly<Record<'A' | 'noRetries' | 'shortTimeout', PolicySet['defaults']>> = {
  A: { retry: { maxRetries: 2, base: '20ms', cap: '200ms' }, attemptTimeout: { timeout: '400ms' } },
  noRetries: { retry: { maxRetries: 0 }, attemptTimeout: { timeout: '400ms' } },
  shortTimeout: {
    retry: { maxRetries: 2, base: '20ms', cap: '200ms' },
    attemptTimeout: { timeout: '120ms' },
  },
}

/** Neither breakers nor limits: what they do in a spell that comes once a minute is the matter of a single event. */
const others = { breaker: false, adaptiveConcurrency: false }

const policiesOf = ({ defaults }: PolicySet): Config['policies'] =>
  schema.parse({ policies: { defaults: { ...others, ...defaults } } }).policies

/** Tools: their median time in milliseconds, how far times spread (sigma of the logarithm), and how many fail. */
const tools = {
  lookup: { medianMs: 30, spread: 0.5, failing: 0.04 },
  search: { medianMs: 80, spread: 0.7, failing: 0.08 },
} as const

/** A bad spell of this length begins every so often, in which more of the calls fail; in milliseconds. */
const SPELL_EVERY_MS = 5_000
const SPELL_MS = 800
const FAILING_IN_SPELL = 0.4

const CALLS_PER_TASK = 5
const TASKS_A_SECOND = 10
const MEAN_THINK_MS = 30

/** Plays the traffic live for a while under some policies, and reads what was recorded of it. */
export async function recordLive(set: PolicySet, forMs: number, seed: number): Promise<Recording> {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-replay-'))
  const server = await startTools(seed)
  try {
    const file = join(folder, 'calls.jsonl')
    const { port } = server.address() as AddressInfo
    const config = schema.parse({
      gateway: { listen: '127.0.0.1:0', control: '127.0.0.1:0', drain: 2_000 },
      mcpServers: { tools: { url: `http://127.0.0.1:${port}/mcp`, era: 'legacy', trusted: true } },
      policies: { defaults: { ...others, ...set.defaults } },
      telemetry: { recording: { file } },
    })
    const source = { config, path: join(folder, 'bench.yaml'), env: { OTEL_SDK_DISABLED: 'true' } }
    const gateway = await startGateway({ ...source, log: createLog('silent'), keepsKill: false })
    try {
      while (gateway.live.current.servers.get('tools')?.state !== 'up') await sleep(20)
      await traffic(`${gateway.data}/mcp/tools`, forMs, seed)
    } finally {
      await gateway.close()
    }
    return await readRecording(file)
  } finally {
    server.close()
    server.closeAllConnections()
    await rm(folder, { recursive: true })
  }
}

/** A recording played again under these policies, as a report has it. */
export async function compareReplays(recording: Recording, sets: readonly PolicySet[]): Promise<Comparison> {
  const columns = []
  for (const set of sets) {
    const choice = { name: set.name, policies: policiesOf(set) }
    const plays = []
    for (const seed of [1, 2, 3, 4, 5]) plays.push(await replay(recording, { choice, seed }))
    columns.push({ name: set.name, plays })
  }
  return compareColumns(recording.calls, playOf(recording), columns)
}

/** Tasks that begin at random, each of calls one after the other with some time to think in between. */
async function traffic(url: string, forMs: number, seed: number): Promise<void> {
  const random = createKeyedRandom(seed)
  const exponential = (key: string, mean: number) => -mean * Math.log(1 - random(key, 'wait'))
  async function task(name: string): Promise<void> {
    for (let step = 0; step < CALLS_PER_TASK; step++) {
      const tool = random(`${name}/${step}`, 'tool') < 0.6 ? 'lookup' : 'search'
      const params = { name: tool, arguments: { what: `${name}/${step}` } }
      await askModern(url, 'tools/call', params, { [INTENT_KEY]: name }, new AbortController().signal)
      await sleep(exponential(`${name}/${step}`, MEAN_THINK_MS))
    }
  }
  const tasks: Promise<void>[] = []
  const began = performance.now()
  for (let at = 0; at < forMs; at += exponential(`task ${tasks.length}`, 1_000 / TASKS_A_SECOND)) {
    await sleep(Math.max(0, began + at - performance.now()))
    tasks.push(task(`task ${tasks.length}`))
  }
  await Promise.all(tasks)
}

/** A server of these tools, whose times and failures are draws of a seed. */
async function startTools(seed: number): Promise<Server> {
  const random = createKeyedRandom(seed)
  const began = performance.now()
  let runs = 0
  async function run(tool: keyof typeof tools, id: unknown, response: ServerResponse): Promise<void> {
    const { medianMs, spread, failing } = tools[tool]
    const key = `${++runs}`
    const normal = Math.sqrt(-2 * Math.log(1 - random(key, 'a'))) * Math.cos(2 * Math.PI * random(key, 'b'))
    const isSpell = (performance.now() - began) % SPELL_EVERY_MS < SPELL_MS
    await sleep(medianMs * Math.exp(spread * normal))
    if (random(key, 'fails') < (isSpell ? FAILING_IN_SPELL : failing))
      return void response.writeHead(503).end()
    answer(response, id, { content: [{ type: 'text', text: 'found' }] })
  }
  const server = createServer((request, response) => void take(request, response))
  async function take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.method !== 'POST') return void response.writeHead(405).end()
    const { id, method, params } = JSON.parse(await text(request)) as {
      id?: unknown
      method: string
      params?: { name?: keyof typeof tools; protocolVersion?: string }
    }
    if (id === undefined) return void response.writeHead(202).end()
    if (method === 'tools/call') return run(params!.name!, id, response)
    answer(response, id, method === 'initialize' ? welcome(params?.protocolVersion) : listed)
  }
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return server
}

function answer(response: ServerResponse, id: unknown, result: object): void {
  response.writeHead(200, { 'content-type': 'application/json' })
  response.end(JSON.stringify({ jsonrpc: '2.0', id, result }))
}

const welcome = (protocolVersion: string | undefined) => ({
  protocolVersion,
  capabilities: { tools: {} },
  serverInfo: { name: 'tools', version: '1.0.0' },
})

const listed = {
  tools: Object.keys(tools).map((name) => ({
    name,
    inputSchema: { type: 'object' },
    annotations: { readOnlyHint: true },
  })),
}
