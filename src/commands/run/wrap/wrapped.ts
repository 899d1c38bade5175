import { environmentLock } from '../../../chaos/control/guard.ts'
import type { ChaosConfig } from '../../../chaos/plan/schema.ts'
import type { Env } from '../../../config/files/interpolate.ts'
import { formatPath } from '../../../config/files/places.ts'
import type { ConfigFinding } from '../../../config/issues/issues.ts'
import { brokenRules, warningsOf } from '../../../config/issues/rules.ts'
import { config as schema, type Config } from '../../../config/schema/schema.ts'
import { type Gateway, startGateway } from '../../../gateway/gateway.ts'
import { type Millis, systemClock } from '../../../mesh/clock.ts'
import { createLog } from '../../../telemetry/log.ts'
import type { Output } from '../../shared/arguments.ts'
import { readPlan, WRAPPED } from '../plan-file.ts'

/** Longest message either way, in bytes. */
export const MAX_MESSAGE = 16 * 1024 ** 2

/** How long the process may go on when it could not start. */
const LINGER_MS: Millis = 500

/** Marks the gateway as one of a test, whatever machine it runs on: wrapping a server is an explicit act. */
const ENVIRONMENT = 'test'

export interface WrapOptions {
  /** A file with a plan; without one, only the policies act. */
  readonly plan: string | undefined
  /** Whether calls fail when the engine of the faults does. */
  readonly strict: boolean
  readonly logLevel: string
  /** The entry of `mcpServers`. */
  readonly server: Readonly<Record<string, unknown>>
  /** Keys of the block `gateway` besides those that are the same for all. */
  readonly gateway: Readonly<Record<string, unknown>>
}

/** Starts a gateway around one server, with its plan armed. The exit code of the command when that cannot be. */
export async function startWrapped(options: WrapOptions, out: Output, env: Env): Promise<Gateway | number> {
  const failed = (...lines: readonly string[]) => {
    for (const line of lines) out.stderr(`breakwater: ${line}`)
    return 1
  }
  const lock = environmentLock({ environment: ENVIRONMENT, variables: env })
  if (options.plan !== undefined && lock !== undefined) return failed(`faults are refused: ${lock}`)
  const plan = options.plan === undefined ? undefined : await readPlan(options.plan, env, options.strict)
  if (plan?.ok === false) return failed(...plan.problems)
  const config = configOf(options, plan?.chaos)
  if (typeof config === 'string') return failed(config)
  const broken = brokenRules(config)
  if (broken.length > 0) return failed(...broken.map((finding) => said(finding, options)))
  for (const finding of warningsOf(config)) out.stderr(`breakwater: warning: ${said(finding, options)}`)
  if (plan?.chaos.faults.length === 0) out.stderr(`breakwater: warning: ${options.plan} has no faults`)

  let gateway
  try {
    const log = createLog(options.logLevel, process.stderr)
    // Wrapping a server arms the plan, each time anew: a kill is over with the process.
    const source = { config, path: options.plan ?? WRAPPED }
    gateway = await startGateway({ ...source, env, log, keepsKill: false })
  } catch (error) {
    // Parts that were made before the failure may keep the process alive.
    systemClock.after(LINGER_MS, () => process.exit(1))
    return failed(`cannot start: ${(error as Error).message}`)
  }
  const { chaos } = gateway
  process.on('SIGUSR2', () => chaos.killSwitch.kill('SIGUSR2', 'the process was signalled'))
  const { state, refusal } = chaos.status()
  if (config.chaos.faults.length === 0 || state === 'armed') return gateway
  await gateway.close()
  return failed(`the plan is not armed: ${refusal ?? state}`)
}

/** The config; or what is wrong with it. */
function configOf({ server, gateway }: WrapOptions, chaos: ChaosConfig | undefined): Config | string {
  const fixed = { control: '127.0.0.1:0', environment: ENVIRONMENT, maxBody: MAX_MESSAGE }
  const parsed = schema.safeParse({
    gateway: { ...fixed, ...gateway },
    // The user who wraps a server knows the server, so the gateway may believe what the server says of its tools.
    mcpServers: { [WRAPPED]: { trusted: true, ...server } },
  })
  if (!parsed.success) {
    const [{ path = [], message = 'cannot be used' } = {}] = parsed.error.issues
    return `${path.at(-1)?.toString() ?? 'the server'}: ${message}`
  }
  return chaos === undefined ? parsed.data : { ...parsed.data, chaos }
}

/** A finding, with the path as the plan has it. */
function said({ path, message }: ConfigFinding, { plan }: WrapOptions): string {
  const [block, ...rest] = path
  return block === 'chaos' ? `${plan}  ${formatPath(rest)}  ${message}` : `${formatPath(path)}  ${message}`
}
