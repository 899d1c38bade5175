import { Pool } from 'undici'
import { systemClock } from '../src/mesh/clock.ts'
import { cpuMicros } from './cpu.ts'
import { exchange } from './exchange.ts'
import type { Probed } from './scrape-gateway.ts'

/** The request in a window; `nothing` shows the stalls without a scrape. */
export const kinds = ['nothing', 'text', 'openmetrics'] as const
export type Kind = (typeof kinds)[number]

export interface Seen {
  readonly body: string
  /** From the request to the last byte. */
  readonly tookMs: number
  /** CPU time of the gateway, all threads. */
  readonly cpuMs: number
  /** The longest stall of the gateway's event loop. */
  readonly stallMs: number
}

const accepts = { text: 'text/plain', openmetrics: 'application/openmetrics-text;version=1.0.0' }

/** Length of a window without a scrape: about as long as a scrape. */
const NOTHING_MS = 50

/** Pause between windows, and after a scrape within its window, so that its leftover work counts there. */
const PAUSE_MS = 40

const { signal } = new AbortController()

/** Scrapes the gateway, and asks the probe in its process for the stalls of the event loop. */
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
