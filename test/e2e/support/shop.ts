import { fileURLToPath } from 'node:url'
import { Client as ModernClient, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { until } from '../../support/until.ts'
import { Gateway, type Json } from './gateway.ts'
import { Program } from './program.ts'
import { connect } from './sdk-client.ts'
import { lanes, lanesOf, type Act, type Lane } from './stage.ts'

const script = fileURLToPath(new URL('../../fixtures/shop-server.js', import.meta.url))

/** What a client got. */
export interface Got {
  readonly text: string
  readonly content: readonly { readonly type: string; readonly text?: string }[]
  readonly structured?: unknown
  readonly isError?: boolean | undefined
  readonly meta: Json
  /** Why the gateway says that there is no result. */
  readonly reason?: unknown
  /** JSON-RPC code, HTTP status, or the SDK's own. */
  readonly code?: unknown
  readonly message?: string
  /** What the gateway says about its error. */
  readonly data?: Json | undefined
}

export interface CallOptions {
  readonly timeout?: number
  readonly onprogress?: (step: { readonly progress: number }) => void
}

type Call = (tool: string, args: Json, options: CallOptions) => Promise<object>

/** Servers that know orders, over every transport and in every era, behind a gateway whose faults have a tool each. */
export class Shop {
  readonly gateway: Gateway
  readonly #calls = new Map<string, Call>()

  private constructor(gateway: Gateway) {
    this.gateway = gateway
  }

  /** Tools do what the word at the beginning of their names says. Retries wait for hardly anything. */
  static async start(acts: readonly Act[], on: readonly Lane[] = lanes): Promise<Shop> {
    const tools = [...new Set(acts.map(({ tool }) => tool)), 'typed_plain']
    const entries = on.map(async (lane) => [lane.name, await entryOf(lane, tools)] as const)
    const budget = { floor: 1_000, leastConcurrent: 1_000 }
    const gateway = await Gateway.start({
      gateway: { environment: 'test' },
      servers: Object.fromEntries(await Promise.all(entries)),
      policies: {
        defaults: { retry: { base: 1, cap: 5, budget }, attemptTimeout: { timeout: 10_000 } },
        overrides: acts.flatMap(({ tool, policies }) => (policies ? [{ match: { tool }, ...policies }] : [])),
      },
      chaos: {
        enabled: true,
        persist: true,
        faults: acts.flatMap((act) =>
          lanesOf(act)
            .filter((lane) => on.includes(lane))
            .map((lane) => faultOf(act, lane)),
        ),
      },
    })
    await gateway.waitFor('up', ...on.map(({ name }) => name))
    const shop = new Shop(gateway)
    for (const lane of on) {
      shop.#calls.set(lane.name, await callOf(lane, gateway))
      await shop.#learn(lane, tools.filter(isTyped))
    }
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
      }
    } catch (error) {
      const { code, message, data } = error as { code?: unknown; message: string; data?: Json }
      return { text: '', content: [], meta: {}, reason: data?.reason, code, message, data }
    }
  }

  /** How good the replies of a tool were, as the gateway has counted them; without that to its first call, if typed. */
  async verdicts({ name }: Lane, tool: string): Promise<Json> {
    const labels = `server="${name}",tool="${tool}"`
    const found = await this.gateway.sums('breakwater_upstream_attempts_total', 'verdict', labels)
    if (!isTyped(tool)) return found
    // Where the schema is enforced, the first reply waits for it.
    const ofFirst = (found.unchecked ?? 0) > 0 ? 'unchecked' : 'correct'
    const { [ofFirst]: count = 0, ...rest } = found
    return count === 1 ? rest : { ...rest, [ofFirst]: count - 1 }
  }

  /** What became of the injections of a fault. */
  fates({ name }: Lane, tool: string): Promise<Json> {
    return this.gateway.sums('breakwater_fault_outcomes_total', 'fate', `fault="${tool}.${name}"`)
  }

  /** Replies are checked as soon as the schema of their tool was read, which the first of them brings about, in turn. */
  async #learn(lane: Lane, typed: readonly string[]): Promise<void> {
    for (const tool of typed) await this.call(lane, tool)
    await until('the last schema is known', async () => {
      await this.call(lane, 'typed_plain')
      return (await this.verdicts(lane, 'typed_plain')).correct !== undefined
    })
  }
}

/** Whether a tool has an output schema. */
const isTyped = (tool: string) => tool.startsWith('typed')

function faultOf({ tool, type, fault }: Act, { name }: Lane): Json {
  const common = { name: `${tool}.${name}`, type, rate: 1, ttl: '15m', match: { server: name, tool } }
  return { ...common, ...(isTyped(tool) ? { when: { afterCalls: 1 } } : {}), ...fault }
}

async function entryOf({ transport, era }: Lane, tools: readonly string[]): Promise<Json> {
  const entry = transport === 'stdio' ? stdioShop(tools) : { url: await httpShop(tools) }
  return { ...entry, era, trusted: true }
}

/** The config entry of a shop with these tools that the gateway runs. */
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
