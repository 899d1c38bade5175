import type { Status } from '../../../../chaos/control/status.ts'
import type { Clock, Millis } from '../../../../mesh/clock.ts'
import { type Control, controlAt, type Request } from '../../../shared/control.ts'
import type { TaskReport } from '../../../../load/shop-agents.ts'
import { type Sample, samplesIn } from './reading.ts'

/** The demo cannot go on; the message says why. */
export class DemoError extends Error {}

export interface OperatorOptions {
  /** URL of the control plane. */
  readonly base: string
  readonly token: string
  readonly clock: Clock
}

/** How long the control plane may take to write its metrics, in milliseconds. */
const PATIENCE_MS: Millis = 10_000

/** An operator of the gateway, limited to the control plane and its token. All methods reject with a `DemoError`. */
export class Operator {
  readonly #options: OperatorOptions
  readonly #control: Control

  constructor(options: OperatorOptions) {
    this.#options = options
    this.#control = controlAt({ ...options, env: {} })
  }

  async metrics(): Promise<readonly Sample[]> {
    const { base, token, clock } = this.#options
    const patience = new AbortController()
    const cancel = clock.after(PATIENCE_MS, () => patience.abort())
    try {
      const headers = { authorization: `Bearer ${token}`, accept: 'text/plain' }
      const response = await fetch(new URL('/metrics', base), { headers, signal: patience.signal })
      if (!response.ok) throw new DemoError(`/metrics answers with status ${response.status}`)
      return samplesIn(await response.text())
    } catch (error) {
      if (error instanceof DemoError) throw error
      throw new DemoError(`/metrics cannot be read: ${(error as Error).message}`)
    } finally {
      cancel()
    }
  }

  async chaos(): Promise<Status> {
    return (await this.#ask({ method: 'GET', path: '/admin/chaos' })) as Status
  }

  /** Puts another plan in the place of the one there is; what is armed stays so. */
  async plan(plan: { readonly seed: number; readonly faults: readonly object[] }): Promise<void> {
    await this.#ask({ method: 'PUT', path: '/admin/chaos?by=demo', body: plan })
  }

  async arm(why: string): Promise<void> {
    await this.#ask({ method: 'POST', path: '/admin/chaos/arm', body: { by: 'demo', why } })
  }

  async kill(why: string): Promise<void> {
    await this.#ask({ method: 'POST', path: '/admin/chaos/kill', body: { by: 'demo', why } })
  }

  /** Says how tasks ended. */
  async report(reports: readonly TaskReport[]): Promise<void> {
    if (reports.length > 0) await this.#ask({ method: 'POST', path: '/admin/outcomes', body: reports })
  }

  async #ask(request: Request): Promise<unknown> {
    const answered = await this.#control(request)
    if (!answered.ok) throw new DemoError(`${request.path}: ${answered.message}`)
    return answered.value
  }
}
