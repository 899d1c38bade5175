import { Pool } from 'undici'
import { systemClock } from '../src/mesh/clock.ts'
import { cpuMicros } from './cpu.ts'
import { exchange } from './exchange.ts'
import type { Probed } from './scrape-gateway.ts'

/** What is asked for in one window; `nothing` shows what stalls there are without a scrape. */
export const kinds = ['nothing', 'text', 'openmetrics'] as const
export type Kind = (typeof kinds)[number]

/** One window. */
export interface Seen {
  readonly body: string
  /** From the request to the last byte. */
  readonly tookMs: number
  /** CPU time of the gateway, all threads. */
  readonly cpuMs: number
  /** The longest time in which the gateway's event loop did not turn. */
  readonly stallMs: number
}

const accepts = { text: 'text/plain', openmetrics: 'application/openmetrics-text;version=1.0.0' }

/** How long a window without a scrape lasts: about as long as one with a scrape may. */
const NOTHING_MS = 50

/** Between windows, and within one after its scrape: what it left to be done belongs to it. */
const PAUSE_MS = 40

const { signal } = new AbortController()

/** Scrapes the gateway, and asks the probe in its process what that did to its event loop. */
export class Scraper {
  readonly #gateway: Probed
  readonly #pool: Pool

  constructor(gateway: Probed) {
    this.#gateway = gateway
    this.#pool = new Pool(gateway.control, { connections: 1 })
  }

  async window(kind: Kind): Promise<Seen> {
    await systemClock.sleep(PAUSE_MS, signal)
    await this.#gateway.stallMs()
    const cpuBefore = cpuMicros(this.#gateway.pid)
    const startedAt = systemClock.now()
    const body = kind === 'nothing' ? await nothing() : await this.#scrape(accepts[kind])
    const tookMs = systemClock.now() - startedAt
    await systemClock.sleep(PAUSE_MS, signal)
    const cpuMs = (cpuMicros(this.#gateway.pid) - cpuBefore) / 1_000
    return { body, tookMs, cpuMs, stallMs: await this.#gateway.stallMs() }
  }

  async #scrape(accept: string): Promise<string> {
    const request = { path: '/metrics', method: 'GET', headers: { accept } } as const
    const { status, body } = await exchange(this.#pool, request)
    if (status !== 200) throw new Error(`/metrics: status ${status}`)
    return body
  }
}

async function nothing(): Promise<string> {
  await systemClock.sleep(NOTHING_MS, signal)
  return ''
}
