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

/** Compares a replay with live runs: the same traffic, recorded under two sets of policies. */

/** Figures to be predicted. In a run of minutes p99 rests on a handful of calls, so p99 is left out. */
export const judged: readonly Figure[] = ['tcsr', 'eta', 'blastRadius', 'p50', 'p95', 'attempts', 'retries']

export interface PolicySet {
  readonly name: string
  /** As `policies.defaults` writes policies. */
  readonly defaults: Readonly<Record<string, unknown>>
}

/** The recorded policies, and the policies predicted from the recording, by name. */
export const policySets: Readonly<Record<'A' | 'noRetries' | 'shortTimeout', PolicySet['defaults']>> = {
  A: { retry: { maxRetries: 2, base: '20ms', cap: '200ms' }, attemptTimeout: { timeout: '400ms' } },
  noRetries: { retry: { maxRetries: 0 }, attemptTimeout: { timeout: '400ms' } },
  shortTimeout: {
    retry: { maxRetries: 2, base: '20ms', cap: '200ms' },
    attemptTimeout: { timeout: '120ms' },
  },
}

/** Neither breakers nor limits: with one bad spell a minute, their effect would rest on a single event. */
const others = { breaker: false, adaptiveConcurrency: false }

const policiesOf = ({ defaults }: PolicySet): Config['policies'] =>
  schema.parse({ policies: { defaults: { ...others, ...defaults } } }).policies

/** Tools: median time in milliseconds, spread (sigma of the logarithm), and share of failures. */
const tools = {
  lookup: { medianMs: 30, spread: 0.5, failing: 0.04 },
  search: { medianMs: 80, spread: 0.7, failing: 0.08 },
} as const

/** Bad spells with more failures: interval and length in milliseconds. */
const SPELL_EVERY_MS = 5_000
const SPELL_MS = 800
const FAILING_IN_SPELL = 0.4

const CALLS_PER_TASK = 5
const TASKS_A_SECOND = 10
const MEAN_THINK_MS = 30

/** Plays the traffic live under some policies. Returns the recording. */
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

/** Replays a recording under these policies. Returns the comparison as a report prints it. */
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

/** Tasks with random starts; each makes calls in turn, with pauses for thinking. */
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
