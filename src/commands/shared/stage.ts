import { environmentLock } from '../../chaos/control/guard.ts'
import type { Env } from '../../config/files/interpolate.ts'
import { formatPath } from '../../config/files/places.ts'
import type { ConfigFinding } from '../../config/issues/issues.ts'
import { brokenRules } from '../../config/issues/rules.ts'
import type { Config } from '../../config/schema/schema.ts'
import { newControlToken } from '../../gateway/control-token.ts'
import { type Gateway, type GatewayOptions, startGateway } from '../../gateway/gateway.ts'
import { never, type Signal } from '../../mesh/cancel.ts'
import { type Millis, systemClock } from '../../mesh/clock.ts'
import { settled } from '../../registry/listing.ts'
import { createLog } from '../../telemetry/log.ts'
import { UnusableInput } from './arguments.ts'
import { type Control, controlAt } from './control.ts'
import type { Closing } from './signals.ts'

/** Start timeout of servers, in milliseconds. */
const START_MS: Millis = 60_000

/** Throws an `UnusableInput` if a gateway of this environment must not have faults. */
export function demandFaults(environment: string, variables: Env): void {
  const lock = environmentLock({ environment, variables })
  if (lock !== undefined) throw new UnusableInput(`faults are refused: ${lock}`)
}

/** Throws an `UnusableInput` if a config breaks rules, each formatted by `said`. */
export function demandRules(config: Config, said: (finding: ConfigFinding) => string): void {
  const broken = brokenRules(config)
  if (broken.length > 0) throw new UnusableInput(broken.map(said).join('\n'))
}

/**
 * Starts a gateway for the duration of a command. Ignores a kill switch that an earlier gateway left on. Rejects with
 * an `UnusableInput`.
 */
export function startOwn(options: Omit<GatewayOptions, 'keepsKill'>): Promise<Gateway> {
  return startGateway({ ...options, keepsKill: false }).catch((error: unknown) => {
    throw new UnusableInput(`cannot start: ${(error as Error).message}`)
  })
}

export interface Stage {
  /** The agents' URL for all servers: `…/mcp`. */
  readonly url: string
  readonly control: Control
}

export interface StageOptions {
  /** Name of the config in messages. */
  readonly name: string
  readonly env: Env
  /** List that gets the function to end the gateway. */
  readonly closing: Closing
  /** Aborts the wait for servers. */
  readonly stop?: Signal
}

/**
 * Returns a config for a gateway on loopback with its own ports and token, without files and without a control MCP
 * server. Throws an `UnusableInput` for a config that breaks rules.
 */
export function stagedConfig(config: Config, name: string, controlToken = newControlToken()): Config {
  const { stateDir: _, controlMcp: __, ...block } = config.gateway
  const ports = { listen: '127.0.0.1:0', control: '127.0.0.1:0', controlToken, drain: 1_000 }
  const own = { ...config, gateway: { ...block, ...ports } }
  demandRules(own, ({ path, message }) => `${name}  ${formatPath(path)}  ${message}`)
  return own
}

/**
 * Starts a gateway on loopback with its own ports and token, without files, log or telemetry. Resolves when the servers
 * are up; rejects with an `UnusableInput`.
 */
export async function openStage(
  config: Config,
  { name, env, closing, stop = never }: StageOptions,
): Promise<Stage> {
  const token = newControlToken()
  const own = stagedConfig(config, name, token)
  const variables = { ...env, OTEL_SDK_DISABLED: 'true' }
  const gateway = await startOwn({ config: own, path: name, env: variables, log: createLog('silent') })
  closing.push(() => gateway.close())
  const { servers } = gateway.live.current
  await settled(servers.values(), systemClock, START_MS, { signal: stop })
  if (stop.aborted) throw new UnusableInput('the command was stopped before it began')
  for (const { name, state, error, config: server } of servers.values())
    if (state !== 'up' && !server.disabled)
      throw new UnusableInput(`server ${name} is ${state}: ${error?.message ?? 'no reason known'}`)
  return {
    url: `${gateway.data}/mcp`,
    control: controlAt({ base: gateway.control, token, env: {}, hurry: stop }),
  }
}
