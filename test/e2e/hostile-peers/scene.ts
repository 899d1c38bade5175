import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { until } from '../../support/until.ts'
import { bystand } from '../support/bystander.ts'
import { Gateway, type GatewayParts } from '../support/gateway.ts'
import { memoryOf, withProbe } from '../support/memory.ts'
import { RawClient } from '../support/raw-client.ts'
import { stdioToolbox } from '../support/toolbox.ts'

/** Bytes that may remain after a hostile peer has left: compiled code, and noise of the collector. */
const MAX_LEFT_BYTES = 24 * 1024 ** 2

/** The gateway's connections to the bystander, to itself and to this test come and go. */
const MAX_LEFT_HANDLES = 8

interface Footprint {
  readonly sessions: number
  readonly underWay: Record<string, number>
  readonly handles: number
  readonly heapBytes: number
}

/** A gateway with an unharmed server, an agent that calls it all the time, and the attackers. */
export class Scene {
  readonly gateway: Gateway
  readonly bystander: RawClient
  readonly #before: Footprint

  private constructor(gateway: Gateway, bystander: RawClient, before: Footprint) {
    this.gateway = gateway
    this.bystander = bystander
    this.#before = before
  }

  /** `warmUp`: harmless actions of a peer, before any measurement. */
  static async start(
    { servers, ...parts }: GatewayParts,
    warmUp: (gateway: Gateway) => Promise<unknown> = () => Promise.resolve(),
  ): Promise<Scene> {
    const all = { ...servers, quiet: stdioToolbox() }
    const gateway = await Gateway.start({ ...parts, servers: all }, withProbe('--max-old-space-size=512'))
    await gateway.waitFor('up', ...Object.keys(all))
    const bystander = await RawClient.open(gateway.mcp('quiet'))
    await bystander.say('echo', { text: 'here' })
    await warmUp(gateway)
    return new Scene(gateway, bystander, await footprintOf(gateway))
  }

  /** Attacks while the bystander calls; every call of the bystander has to be answered correctly and in time. */
  async beside(hostile: () => Promise<unknown>): Promise<void> {
    await bystand(this.gateway, () => this.isServed(), hostile)
  }

  async isServed(): Promise<void> {
    assert.equal(await this.bystander.say('echo', { text: 'here' }), 'here')
  }

  async isClean(): Promise<void> {
    const { gateway } = this
    assert.ok(gateway.program.isRunning)
    assert.equal((await fetch(`${gateway.data}/livez`)).status, 200)
    const { sessions, handles, heapBytes } = this.#before
    let last: Footprint | undefined
    const isBack = async () => {
      last = await footprintOf(gateway)
      return (
        last.sessions <= sessions &&
        Object.keys(last.underWay).length === 0 &&
        last.handles <= handles + MAX_LEFT_HANDLES &&
        last.heapBytes <= heapBytes + MAX_LEFT_BYTES
      )
    }
    await until('nothing of the requests is left', isBack).catch((error: unknown) => {
      throw new Error(`${String(error)}: ${JSON.stringify({ before: this.#before, after: last })}`)
    })
  }
}

async function footprintOf(gateway: Gateway): Promise<Footprint> {
  const { body } = await gateway.admin<{ sessions: unknown[] }>('/admin/sessions')
  return {
    sessions: body.sessions.length,
    underWay: await gateway.sums('breakwater_inflight', 'server', ''),
    handles: readdirSync(`/proc/${gateway.program.pid}/fd`).length,
    heapBytes: (await memoryOf(gateway)).heapUsed,
  }
}
