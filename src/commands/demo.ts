import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { INTENT_KEY } from '../protocol/task.ts'
import { fromMcpChaos } from '../chaos/plan/compat/index.ts'
import type { Env } from '../config/files/interpolate.ts'
import { config as schema } from '../config/schema/schema.ts'
import { startGateway } from '../gateway/gateway.ts'
import { systemClock } from '../mesh/clock.ts'
import { policies } from '../policies/index.ts'
import { errorText, isObject, parseJson, resultText } from '../protocol/jsonrpc.ts'
import { createLog } from '../telemetry/log.ts'
import { optionLines, type Output, runCommand, type Values } from './arguments.ts'
import { live, liveOptions } from './demo/live.ts'
import { showProgress } from './progress.ts'

const options = {
  tasks: { kind: 'integer', max: 100_000, value: 'N', default: '200', about: 'tasks of the agent' },
  'fan-out': { kind: 'integer', max: 1_000, value: 'N', default: '8', about: 'tool calls of each task' },
  rate: { kind: 'number', max: 1, value: 'RATE', default: '0.02', about: 'share of the attempts that fail' },
  seed: { kind: 'integer', value: 'SEED', default: '42', about: 'the same seed gives the same faults' },
} as const

const usage = `breakwater demo

  Sends the calls of an agent through the gateway to a small server on loopback, with faults, once without
  any policy and once with those that are in force by default. Nothing leaves the machine.

${optionLines(options)}

  breakwater demo --live

  Starts two MCP servers, a gateway in front of them and agents that work with their tools, switches faults on, changes
  them and kills them, and shows what becomes of calls, tasks, breakers and faults. Ends by itself, leaves nothing behind.

${optionLines(liveOptions)}

  Exit codes of --live: 0; 1 when it could not run; 2 when its numbers do not add up.`

/** What the agent's tasks are made of; all of them read. */
const tools = ['get_metrics', 'get_logs', 'get_traces', 'describe_service', 'check_dependency']

/** `breakwater demo`: resolves to the exit code. */
export function demo(args: readonly string[], out: Output, env: Env): Promise<number> {
  if (args.includes('--live')) {
    const line = { name: 'breakwater', usage, options: liveOptions, positionals: [] }
    return runCommand(args, line, out, (values) => live(values, out, env))
  }
  return runCommand(args, { name: 'breakwater', usage, options, positionals: [] }, out, async (values) => {
    const server = createServer(answerTo)
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    try {
      const off = Object.fromEntries(Object.keys(policies).map((name) => [name, false]))
      for (const [label, defaults] of [
        ['no resilience', off],
        ['with resilience', {}],
      ] as const) {
        let done = 0
        const { tasks } = values
        const endProgress = showProgress(out, systemClock, () => `${label}: ${done} of ${tasks} tasks`)
        const measured = await measure(server, defaults, values, env, () => done++).finally(endProgress)
        out.stdout(lineOf(label, measured))
      }
      return 0
    } catch (error) {
      if (!(error instanceof Refused)) throw error
      out.stderr(`breakwater: ${error.message}`)
      return 1
    } finally {
      server.closeAllConnections()
      server.close()
    }
  })
}

/** Why the demo cannot run here. */
class Refused extends Error {}

/** What became of the calls and tasks of one run. */
interface Measured {
  readonly tasks: number
  readonly calls: number
  /** Calls without an error. */
  readonly responded: number
  /** Of those, the ones with the result that they asked for. */
  readonly correct: number
  readonly failedTasks: number
}

function lineOf(label: string, { tasks, calls, responded, correct, failedTasks }: Measured): string {
  const share = (part: number, whole: number) => (whole === 0 ? 0 : part / whole)
  const eta = share(responded, calls) * share(correct, responded)
  const numbers = [
    `TCAF=${share(calls, tasks).toFixed(1)}`,
    `TCSR=${share(correct, calls).toFixed(2)}`,
    `ETA=${eta.toFixed(2)}`,
    `blast_radius=${share(failedTasks, tasks).toFixed(2)}`,
  ]
  return `${label.padEnd(16)}${numbers.join('  ')}`
}

/** Runs all tasks through a gateway of its own. Throws `Refused`. */
async function measure(
  server: Server,
  defaults: object,
  { tasks, 'fan-out': fanOut, rate, seed }: Values<typeof options>,
  env: Env,
  taskDone: () => void,
): Promise<Measured> {
  const plan = fromMcpChaos({ seed, faults: [{ type: 'error_injection', rate }] }, { ttl: '1h' })
  const config = schema.parse({
    gateway: { listen: '127.0.0.1:0', control: '127.0.0.1:0', environment: 'test', drain: 0 },
    mcpServers: { demo: { url: urlOf(server), era: 'legacy', trusted: true } },
    policies: { defaults },
    chaos: { enabled: true, persist: true, ...plan },
  })
  const gateway = await startGateway({ config, path: 'demo', files: [], env, log: createLog('silent') })
  try {
    const { state, refusal } = gateway.chaos.status()
    if (state !== 'armed') throw new Refused(`the faults are not armed: ${refusal ?? state}`)
    const agent = await Agent.open(`${gateway.data}/mcp/demo`)
    const measured = { tasks, calls: 0, responded: 0, correct: 0, failedTasks: 0 }
    // One call after the other, so that how many retries there may be at a time decides nothing.
    for (let task = 0; task < tasks; task++) {
      let hasFailed = false
      for (let call = 0; call < fanOut; call++) {
        const tool = tools[call % tools.length]!
        const result = await agent.call(tool, { call }, `task ${task}`)
        const isCorrect = isObject(result?.structuredContent) && result.structuredContent.tool === tool
        measured.calls++
        if (result !== undefined) measured.responded++
        if (isCorrect) measured.correct++
        else hasFailed = true
      }
      if (hasFailed) measured.failedTasks++
      taskDone()
    }
    return measured
  } finally {
    await gateway.close()
  }
}

const urlOf = (server: Server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`

/** An agent of the legacy era, with one session. */
class Agent {
  readonly #url: string
  readonly #session: string
  #id = 0

  private constructor(url: string, session: string) {
    this.#url = url
    this.#session = session
  }

  static async open(url: string): Promise<Agent> {
    const clientInfo = { name: 'demo', version: '1' }
    const params = { protocolVersion: VERSION, capabilities: {}, clientInfo }
    const opened = await post(url, { jsonrpc: '2.0', id: 0, method: 'initialize', params })
    const agent = new Agent(url, opened.session ?? '')
    await post(url, { jsonrpc: '2.0', method: 'notifications/initialized' }, agent.#session)
    return agent
  }

  /** The result of a tool call; undefined for an error. */
  async call(name: string, args: object, task: string): Promise<Record<string, unknown> | undefined> {
    const params = { name, arguments: args, _meta: { [INTENT_KEY]: task } }
    const message = { jsonrpc: '2.0', id: ++this.#id, method: 'tools/call', params }
    const { value } = await post(this.#url, message, this.#session)
    return isObject(value) && isObject(value.result) ? value.result : undefined
  }
}

const VERSION = '2025-11-25'

/** Posts a message; what came back is JSON, or the last event of a stream. */
async function post(
  url: string,
  message: object,
  session?: string,
): Promise<{ readonly value: unknown; readonly session: string | undefined }> {
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      accept: 'application/json, text/event-stream',
      'content-type': 'application/json',
      'mcp-protocol-version': VERSION,
      ...(session === undefined ? {} : { 'mcp-session-id': session }),
    },
    body: JSON.stringify(message),
  })
  const body = await response.text()
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream') === true
  const json = isStream ? body.split('\n').findLast((line) => line.startsWith('data: ')) : body
  return {
    value: parseJson(isStream ? (json ?? '').slice('data: '.length) : (json ?? '')),
    session: response.headers.get('mcp-session-id') ?? undefined,
  }
}

/** The server of the demo: five tools that read, without sessions. */
function answerTo(request: IncomingMessage, response: ServerResponse): void {
  if (request.method !== 'POST') return void response.writeHead(405).end()
  void text(request).then((body) => {
    const message = parseJson(body)
    const { id, method, params } = isObject(message) ? message : {}
    if (typeof id !== 'number' && typeof id !== 'string') return void response.writeHead(202).end()
    const result = resultOf(method, isObject(params) ? params : {})
    response
      .writeHead(200, { 'content-type': 'application/json' })
      .end(
        result === undefined
          ? errorText(id, -32601, 'Method not found')
          : resultText(id, JSON.stringify(result)),
      )
  })
}

function resultOf(method: unknown, params: Readonly<Record<string, unknown>>): object | undefined {
  switch (method) {
    case 'initialize':
      return {
        protocolVersion: VERSION,
        capabilities: { tools: {} },
        serverInfo: { name: 'demo', version: '1' },
      }
    case 'ping':
      return {}
    case 'tools/list':
      return {
        tools: tools.map((name) => ({
          name,
          inputSchema: { type: 'object' },
          annotations: { readOnlyHint: true },
        })),
      }
    case 'tools/call': {
      const structuredContent = { tool: params.name, ok: true }
      return {
        content: [{ type: 'text', text: JSON.stringify(structuredContent) }],
        structuredContent,
      }
    }
    default:
      return undefined
  }
}
