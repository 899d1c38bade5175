import { fileURLToPath } from 'node:url'
import { Client as ModernClient, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { refusalOf } from '../../../src/chaos/fault.ts'
import { faults } from '../../../src/chaos/faults/index.ts'
import { Gateway, type Json } from './gateway.ts'
import { Program } from './program.ts'
import { connect } from './sdk-client.ts'

const script = fileURLToPath(new URL('../../fixtures/staged-server.js', import.meta.url))

/** One way to the same tools: a client of the SDK, the gateway, a server of the same era. */
export interface Lane {
  readonly name: string
  readonly transport: 'stdio' | 'http'
  readonly era: 'legacy' | 'modern'
}

export const lanes: readonly Lane[] = (['stdio', 'http'] as const).flatMap((transport) =>
  (['legacy', 'modern'] as const).map((era) => ({ name: `${transport}-${era}`, transport, era })),
)

/** A fault with a tool of its own. */
export interface Act {
  /** The tool; the fault is called the same, with the lane behind it. */
  readonly tool: string
  readonly type: string
  /** Other fields of the fault. */
  readonly fault?: Json
  /** Policies of the tool other than those of the stage. */
  readonly policies?: Json
  /** Where it can be; wherever its type can unless given. */
  readonly on?: (lane: Lane) => boolean
}

/** The lanes where an act can be: by its own word, or else by that of its type. */
export function lanesOf({ on, type, fault }: Pick<Act, 'on' | 'type' | 'fault'>): readonly Lane[] {
  const works = ({ transport, era }: Lane) =>
    fault?.side === 'client' || refusalOf(faults[type]!, { transport, era }) === undefined
  return lanes.filter(on ?? works)
}

/** Does something on every lane where an act can be, at the same time. */
export async function everywhere(act: Act, task: (lane: Lane) => Promise<unknown>): Promise<void> {
  await Promise.all(lanesOf(act).map(task))
}

/** What a client got. */
export interface Seen {
  readonly text?: string
  /** Why the gateway says that there is none. */
  readonly reason?: unknown
  /** JSON-RPC code, HTTP status, or the SDK's own. */
  readonly code?: unknown
  readonly message?: string
  readonly data: Json
  readonly tookMs: number
}

type Call = (tool: string, timeoutMs: number) => Promise<{ readonly [key: string]: unknown }>

/** Servers over every transport behind a gateway whose faults have a tool each. */
export class Stage {
  readonly gateway: Gateway
  readonly #clients = new Map<string, Call>()

  private constructor(gateway: Gateway) {
    this.gateway = gateway
  }

  /** `retries` and waits are short, and no budget ends them. */
  static async start(acts: readonly Act[]): Promise<Stage> {
    const tools = ['plain', ...acts.map(({ tool }) => tool)]
    const budget = { floor: 1_000, leastConcurrent: 1_000 }
    const gateway = await Gateway.start({
      gateway: { environment: 'test' },
      servers: Object.fromEntries(
        await Promise.all(lanes.map(async (lane) => [lane.name, await entryOf(lane, tools)] as const)),
      ),
      policies: {
        defaults: { retry: { base: 1, cap: 5, budget }, attemptTimeout: { timeout: 10_000 } },
        overrides: acts.flatMap(({ tool, policies }) =>
          policies === undefined ? [] : [{ match: { tool }, ...policies }],
        ),
      },
      chaos: {
        enabled: true,
        persist: true,
        faults: acts.flatMap((act) => lanesOf(act).map((lane) => faultOf(act, lane))),
      },
    })
    await gateway.waitFor('up', ...lanes.map(({ name }) => name))
    const stage = new Stage(gateway)
    for (const lane of lanes) stage.#clients.set(lane.name, await clientOf(lane, gateway))
    return stage
  }

  /** Calls a tool through the lane's client, which waits as long as it is told to. */
  async call({ name }: Lane, tool: string, timeoutMs = 10_000): Promise<Seen> {
    const since = performance.now()
    const took = () => performance.now() - since
    try {
      const { content } = await this.#clients.get(name)!(tool, timeoutMs)
      return { text: (content as { text: string }[])[0]?.text ?? '', data: {}, tookMs: took() }
    } catch (error) {
      const { code, message, data } = error as { code?: unknown; message: string; data?: Json }
      return { reason: data?.reason, code, message, data: data ?? {}, tookMs: took() }
    }
  }

  /** How often a tool has run. */
  async runs(lane: Lane, tool: string): Promise<number> {
    const { text = '{}' } = await this.call(lane, 'runs')
    return (JSON.parse(text) as Record<string, number>)[tool] ?? 0
  }

  /** What became of the attempts at a tool, as the gateway has counted them. */
  attempts({ name }: Lane, tool: string): Promise<Record<string, number>> {
    return this.gateway.sums(
      'breakwater_upstream_attempts_total',
      'outcome',
      `server="${name}",tool="${tool}"`,
    )
  }

  /** What became of the injections of a fault. */
  fates({ name }: Lane, { tool }: Act): Promise<Record<string, number>> {
    return this.gateway.sums('breakwater_fault_outcomes_total', 'fate', `fault="${tool}.${name}"`)
  }

  /** The notes in the journal on the injections of a fault, the oldest first. */
  async notes({ name }: Lane, { tool }: Act): Promise<readonly (Json | undefined)[]> {
    type Journal = { entries: { fault?: string; decision?: string; note?: Json }[] }
    const { body } = await this.gateway.admin<Journal>('/admin/chaos/journal?limit=1000')
    const injected = body.entries.filter(
      ({ fault, decision }) => fault === `${tool}.${name}` && decision === 'injected',
    )
    return injected.map(({ note }) => note)
  }

  /** How many calls a fault has chosen and not let go of: also one that is on its way still. */
  async held({ name }: Lane, { tool }: Act): Promise<number> {
    type Status = { faults: { name: string; concurrent: number }[] }
    const { body } = await this.gateway.admin<Status>('/admin/chaos')
    return body.faults.find((fault) => fault.name === `${tool}.${name}`)?.concurrent ?? 0
  }
}

function faultOf({ tool, type, fault }: Act, { name }: Lane): Json {
  return { name: `${tool}.${name}`, type, rate: 1, ttl: '15m', match: { server: name, tool }, ...fault }
}

async function entryOf({ transport, era }: Lane, tools: readonly string[]): Promise<Json> {
  if (transport === 'stdio')
    return { command: process.execPath, args: [script, 'stdio', ...tools], era, trusted: true }
  const program = new Program([script, 'http', ...tools])
  const url = await program.line('the server listens', (line) => /^listening (\S+)$/.exec(line)?.[1])
  return { url, era, trusted: true }
}

async function clientOf({ name, era }: Lane, gateway: Gateway): Promise<Call> {
  if (era === 'legacy') {
    const client = await connect(gateway.mcp(name))
    return (tool, timeout) => client.callTool({ name: tool, arguments: {} }, undefined, { timeout })
  }
  const client = new ModernClient(
    { name: 'stage', version: '1.0.0' },
    { capabilities: {}, versionNegotiation: { mode: { pin: '2026-07-28' } } },
  )
  await client.connect(new StreamableHTTPClientTransport(new URL(gateway.mcp(name))))
  return (tool, timeout) => client.callTool({ name: tool, arguments: {} }, { timeout })
}
