import { isDeepStrictEqual } from 'node:util'
import type { Millis } from '../../mesh/clock.ts'
import { policies as registry } from '../../policies/index.ts'
import type { PolicyChoice } from '../policy-choices.ts'
import type { Json } from '../servers.ts'

type PolicyName = keyof typeof registry

/** Facts that the change of a policy depends on. */
interface Facts {
  /** How long 95 % of the calls take at most when there is no fault. */
  readonly usualMs: Millis
}

/** One change of one policy: what it makes of the settings of a place, `{}` where the policy is off; undefined where there is nothing to change. */
interface Change {
  readonly policy: PolicyName
  readonly to: (now: Json, facts: Facts) => Json | undefined
}

const more = (value: unknown, by: (value: number) => number, unset: number): number =>
  typeof value === 'number' ? by(value) : unset

const double = (value: number) => value * 2

/**
 * The changes that are tried: those that are known to contain some fault, one at a time. `degrade` is not among them: what simulated
 * servers answer never changes, and so the last known good answer would always be right.
 */
const changes: readonly Change[] = [
  {
    policy: 'retry',
    to: ({ maxRetries }) => ({
      maxRetries: Math.min(
        10,
        more(maxRetries, (n) => n + 1, 2),
      ),
    }),
  },
  { policy: 'retry', to: () => ({ incorrect: true }) },
  {
    policy: 'retry',
    // These are one thing: how much may be sent again.
    to: ({ budget }) =>
      isOn(budget)
        ? { budget: { ...budget, ratio: 1, concurrency: 1, floor: 100, leastConcurrent: 100 } }
        : undefined,
  },
  {
    policy: 'attemptTimeout',
    to({ timeout }, { usualMs }) {
      const shorter = Math.ceil(usualMs * 10)
      return more(timeout, (ms) => ms, Infinity) > shorter ? { timeout: shorter } : undefined
    },
  },
  {
    policy: 'gate',
    // One that waits for longer.
    to({ patience, maxPatience }) {
      const longer = more(patience, double, 20_000)
      return {
        patience: longer,
        maxPatience: Math.max(
          longer,
          more(maxPatience, (ms) => ms, 45_000),
        ),
      }
    },
  },
  {
    policy: 'overdue',
    to({ after }, { usualMs }) {
      const sooner = Math.ceil(usualMs * 10)
      return more(after, (ms) => ms, Infinity) > sooner ? { after: sooner } : undefined
    },
  },
  { policy: 'verdict', to: () => ({ output: 'enforce' }) },
  { policy: 'hedge', to: (_, { usualMs }) => ({ after: Math.ceil(usualMs * 2) }) },
  {
    policy: 'breaker',
    // One that opens later, where it is the breaker that turns calls away: none is in force unless somebody says so.
    to: ({ consecutive, minimum }) =>
      consecutive === undefined
        ? undefined
        : { consecutive: more(consecutive, double, 10), minimum: more(minimum, double, 40) },
  },
  {
    policy: 'breaker',
    // One that is open for a shorter time.
    to: ({ open }) => (typeof open === 'number' ? { open: Math.max(1, open / 10) } : undefined),
  },
  {
    policy: 'bulkhead',
    to: ({ concurrent, queue }) => ({
      concurrent: Math.min(10_000, more(concurrent, double, 128)),
      queue: Math.min(4_096, more(queue, double, 128)),
    }),
  },
]

/** Policies with a single change, and what that is, as a config says it. */
export interface Alternative {
  readonly change: string
  readonly choice: PolicyChoice
}

/** All single changes of some policies that make a difference, and that the schema of the policy takes in each place. */
export const alternativesTo = (choice: PolicyChoice, facts: Facts): Alternative[] =>
  changes.flatMap((change) => alternativeOf(choice, change, facts) ?? [])

type Settings = Readonly<Partial<Record<string, unknown>>>

const isOn = (settings: unknown): settings is Json => typeof settings === 'object' && settings !== null

/** Makes a change of a policy in each place that says something of it, of what that place has; undefined where it changes nothing. */
function alternativeOf(choice: PolicyChoice, { policy, to }: Change, facts: Facts): Alternative | undefined {
  const { policies, set } = choice
  /** Changes in words. An override is named only where its change differs from the change in the defaults. */
  const said: string[] = []
  let isRefused = false
  const changed = <Group extends Settings>(settings: Group, where = ''): Group => {
    const own = settings[policy]
    const now = isOn(own) ? own : {}
    const part = to(now, facts)
    if (part === undefined) return settings
    const read = registry[policy].schema.safeParse({ ...now, ...part })
    isRefused ||= !read.success
    if (!read.success || isDeepStrictEqual(read.data, own)) return settings
    const text = JSON.stringify(part)
    if (!said.includes(text)) said.push(`${text}${where}`)
    return { ...settings, [policy]: read.data }
  }
  const { defaults, overrides, sets } = policies
  const inSet = set === undefined ? undefined : sets[set]
  const made =
    set !== undefined && inSet !== undefined && policy in inSet
      ? // What a set says of a policy wins over all else.
        { sets: { ...sets, [set]: changed(inSet) } }
      : {
          defaults: changed(defaults),
          overrides: overrides.map((override, at) =>
            policy in override ? changed(override, ` in override ${at}`) : override,
          ),
        }
  if (isRefused || said.length === 0) return undefined
  return {
    change: `${policy}: ${said.join(', ')}`,
    choice: { ...choice, policies: { ...policies, ...made } },
  }
}
