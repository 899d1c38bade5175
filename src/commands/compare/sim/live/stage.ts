import type { Env } from '../../../../config/files/interpolate.ts'
import { config as schema } from '../../../../config/schema/schema.ts'
import { type Millis, systemClock } from '../../../../mesh/clock.ts'
import { policies } from '../../../../policies/index.ts'
import { Load } from '../../../../load/shop-agents.ts'
import { startShop } from '../../../../load/shop/shop.ts'
import { unusable } from '../../../shared/arguments.ts'
import type { Control } from '../../../shared/control.ts'
import type { Closing } from '../../../shared/signals.ts'
import { demandFaults, openStage } from '../../../shared/stage.ts'

export interface DemoOptions {
  readonly durationMs: Millis
  readonly seed: number
  /** False switches off all policies except verdicts, which only fill the metrics. */
  readonly withPolicies: boolean
}

/** Two servers behind a gateway, and agents with sessions at the gateway. */
export interface DemoStage {
  readonly load: Load
  readonly control: Control
  /** Placements of each order at the server. */
  readonly placed: ReadonlyMap<string, number>
}

const ENVIRONMENT = 'staging'

/** Time added to the duration of the demo as lifetime of its faults, in milliseconds. */
export const MARGIN_MS: Millis = 60_000

/**
 * Starts the servers, the gateway and the agents; `closing` gets the functions that end them. Rejects with an
 * `UnusableInput` when the demo cannot run.
 */
export async function openDemo(options: DemoOptions, closing: Closing, env: Env): Promise<DemoStage> {
  const { durationMs, seed, withPolicies } = options
  // The demo's gateway gets no other environment variables.
  const variables = { NODE_ENV: env.NODE_ENV, ENVIRONMENT: env.ENVIRONMENT }
  demandFaults(ENVIRONMENT, variables)
  const { mcpServers, placed, close } = await startShop()
  closing.push(close)
  const config = schema.parse({
    gateway: { environment: ENVIRONMENT },
    mcpServers,
    policies: { defaults: withPolicies ? on : off },
    chaos: { enabled: true, maxTtl: durationMs + MARGIN_MS },
    // The demo polls the metrics, so the gateway must not cache them.
    telemetry: { metrics: { maxAge: 0 } },
  })
  const { url, control } = await openStage(config, { name: 'demo', env: variables, closing })
  const load = await Load.at(url, seed, systemClock).catch(unusable)
  closing.push(() => load.close())
  return { load, control, placed }
}

/** The default policies, with a shorter timeout for hanging servers, and with enforced verdicts. */
const on = {
  deadline: { total: '25s' },
  attemptTimeout: { timeout: '1s' },
  retry: { incorrect: true },
  verdict: { output: 'enforce' },
}

const off = {
  ...Object.fromEntries(Object.keys(policies).map((name) => [name, false])),
  verdict: { output: 'report' },
}
