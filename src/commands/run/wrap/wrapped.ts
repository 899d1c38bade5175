import type { ChaosConfig } from '../../../chaos/plan/schema.ts'
import type { Env } from '../../../config/files/interpolate.ts'
import { formatPath } from '../../../config/files/places.ts'
import type { ConfigFinding } from '../../../config/issues/issues.ts'
import { warningsOf } from '../../../config/issues/rules.ts'
import { config as schema, type Config } from '../../../config/schema/schema.ts'
import type { Gateway } from '../../../gateway/gateway.ts'
import { createLog } from '../../../telemetry/log.ts'
import { type Output, UnusableInput } from '../../shared/arguments.ts'
import { demandFaults, demandRules, startOwn } from '../../shared/stage.ts'
import { exitSoon } from '../exit-soon.ts'
import { readPlan, WRAPPED } from '../plan-file.ts'

/** Longest message in each direction, in bytes. */
export const MAX_MESSAGE = 16 * 1024 ** 2

/** Marks the gateway as a test gateway on any machine: wrapping a server is an explicit act. */
const ENVIRONMENT = 'test'

export interface WrapOptions {
  /** A file with a plan; without a plan, only the policies act. */
  readonly plan: string | undefined
  /** True if calls fail when the fault engine fails. */
  readonly strict: boolean
  readonly logLevel: string
  readonly server: Readonly<Record<string, unknown>>
  /** Further keys of the block `gateway`. */
  readonly gateway: Readonly<Record<string, unknown>>
}

/** Starts a gateway around a server, with the plan armed. Rejects with an `UnusableInput`. */
export async function startWrapped(options: WrapOptions, out: Output, env: Env): Promise<Gateway> {
  const { plan: file, strict, logLevel } = options
  if (file !== undefined) demandFaults(ENVIRONMENT, env)
  const plan = file === undefined ? undefined : await readPlan(file, env, strict)
  if (plan?.ok === false) throw new UnusableInput(plan.problems.join('\n'))
  const config = configOf(options, plan?.chaos)
  const words = (finding: ConfigFinding) => said(finding, options)
  demandRules(config, words)
  const warnings = warningsOf(config).map(words)
  if (plan?.chaos.faults.length === 0) warnings.push(`${file} has no faults`)
  for (const warning of warnings) out.stderr(`breakwater: warning: ${warning}`)
  // Arms the plan at each start, even if an earlier process had killed its faults.
  const source = { config, path: file ?? WRAPPED, env, log: createLog(logLevel, process.stderr) }
  const gateway = await startOwn(source).catch((error: unknown) => {
    // Sockets or timers created before the failure may keep the process alive.
    exitSoon(1)
    throw error
  })
  const { chaos } = gateway
  process.on('SIGUSR2', () => chaos.killSwitch.kill('SIGUSR2', 'the process was signalled'))
  const { state, refusal } = chaos.status()
  if (config.chaos.faults.length === 0 || state === 'armed') return gateway
  await gateway.close()
  throw new UnusableInput(`the plan is not armed: ${refusal ?? state}`)
}

/** Returns the config. Throws an `UnusableInput`. */
function configOf({ server, gateway }: WrapOptions, chaos: ChaosConfig | undefined): Config {
  const fixed = { control: '127.0.0.1:0', environment: ENVIRONMENT, maxBody: MAX_MESSAGE }
  const parsed = schema.safeParse({
    gateway: { ...fixed, ...gateway },
    // The user wraps a known server, so the gateway may trust the server's statements about its tools.
    mcpServers: { [WRAPPED]: { trusted: true, ...server } },
  })
  if (!parsed.success) {
    const [{ path = [], message = 'cannot be used' } = {}] = parsed.error.issues
    throw new UnusableInput(`${path.at(-1)?.toString() ?? 'the server'}: ${message}`)
  }
  return chaos === undefined ? parsed.data : { ...parsed.data, chaos }
}

/** Returns a finding as text, with its path in the plan. */
function said({ path, message }: ConfigFinding, { plan }: WrapOptions): string {
  const [block, ...rest] = path
  return block === 'chaos' ? `${plan}  ${formatPath(rest)}  ${message}` : `${formatPath(path)}  ${message}`
}
