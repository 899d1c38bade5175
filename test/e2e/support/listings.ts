import assert from 'node:assert/strict'
import type { Agent } from '../../interop/support/agent.ts'
import { closeAgents, connect, oneOfEachEra } from '../../interop/support/agents.ts'
import { until } from '../../support/until.ts'
import { cleanUp, Gateway, type GatewayParts, type Json } from './gateway.ts'

const LIMIT_MS = 8_000

const bothEras = (url: string) => Promise.all(oneOfEachEra.map((kind) => connect(kind, url)))

export const namesOf = async (agent: Agent) => (await agent.tools()).map(({ name }) => name)

/** Servers with a fault each, and agents of both eras that look at their lists, one by one and among all. */
export class Listings {
  readonly gateway: Gateway
  readonly servers: readonly string[]
  /** Agents on the endpoint of all servers. */
  readonly all: readonly Agent[]
  readonly #partsOf: (enabled: boolean) => GatewayParts
  readonly #own = new Map<string, readonly Agent[]>()
  readonly #normal = new Map<string, readonly string[]>()

  private constructor(gateway: Gateway, all: readonly Agent[], partsOf: (enabled: boolean) => GatewayParts) {
    this.gateway = gateway
    this.all = all
    this.servers = Object.keys(partsOf(true).servers)
    this.#partsOf = partsOf
  }

  /** Starts without faults, learns what lists are like, and arms: faults are by the names of their servers. */
  static async start(servers: Record<string, Json>, faults: Record<string, Json>): Promise<Listings> {
    const common = { rate: 1, ttl: '15m', allowWrites: true }
    const plan = Object.entries(faults).map(([name, fault]) => ({
      ...common,
      name,
      match: { server: name },
      ...fault,
    }))
    const partsOf = (enabled: boolean) => ({
      gateway: { environment: 'test' },
      servers,
      chaos: { enabled, faults: plan },
    })
    const gateway = await Gateway.start(partsOf(false))
    await gateway.waitFor('up', ...Object.keys(servers))
    const listings = new Listings(gateway, await bothEras(gateway.mcp()), partsOf)
    for (const server of listings.servers) {
      listings.#own.set(server, await bothEras(gateway.mcp(server)))
      listings.#normal.set(server, (await listings.views(server))[0] ?? [])
    }
    await listings.arm(true)
    return listings
  }

  /** Says in the config whether faults are armed, and waits until it is so. */
  async arm(enabled: boolean): Promise<void> {
    await this.gateway.reconfigure(this.#partsOf(enabled))
    const wanted = enabled ? 1 : 0
    await until('it is as the config says', async () => (await this.#armed()) === wanted)
  }

  #armed(): Promise<number | undefined> {
    return this.gateway.metric('breakwater_chaos_armed')
  }

  /** Agents on the endpoint of one server, the legacy one first. */
  own(server: string): readonly Agent[] {
    return this.#own.get(server) ?? []
  }

  /** The tools that it lists without faults, sorted. */
  normal(server: string): readonly string[] {
    return this.#normal.get(server) ?? []
  }

  /** The tools of a server as they are listed among those of all, sorted. */
  async among(server: string): Promise<string[][]> {
    const lists = await Promise.all(this.all.map(namesOf))
    const prefix = `${server}__`
    return lists.map((names) =>
      names.flatMap((name) => (name.startsWith(prefix) ? name.slice(prefix.length) : [])).sort(),
    )
  }

  /** The same on its own endpoint, and among those of all. */
  async views(server: string): Promise<string[][]> {
    const alone = await Promise.all(this.own(server).map(namesOf))
    return [...alone.map((names) => names.sort()), ...(await this.among(server))]
  }

  /** Waits until all agents see a server's list as it should be, by what it normally is. */
  async sees(server: string, expected: (normal: readonly string[]) => readonly string[]): Promise<void> {
    const names = [...expected(this.normal(server))].sort()
    const isRight = (view: readonly string[]) => JSON.stringify(view) === JSON.stringify(names)
    let seen: string[][] = []
    const look = async () => (seen = await this.views(server)).every(isRight)
    await until(`${server} lists ${names.join()}`, look, LIMIT_MS).catch(() => undefined)
    for (const view of seen) assert.deepEqual(view, names)
  }

  /** Waits until its fault was done, be it to what the gateway asks on its own behalf. */
  isHit(server: string): Promise<void> {
    return until(`${server} is hit`, async () => {
      type Status = { faults: { name: string; hits: number; discovery: { hits: number } }[] }
      const { body } = await this.gateway.admin<Status>('/admin/chaos')
      return body.faults.some(({ name, hits, discovery }) => name === server && hits + discovery.hits > 0)
    })
  }

  /** The text of a tool's result. */
  async call(server: string, tool: string, args: Json = {}): Promise<string> {
    return (await this.own(server)[0]!.call(tool, args)).text
  }
}

/** Ends all agents and processes. */
export async function closeListings(): Promise<void> {
  await closeAgents()
  await cleanUp()
}
