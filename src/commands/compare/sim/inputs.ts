import { refusalOf } from '../../../chaos/fault.ts'
import { faults as registry } from '../../../chaos/faults/index.ts'
import { methodsOf } from '../../../chaos/plan/checks.ts'
import type { Fault } from '../../../chaos/plan/common.ts'
import type { Env } from '../../../config/files/interpolate.ts'
import { formatIssue } from '../../../config/issues/issues.ts'
import { loadConfig, loadPolicies } from '../../../config/load.ts'
import type { Config } from '../../../config/schema/schema.ts'
import { policiesOf } from '../../../config/call-timeouts.ts'
import { DEFAULT_SET } from '../../../mesh/settings.ts'
import { serverKind } from '../../../sim/environment.ts'
import type { IdleFaults } from '../../../sim/idle-faults.ts'
import { byDefault, type PolicyChoice } from '../../../sim/policy-choices.ts'
import { suggest } from '../../../units/suggest.ts'
import { Misuse, UnusableInput } from '../../shared/arguments.ts'
import { readPlan } from '../../run/plan-file.ts'

export const policyOptions = {
  policies: {
    kind: 'text',
    value: 'FILE',
    about: 'the policies to simulate, a block "policies" (default: the default policies)',
  },
  config: { kind: 'text', value: 'FILE', about: 'the policies to simulate, from a whole config' },
  set: { kind: 'text', value: 'NAME', about: 'a policy set of the file' },
} as const

export interface PolicyValues {
  readonly policies: string | undefined
  readonly config: string | undefined
  readonly set: string | undefined
}

/** Returns the chosen policies. Rejects with an `UnusableInput`, or with `Misuse`. */
export async function choiceOf({ set, ...where }: PolicyValues, env: Env): Promise<PolicyChoice> {
  const file = where.policies ?? where.config
  if (file !== undefined) return setOf(await policiesAt(where, env), set, file)
  if (set === undefined || set === DEFAULT_SET) return byDefault
  throw new UnusableInput(`there is no policy set "${set}": name its file with --policies or --config`)
}

/** Returns the policies of a file. Rejects like `choiceOf`. */
export async function policiesAt(
  { policies, config }: Omit<PolicyValues, 'set'>,
  env: Env,
): Promise<Config['policies']> {
  if (policies !== undefined && config !== undefined)
    throw new Misuse('expected --policies FILE or --config FILE, not both')
  const loaded =
    policies === undefined ? await loadConfig(config ?? '', env) : await loadPolicies(policies, env)
  if (!loaded.ok) throw new UnusableInput(loaded.errors.map(formatIssue).join('\n'))
  return policiesOf(loaded.config)
}

/**
 * Returns a policy set of a file; without a name, the file's policies. Throws an `UnusableInput` for an unknown set.
 */
export function setOf(policies: Config['policies'], set: string | undefined, file: string): PolicyChoice {
  if (set === undefined || set === DEFAULT_SET) return { name: DEFAULT_SET, policies }
  if (Object.hasOwn(policies.sets, set)) return { name: set, policies, set }
  const names = Object.keys(policies.sets)
  const meant = suggest(set, names)
  const there = names.length === 0 ? 'it has no policy sets' : `it has ${names.join(', ')}`
  throw new UnusableInput(
    `${file} has no policy set "${set}": ${meant === undefined ? there : `did you mean ${meant}?`}`,
  )
}

/**
 * Returns the faults of a plan in any known format, armed for a whole simulation. Rejects with an `UnusableInput`, also
 * when no fault can affect a call of a simulated server's tool.
 */
export async function planOf(file: string, env: Env): Promise<readonly Fault[]> {
  const read = await readPlan(file, env, false, { ttl: '1h' })
  if (!read.ok) throw new UnusableInput(read.problems.join('\n'))
  const { faults } = read.chaos
  if (faults.length === 0) throw new UnusableInput(`${file} has no faults`)
  const why = faults.map(notSimulated)
  if (why.every((one) => one !== undefined))
    throw new UnusableInput(
      [
        `no fault of ${file} can be simulated:`,
        ...faults.map(({ name }, at) => `  ${name}: ${why[at]}`),
      ].join('\n'),
    )
  return faults.map((fault) => ({ ...fault, ttl: Infinity }))
}

/**
 * Returns a line for each fault of a plan without a hit in all runs. Throws an `UnusableInput` when no fault hit a
 * call, because runs without hits show nothing about the faults.
 */
export function idleIn(file: string, faults: readonly Fault[], runs: readonly IdleFaults[]): string[] {
  const idle = faults.filter(({ name }) => runs.every((run) => run.has(name)))
  const why = (fault: Fault) => notSimulated(fault) ?? runs[0]?.get(fault.name)
  if (idle.length > 0 && idle.length === faults.length)
    throw new UnusableInput(
      [`no fault of ${file} hit a call:`, ...idle.map((fault) => `  ${fault.name}: ${why(fault)}`)].join(
        '\n',
      ),
    )
  return idle.map((fault) => `${fault.name} of ${file} hit no call: ${why(fault)}`)
}

/** Returns the reason why a fault has no effect on simulated tool calls; undefined for a fault with an effect. */
export function notSimulated({ type, side }: Fault): string | undefined {
  const known = registry[type]
  if (known === undefined || !methodsOf(known).includes('tools/call')) return 'it does not hit tool calls'
  return side === 'upstream' ? refusalOf(known, serverKind) : undefined
}
