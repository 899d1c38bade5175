import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type Era, type Side, type Transport } from '../../../src/chaos/fault.ts'
import { Gateway, type Json, newFolder } from '../../e2e/support/gateway.ts'
import { cert } from '../../fixtures/tls.ts'
import { until } from '../../support/until.ts'
import { WireAgent, type Exchange } from './wire-agent.ts'
import { tools, WireServer, type Received, type Sent } from './wire-server.ts'

/** The place of a fault: between the gateway and an agent of an era, or between the gateway and a server of a kind. */
export interface Place {
  readonly name: string
  readonly side: Side
  /** The server's transport; irrelevant towards agents. */
  readonly transport: Transport
  readonly era: Era
}

const kind = (name: string, side: Side, transport: Transport, era: Era): Place => ({
  name,
  side,
  transport,
  era,
})

export const places: readonly Place[] = [
  kind('agent, legacy', 'client', 'http', 'legacy'),
  kind('agent, modern', 'client', 'http', 'modern'),
  kind('stdio, legacy', 'upstream', 'stdio', 'legacy'),
  kind('stdio, modern', 'upstream', 'stdio', 'modern'),
  kind('http, legacy', 'upstream', 'http', 'legacy'),
  kind('http, modern', 'upstream', 'http', 'modern'),
  kind('sse, legacy', 'upstream', 'sse', 'legacy'),
]

/**
 * Timeout of a handshake or a ping: longer than either takes on a busy machine, where all stages shake hands at once.
 */
export const DISCOVERY_MS = 5_000

export const BRIEF_MS = 1_500

/** How long a server may take to recover alone. */
const PATIENCE_MS = 500

/** Everything the peers saw in one play. */
export class Seen {
  readonly place: Place
  /** Handshakes of agents in the legacy era. */
  readonly welcomes: readonly Exchange[]
  readonly exchanges: readonly Exchange[]
  readonly received: readonly Received[]
  readonly sent: readonly Sent[]
  readonly connections: WireServer['connections']
  readonly streams: WireServer['streams']
  /** Notes of the play itself. */
  readonly marks: ReadonlyMap<string, unknown>
  readonly ended: readonly string[]

  constructor(
    place: Place,
    agents: readonly WireAgent[],
    server: WireServer,
    marks: ReadonlyMap<string, unknown>,
  ) {
    this.place = place
    this.welcomes = agents.flatMap(({ welcome }) => welcome ?? [])
    this.exchanges = agents.flatMap(({ exchanges }) => exchanges)
    this.received = server.received
    this.sent = server.sent
    this.connections = server.connections
    this.streams = server.streams
    this.marks = marks
    this.ended = server.ended
  }

  /** Returns the agent's request at this index. */
  exchange(at = 0): Exchange {
    const exchange = this.exchanges[at]
    if (exchange === undefined) throw new Error(`the agent sent ${this.exchanges.length} requests only`)
    return exchange
  }

  /** Returns the messages of a method the server received. */
  got(method: string): readonly Received[] {
    return this.received.filter(({ message }) => message.method === method)
  }

  get calls(): readonly Received[] {
    return this.got('tools/call')
  }

  /** Returns the server's answers to requests of a method; each session has its own ids. */
  gave(method: string): readonly Sent[] {
    const requests = new Set<Json | undefined>(this.got(method).map(({ message }) => message))
    return this.sent.filter(({ message, request }) => message.method === undefined && requests.has(request))
  }
}

/**
 * Extra servers of a place, for plays with special needs. `legacy` is for a modern agent. `secure` is behind TLS, where
 * the usual server speaks plain HTTP. `own` has a process per agent, where agents share a process of the usual server.
 */
type Others = Readonly<Partial<Record<'legacy' | 'secure' | 'own', WireServer>>>

/** A server behind the gateway, for one play at a time. */
export class Stage {
  readonly place: Place
  readonly gateway: Gateway
  server: WireServer
  agents: WireAgent[] = []
  marks = new Map<string, unknown>()
  /** Ends the fault; does nothing without a fault. */
  disarm: () => Promise<void> = () => Promise.resolve()

  readonly #own: WireServer
  readonly #others: Others

  constructor(place: Place, server: WireServer, others: Others, gateway: Gateway) {
    this.place = place
    this.server = this.#own = server
    this.#others = others
    this.gateway = gateway
  }

  use(other: keyof Others): void {
    const server = this.#others[other]
    if (server === undefined) throw new Error(`there is none at ${this.place.name}`)
    this.server = server
    this.server.clear()
  }

  /** Returns an agent of the place's era after its handshake. */
  async agent(headers: Readonly<Record<string, string>> = {}, era = this.place.era): Promise<WireAgent> {
    const agent = new WireAgent(this.gateway.mcp(this.server.name), era, headers)
    this.agents.push(agent)
    await agent.open()
    return agent
  }

  /** Makes the gateway restart the server's session; resolves to the final state, good or bad. */
  async restart(): Promise<string> {
    const before = await this.#state()
    await this.gateway.post(`/admin/servers/${this.server.name}/restart`)
    let now = before
    await until(`${this.server.name} begins anew`, async () => {
      now = await this.#state()
      return now.since !== before.since && (now.state === 'up' || now.state === 'down')
    })
    return String(now.state)
  }

  /** Waits until the server is up with all of its tools; restarts its session when recovery takes long. */
  async recover(): Promise<void> {
    const since = performance.now()
    let isBegun = false
    await until(`${this.server.name} is well`, async () => {
      const { state, tools: known = [] } = await this.#state()
      const isWell = state === 'up' && (known as unknown[]).length === tools.length + 1
      if (!isWell && !isBegun && performance.now() - since > PATIENCE_MS) {
        isBegun = true
        await this.restart()
      }
      return isWell
    })
  }

  async state(): Promise<string> {
    return String((await this.#state()).state)
  }

  async #state(): Promise<Json> {
    return (await this.gateway.server(this.server.name)) ?? {}
  }

  get seen(): Seen {
    return new Seen(this.place, this.agents, this.server, this.marks)
  }

  /** Plays `act` from an empty stage to an empty stage. */
  async play(act: (stage: Stage) => Promise<void>): Promise<Seen> {
    this.agents = []
    this.marks = new Map()
    this.server = this.#own
    this.server.clear()
    try {
      await act(this)
      return this.seen
    } finally {
      for (const agent of this.agents) agent.leave()
      this.server.added = []
    }
  }

  /** Arms a fault at this place; resolves to the reason of a refusal, or undefined. */
  async arm(type: string, fields: Json): Promise<string | undefined> {
    const config = { type, rate: 1, side: this.place.side, allowWrites: true, ...fields }
    const { status, body } = await this.gateway.post('/chaos/inject', {
      target: `${this.#own.name}*`,
      config,
    })
    if (status !== 200) return `${status} ${JSON.stringify(body)}`
    const { faultId } = body
    this.disarm = async () => {
      this.disarm = () => Promise.resolve()
      await this.gateway.post('/chaos/clear', { faultId })
    }
    return undefined
  }

  /** Returns the journal's entry for the latest decision of a type at this server. */
  async journal(type: string): Promise<Json | undefined> {
    type Journal = { entries: (Json & { call?: Json })[] }
    const { body } = await this.gateway.admin<Journal>('/admin/chaos/journal?limit=1000')
    return body.entries.findLast(
      (entry) => entry.type === type && String(entry.call?.server).startsWith(this.#own.name),
    )
  }
}

/** All stages: as many per place as are used at a time. */
export class Stages {
  readonly gateway: Gateway
  readonly #free: Stage[]
  readonly #servers: readonly WireServer[]
  readonly #waiting: { readonly place: Place; readonly take: (stage: Stage) => void }[] = []

  private constructor(gateway: Gateway, stages: Stage[], servers: readonly WireServer[]) {
    this.gateway = gateway
    this.#free = stages
    this.#servers = servers
  }

  static async start(each: number): Promise<Stages> {
    const ca = join(await newFolder(), 'ca.pem')
    await writeFile(ca, cert)
    const all = await Promise.all(
      places.flatMap((place, index) =>
        Array.from({ length: each }, async (_, number) => {
          const { side, transport, era } = place
          const name = `place${index}-${number}-`
          const others: Others = {
            ...(side === 'client' &&
              era === 'modern' && { legacy: await WireServer.start(`${name}legacy`, 'http', 'legacy') }),
            ...(transport === 'stdio' && { own: await WireServer.start(`${name}own`, transport, era) }),
            ...(side === 'upstream' &&
              transport !== 'stdio' && {
                secure: await WireServer.start(`${name}secure`, transport, era, ca),
              }),
          }
          return { place, server: await WireServer.start(name, transport, era), others }
        }),
      ),
    )
    const elsewhere = await WireServer.start('elsewhere', 'http', 'legacy')
    const servers = [...all.flatMap(({ server, others }) => [server, ...Object.values(others)]), elsewhere]
    const gateway = await Gateway.start(
      {
        gateway: { environment: 'test' },
        servers: Object.fromEntries(
          servers.map(({ name, entry }) => {
            const sharing = name.endsWith('own') && { sharing: 'per_session' }
            const timeouts = { discovery: DISCOVERY_MS }
            return [
              name,
              { ...entry, ...sharing, trusted: true, health: { every: '1s' }, refresh: '1h', timeouts },
            ]
          }),
        ),
        policies: {
          defaults: { retry: false, gate: false, overdue: false, verdict: false },
          overrides: [
            { match: { tool: 'brief' }, attemptTimeout: { timeout: BRIEF_MS } },
            { match: { tool: 'again' }, retry: { maxRetries: 2, base: '1ms' } },
          ],
        },
        chaos: { enabled: true },
      },
      // The log alone records discarded answers, at level debug.
      { args: ['--log-level', 'debug'] },
    )
    await gateway.waitFor('up', ...servers.map(({ name }) => name)).catch((error: unknown) => {
      // Open ports would keep the process alive, and the failure would show only at the test's timeout.
      for (const server of servers) server.stop()
      throw error
    })
    return new Stages(
      gateway,
      all.map(({ place, server, others }) => new Stage(place, server, others, gateway)),
      servers,
    )
  }

  /** Lends a stage of a place until `use` has finished. */
  async with<Done>(place: Place, use: (stage: Stage) => Promise<Done>): Promise<Done> {
    const at = this.#free.findIndex((stage) => stage.place === place)
    const stage =
      at === -1
        ? await new Promise<Stage>((take) => this.#waiting.push({ place, take }))
        : this.#free.splice(at, 1)[0]!
    try {
      return await use(stage)
    } finally {
      await stage.disarm()
      const next = this.#waiting.findIndex((one) => one.place === place)
      if (next === -1) this.#free.push(stage)
      else this.#waiting.splice(next, 1)[0]!.take(stage)
    }
  }

  stop(): void {
    for (const server of this.#servers) server.stop()
  }
}
