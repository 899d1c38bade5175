import { fileURLToPath } from 'node:url'
import { Client as ModernClient, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { refusalOf } from '../../../src/chaos/fault.ts'
import { faults } from '../../../src/chaos/faults/index.ts'
import { until } from '../../support/until.ts'
import { armed, Gateway, type Json } from './gateway.ts'
import { Program } from './program.ts'
import { connect } from './sdk-client.ts'

const script = fileURLToPath(new URL('../../fixtures/shop-server.js', import.meta.url))

/** A path to the same tools: a client of the SDK, the gateway, a server of the same era. */
export interface Lane {
  readonly name: 'http' | 'stdio'
  readonly era: 'legacy' | 'modern'
}

/** Both transports, and both eras. */
export const lanes: readonly Lane[] = [
  { name: 'http', era: 'legacy' },
  { name: 'stdio', era: 'modern' },
]

/** Returns the other lane's name. */
export const otherThan = ({ name }: Lane): string => (name === 'http' ? 'stdio' : 'http')

export interface Act {
  /** The tool's name; the fault's name is the same, followed by the lane. */
  readonly tool: string
  readonly type: string
  /** Other fields of the fault. */
  readonly fault?: Json | ((lane: Lane) => Json)
  /** The tool's own policies. */
  readonly policies?: Json
  /** Its only lane. Default: every lane its type allows. */
  readonly on?: Lane['name']
}

const fieldsOf = ({ fault = {} }: Pick<Act, 'fault'>, lane: Lane): Json =>
  typeof fault === 'function' ? fault(lane) : fault

/** Returns the lanes of an act, by its own setting or its type. */
export function lanesOf(act: Pick<Act, 'on' | 'type' | 'fault'>): readonly Lane[] {
  return lanes.filter((lane) => {
    if (act.on !== undefined) return act.on === lane.name
    if (fieldsOf(act, lane).side === 'client') return true
    return refusalOf(faults[act.type]!, { transport: lane.name, era: lane.era }) === undefined
  })
}

/** Runs a task on every lane of an act, concurrently. */
export async function everywhere(act: Act, task: (lane: Lane) => Promise<unknown>): Promise<void> {
  await Promise.all(lanesOf(act).map(task))
}

/** A reply as a client got it. */
export interface Got {
  readonly text: string
  readonly content: readonly { readonly type: string; readonly text?: string }[]
  readonly structured?: unknown
  readonly isError?: boolean | undefined
  readonly meta: Json
  /** The gateway's reason for an error. */
  readonly reason?: unknown
  /** JSON-RPC code, HTTP status, or the SDK's own. */
  readonly code?: unknown
  /** The error's message; undefined for a result. */
  readonly message?: string
  /** The gateway's error data. */
  readonly data: Json
}

export interface CallOptions {
  readonly timeout?: number
  readonly onprogress?: (step: { readonly progress: number }) => void
}

type Call = (tool: string, args: Json, options: CallOptions) => Promise<object>

const plain = ['plain_plain', 'typed_plain', 'words_plain', 'who_plain']

/** Servers with orders, one per lane, behind a gateway whose faults have a tool each. */
export class Shop {
  readonly gateway: Gateway
  readonly #calls = new Map<string, Call>()

  private constructor(gateway: Gateway) {
    this.gateway = gateway
  }

  /**
   * A tool's name begins with its kind. Retries wait for hardly anything, and no budget ends them. A gate would cover
   * all tools of a server, but here each tool has its own fault. So gates are off, unless a tool asks for a gate.
   */
  static async start(acts: readonly Act[]): Promise<Shop> {
    const tools = [...acts.map(({ tool }) => tool), ...plain]
    const url = await httpShop(tools)
    const own = {
      http: { url, era: 'legacy', trusted: true },
      stdio: { ...stdioShop(tools), era: 'modern', trusted: true },
    }
    const budget = { floor: 1_000, leastConcurrent: 1_000 }
    const gateway = await Gateway.start({
      gateway: { environment: 'test' },
      servers: own,
      policies: {
        defaults: {
          retry: { maxRetries: 2, base: 1, cap: 5, budget },
          attemptTimeout: { timeout: 10_000 },
          ...{ breaker: {}, gate: false, overdue: false },
        },
        overrides: acts.flatMap(({ tool, policies }) => (policies ? [{ match: { tool }, ...policies }] : [])),
      },
      chaos: armed(acts.flatMap((act) => lanesOf(act).map((lane) => faultOf(act, lane)))),
    })
    await gateway.waitFor('up', ...lanes.map(({ name }) => name))
    const shop = new Shop(gateway)
    await Promise.all(
      lanes.map(async (lane) => {
        shop.#calls.set(lane.name, await callOf(lane, gateway))
        await shop.#learn(lane, tools.filter(isTyped))
      }),
    )
    return shop
  }

  /** Calls a tool through the lane's client. */
  async call({ name }: Lane, tool: string, args: Json = {}, options: CallOptions = {}): Promise<Got> {
    try {
      const got = (await this.#calls.get(name)!(tool, args, options)) as Json
      const content = (got.content ?? []) as Got['content']
      const { structuredContent: structured, isError, _meta: meta = {} } = got
      return {
        text: content[0]?.text ?? '',
        content,
        structured,
        isError: isError as boolean | undefined,
        meta: meta as Json,
        data: {},
      }
    } catch (error) {
      const { code, message, data = {} } = error as { code?: unknown; message: string; data?: Json }
      return { text: '', content: [], meta: {}, reason: data.reason, code, message, data }
    }
  }

  async runs(lane: Lane, tool: string): Promise<number> {
    const { text } = await this.call(lane, 'runs')
    return (JSON.parse(text) as Record<string, number>)[tool] ?? 0
  }

  /** Returns the gateway's count of attempts at a tool, by outcome or by another label. */
  attempts({ name }: Lane, tool: string, by = 'outcome'): Promise<Json> {
    return this.gateway.sums('breakwater_upstream_attempts_total', by, `server="${name}",tool="${tool}"`)
  }

  /** Returns attempts at a tool by verdict on the reply; for a typed tool without its first call. */
  async verdicts(lane: Lane, tool: string): Promise<Json> {
    const found = (await this.attempts(lane, tool, 'verdict')) as Record<string, number>
    if (!isTyped(tool)) return found
    // With enforced schemas, the first reply waits for the schema.
    const ofFirst = (found.unchecked ?? 0) > 0 ? 'unchecked' : 'correct'
    const { [ofFirst]: count = 0, ...rest } = found
    return count === 1 ? rest : { ...rest, [ofFirst]: count - 1 }
  }

  fates({ name }: Lane, tool: string): Promise<Json> {
    return this.gateway.sums('breakwater_fault_outcomes_total', 'fate', `fault="${tool}.${name}"`)
  }

  /** Returns the number of calls a fault holds, including calls still on their way. */
  async held({ name }: Lane, tool: string): Promise<number> {
    type Status = { faults: { name: string; concurrent: number }[] }
    const { body } = await this.gateway.admin<Status>('/admin/chaos')
    return body.faults.find((fault) => fault.name === `${tool}.${name}`)?.concurrent ?? 0
  }

  /** The first reply of a tool triggers the reading of its schema, in turn; later replies are checked. */
  async #learn(lane: Lane, typed: readonly string[]): Promise<void> {
    for (const tool of typed) await this.call(lane, tool)
    await until('the last schema is known', async () => {
      await this.call(lane, 'typed_plain')
      return (await this.verdicts(lane, 'typed_plain')).correct !== undefined
    })
  }
}

const isTyped = (tool: string) => tool.startsWith('typed')

function faultOf(act: Act, lane: Lane): Json {
  const { tool, type } = act
  const common = {
    name: `${tool}.${lane.name}`,
    type,
    allowWrites: false,
    match: { server: lane.name, tool },
  }
  return { ...common, ...(isTyped(tool) ? { when: { afterCalls: 1 } } : {}), ...fieldsOf(act, lane) }
}

/** Returns the config entry of a shop the gateway runs with these tools. */
export const stdioShop = (tools: readonly string[]): Json => ({
  command: process.execPath,
  args: [script, 'stdio', ...tools],
})

/** Starts a shop with these tools behind HTTP; resolves to its URL. */
export function httpShop(tools: readonly string[]): Promise<string> {
  const program = new Program([script, 'http', ...tools])
  return program.line('the shop listens', (line) => /^listening (\S+)$/.exec(line)?.[1])
}

async function callOf({ name, era }: Lane, gateway: Gateway): Promise<Call> {
  const url = gateway.mcp(name)
  if (era === 'legacy') {
    const client = await connect(url)
    return (tool, args, options) => client.callTool({ name: tool, arguments: args }, undefined, options)
  }
  const client = new ModernClient(
    { name: 'shop', version: '1.0.0' },
    { capabilities: {}, versionNegotiation: { mode: { pin: '2026-07-28' } } },
  )
  await client.connect(new StreamableHTTPClientTransport(new URL(url)))
  return (tool, args, options) => client.callTool({ name: tool, arguments: args }, options)
}
