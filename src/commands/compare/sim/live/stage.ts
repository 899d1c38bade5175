import { environmentLock } from '../../../../chaos/control/guard.ts'
import type { Env } from '../../../../config/files/interpolate.ts'
import { config as schema, type Config } from '../../../../config/schema/schema.ts'
import { newControlToken } from '../../../../gateway/control-token.ts'
import { startGateway } from '../../../../gateway/gateway.ts'
import { type Millis, systemClock } from '../../../../mesh/clock.ts'
import { policies } from '../../../../policies/index.ts'
import { settled } from '../../../../registry/listing.ts'
import { createLog } from '../../../../telemetry/log.ts'
import { Load } from '../../../../load/shop-agents.ts'
import { DemoError, Operator } from './operator.ts'
import { startOrders } from '../../../../load/shop/orders-server.ts'
import { docsServer } from '../../../../load/shop/tools.ts'

export interface StageOptions {
  readonly durationMs: Millis
  readonly seed: number
  /** Without policies only verdicts are given, which change nothing: the metrics live on them. */
  readonly withPolicies: boolean
}

/** Two servers, a gateway in front of them, and agents that have their sessions with it. */
export interface Stage {
  readonly load: Load
  readonly operator: Operator
  /** How often the server placed each order. */
  readonly placed: ReadonlyMap<string, number>
  /** Ends all of it, agents first. */
  close(): Promise<void>
}

const ENVIRONMENT = 'staging'

/** How long the servers may take to come up, in milliseconds. */
const START_MS: Millis = 20_000

/** How much longer than the demo its faults would stay armed, in milliseconds. */
export const MARGIN_MS: Millis = 60_000

/** Starts everything, or leaves nothing behind. Rejects with a `DemoError` where the demo cannot run. */
export async function openStage(options: StageOptions, env: Env): Promise<Stage> {
  // Nothing else of the environment is to have a say: spans, for one, would be sent to somebody's collector.
  const variables = { NODE_ENV: env.NODE_ENV, ENVIRONMENT: env.ENVIRONMENT }
  const lock = environmentLock({ environment: ENVIRONMENT, variables })
  if (lock !== undefined) throw new DemoError(`faults are refused: ${lock}`)
  const closing: (() => Promise<void>)[] = []
  const close = async () => {
    for (let end = closing.pop(); end !== undefined; end = closing.pop()) await end()
  }
  try {
    const orders = await startOrders()
    closing.push(() => orders.close())
    const token = newControlToken()
    const config = configOf(options, orders.url, token)
    const source = { config, path: 'demo', env: variables, keepsKill: false }
    const gateway = await startGateway({ ...source, log: createLog('silent') })
    closing.push(() => gateway.close())
    const servers = gateway.live.current.servers
    await settled(servers.values(), systemClock, START_MS)
    for (const { name, state, error } of servers.values())
      if (state !== 'up')
        throw new DemoError(`server ${name} is ${state}: ${error?.message ?? 'no reason known'}`)
    const load = await Load.at(`${gateway.data}/mcp`, options.seed, systemClock)
    closing.push(() => load.close())
    const operator = new Operator({ base: gateway.control, token, clock: systemClock })
    return { load, operator, placed: orders.placed, close }
  } catch (error) {
    await close()
    throw error
  }
}

function configOf({ durationMs, withPolicies }: StageOptions, orders: string, token: string): Config {
  return schema.parse({
    gateway: {
      listen: '127.0.0.1:0',
      control: '127.0.0.1:0',
      controlToken: token,
      environment: ENVIRONMENT,
      drain: '1s',
    },
    mcpServers: {
      docs: { command: process.execPath, args: [docsServer], era: 'legacy', trusted: true },
      orders: { url: orders, era: 'legacy', trusted: true },
    },
    policies: { defaults: withPolicies ? on : off },
    chaos: { enabled: true, maxTtl: durationMs + MARGIN_MS },
    // Every look is to be of now.
    telemetry: { metrics: { maxAge: 0 } },
  })
}

/** The default policies, with a shorter wait for servers that hang, and with verdicts that count. */
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
