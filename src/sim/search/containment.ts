import { isDeepStrictEqual } from 'node:util'
import type { Millis } from '../../mesh/clock.ts'
import { policies as registry } from '../../policies/index.ts'
import type { PolicyChoice } from '../policy-choices.ts'
import type { Json } from '../servers.ts'

type PolicyName = keyof typeof registry

/** Measured facts that a change of a policy may need. */
interface Facts {
  /** The 95th percentile of call durations without faults. */
  readonly usualMs: Millis
}

/**
 * A change of one policy. `to` gets the settings in a place (`{}` if the policy is off), and returns the changed
 * settings; undefined changes nothing.
 */
interface Change {
  readonly policy: PolicyName
  readonly to: (now: Json, facts: Facts) => Json | undefined
}

const more = (value: unknown, by: (value: number) => number, unset: number): number =>
  typeof value === 'number' ? by(value) : unset

const double = (value: number) => value * 2

/**
 * The changes to try, one at a time. Each is known to contain some fault. There is no change of `degrade`: simulated
 * answers never change, so a last known good answer would always be right.
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
    // These settings together limit the number of retries.
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
    // Calls wait longer at the gate.
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
    // Opens the breaker later. Applies only if a breaker is in force.
    to: ({ consecutive, minimum }) =>
      consecutive === undefined
        ? undefined
        : { consecutive: more(consecutive, double, 10), minimum: more(minimum, double, 40) },
  },
  {
    policy: 'breaker',
    // The breaker stays open for a shorter time.
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

/** Policies with a single change, and the change as text. */
export interface Alternative {
  readonly change: string
  readonly choice: PolicyChoice
}

/** Returns all single changes with an effect, in each place where the policy's schema accepts the change. */
export const alternativesTo = (choice: PolicyChoice, facts: Facts): Alternative[] =>
  changes.flatMap((change) => alternativeOf(choice, change, facts) ?? [])

type Settings = Readonly<Partial<Record<string, unknown>>>

const isOn = (settings: unknown): settings is Json => typeof settings === 'object' && settings !== null

/** Applies a change of a policy in each place with settings for the policy; undefined when nothing changes. */
function alternativeOf(choice: PolicyChoice, { policy, to }: Change, facts: Facts): Alternative | undefined {
  const { policies, set } = choice
  /** The change as text. Names an override only if its change differs from the change in the defaults. */
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
      ? // Settings in the set win over defaults and overrides.
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
