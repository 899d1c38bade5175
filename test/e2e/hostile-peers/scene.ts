import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { fileURLToPath } from 'node:url'
import { until } from '../../support/until.ts'
import { bystand } from '../support/bystander.ts'
import { Gateway, type Json } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'
import { stdioToolbox } from '../support/toolbox.ts'

const probe = fileURLToPath(new URL('../../fixtures/heap-probe.js', import.meta.url))

/** What may stay of a hostile peer when it has gone, in bytes: code that was compiled for it, and noise of the collector. */
const MAX_LEFT_BYTES = 24 * 1024 ** 2

/** Connections of the gateway to the bystander, to itself and to this test come and go. */
const MAX_LEFT_HANDLES = 8

interface Footprint {
  readonly sessions: number
  readonly underWay: Record<string, number>
  readonly handles: number
  readonly heapBytes: number
}

/** A gateway with a server that nobody attacks, an agent that calls it all the time, and whoever attacks. */
export class Scene {
  readonly gateway: Gateway
  readonly bystander: RawClient
  readonly #before: Footprint

  private constructor(gateway: Gateway, bystander: RawClient, before: Footprint) {
    this.gateway = gateway
    this.bystander = bystander
    this.#before = before
  }

  /** `warmUp`: what a peer that is not hostile does, before anything is measured. */
  static async start(
    servers: Json,
    policies: Json,
    warmUp: (gateway: Gateway) => Promise<unknown>,
  ): Promise<Scene> {
    const gateway = await Gateway.start(
      { servers: { ...servers, quiet: stdioToolbox() }, policies },
      { nodeArgs: ['--expose-gc', '--import', probe], stdio: ['ignore', 'pipe', 'pipe', 'ipc'] },
    )
    await gateway.waitFor('up', 'quiet', ...Object.keys(servers))
    const bystander = await RawClient.open(gateway.mcp('quiet'))
    assert.equal(await bystander.say('echo', { text: 'here' }), 'here')
    await warmUp(gateway)
    return new Scene(gateway, bystander, await footprintOf(gateway))
  }

  get port(): number {
    return Number(new URL(this.gateway.data).port)
  }

  /** Does something hostile while the bystander calls; every one of its calls has to be answered as always, and in time. */
  async beside(hostile: () => Promise<unknown>): Promise<void> {
    const call = async () => assert.equal(await this.bystander.say('echo', { text: 'here' }), 'here')
    await bystand(this.gateway, call, hostile)
  }

  /** Waits until nothing is left of whoever was hostile. */
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
    await until('nothing is left', isBack).catch((error: unknown) => {
      throw new Error(`${String(error)}: ${JSON.stringify({ before: this.#before, after: last })}`)
    })
  }
}

async function footprintOf(gateway: Gateway): Promise<Footprint> {
  const { child, pid } = gateway.program
  child.send('measure')
  const [{ heapUsed }] = (await once(child, 'message')) as [{ heapUsed: number }]
  const { body } = await gateway.admin<{ sessions: unknown[] }>('/admin/sessions')
  return {
    sessions: body.sessions.length,
    underWay: await gateway.sums('breakwater_inflight', 'server', ''),
    handles: readdirSync(`/proc/${pid}/fd`).length,
    heapBytes: heapUsed,
  }
}

/** A connection on which a test says what it likes. */
export class Peer {
  readonly socket: Socket
  /** What has come, as Latin-1. */
  text = ''
  isClosed = false

  constructor(port: number, allowHalfOpen = false) {
    this.socket = connect({ port, host: '127.0.0.1', allowHalfOpen })
    this.socket.on('data', (chunk: Buffer) => (this.text += chunk.toString('latin1')))
    this.socket.on('error', () => undefined)
    this.socket.once('close', () => (this.isClosed = true))
  }

  send(text: string | Buffer): void {
    if (this.socket.writable) this.socket.write(typeof text === 'string' ? Buffer.from(text, 'latin1') : text)
  }

  /** Waits for an answer, or for the end of the connection. */
  async isOver(): Promise<void> {
    await until('the gateway answers or closes', () => this.isClosed || this.text.includes('\r\n\r\n'))
  }

  leave(): void {
    this.socket.destroy()
  }
}

/** The bytes of a POST of this message. */
export function postOf(path: string, body: Json, headers: Readonly<Record<string, string>>): string {
  const text = JSON.stringify(body)
  const all = {
    Host: '127.0.0.1',
    'Content-Type': 'application/json',
    Accept: 'application/json, text/event-stream',
    ...headers,
    'Content-Length': String(Buffer.byteLength(text)),
  }
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`)
  return `POST ${path} HTTP/1.1\r\n${lines.join('')}\r\n${text}`
}
