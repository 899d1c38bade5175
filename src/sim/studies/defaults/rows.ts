import type { Call } from '../../../mesh/call.ts'
import type { Millis } from '../../../mesh/clock.ts'
import type { KeyedRandom } from '../../../mesh/keyed-random.ts'
import { isObject, paramsOf } from '../../../protocol/jsonrpc.ts'
import type { Condition } from '../../servers.ts'

/** A row of the study: the behaviour of a server under test. */
export interface Row {
  readonly name: string
  /** Agents begin tasks during this time, in seconds. */
  readonly lengthS: number
  /** Start of the first illness and end of the last, in seconds. */
  readonly ill: readonly [from: number, to: number]
  readonly replicas?: number
  /** Duration of calls, in milliseconds, instead of the load's. */
  readonly callMs?: Millis
  /** Number of tools; the calls of a task use the tools in turn. Default: 1. */
  readonly tools?: number
  /** True if the tools declare no `outputSchema`. Default: false. */
  readonly isPlain?: boolean
  condition(replica: number, now: Millis, random: KeyedRandom): Condition
  /** Times, in seconds, when all connections to a replica break. */
  readonly drops?: readonly (readonly [atS: number, replica: number])[]
  /** Additional agents that make harmful calls (offences). Only tasks and calls of the other agents count. */
  readonly offenders?: Offenders
  /** The load under which clearly more tasks fail by default than with another set, and the reason. */
  readonly loses?: { readonly under: string; readonly why: string }
}

/** Agents that make harmful calls (offences). */
export interface Offenders {
  /** Number of offenders. Default: as many as other agents. */
  readonly agents?: number
  /**
   * `once`: each agent makes one offence while the server is ill, and disappears without waiting. `always`: every call
   * is an offence, and the agent continues. `sometimes`: the second call of every fourth task is an offence.
   */
  readonly offend: 'once' | 'always' | 'sometimes'
  /** Returns the condition of the server for an offence, by call id. `ends`: the offence ends the server's process. */
  meets(id: string, random: KeyedRandom): Condition | { readonly is: 'ends' }
  /** True if offences use a separate tool. Default: false. */
  readonly isElsewhere?: boolean
}

const WELL: Condition = { is: 'well' }
const HANGS: Condition = { is: 'hangs' }

const isWithin = (now: Millis, [from, to]: readonly [number, number]) =>
  now >= from * 1_000 && now < to * 1_000

/** Returns a row with a single illness. Calls under way are lost if the server becomes unreachable. */
function once(
  name: string,
  ill: readonly [number, number],
  condition: Condition,
  lengthS = ill[1] + 15,
): Row {
  const isLost = condition.is === 'away' || condition.is === 'resets'
  return {
    name,
    lengthS,
    ill,
    condition: (_, now) => (isWithin(now, ill) ? condition : WELL),
    ...(isLost && { drops: [[ill[0], 0]] as const }),
  }
}

/** Returns a row with a server that is unreachable for the first half of each period. */
function flapping(periodS: number, times: number, from = 10): Row {
  const ill = [from, from + periodS * times] as const
  const isAway = (now: Millis) =>
    isWithin(now, ill) && Math.floor((now - from * 1_000) / (periodS * 500)) % 2 === 0
  return {
    name: `away ${periodS / 2} s of ${periodS} s`,
    lengthS: ill[1] + 10,
    ill,
    condition: (_, now) => (isAway(now) ? { is: 'away' } : WELL),
    drops: Array.from({ length: times }, (_, nth) => [from + nth * periodS, 0] as const),
  }
}

/** Returns a row in which each call fails during the first `illS` seconds of each period. */
function bursts(illS: number, periodS: number): Row {
  const ill = [5, 55] as const
  return {
    name: `only errors ${illS} s of ${periodS} s`,
    lengthS: 60,
    ill,
    condition: (_, now) =>
      isWithin(now, ill) && now % (periodS * 1_000) < illS * 1_000 ? { is: 'fails', rate: 1 } : WELL,
  }
}

/** Returns a row in which one of three replicas is ill. */
function oneOfThree(name: string, condition: Condition, lengthS = 50): Row {
  const ill = [10, 40] as const
  return {
    name: `1 of 3 replicas ${name}`,
    lengthS,
    ill,
    replicas: 3,
    condition: (replica, now) => (replica === 1 && isWithin(now, ill) ? condition : WELL),
    ...(condition.is === 'away' && { drops: [[ill[0], 1]] as const }),
  }
}

const errors = (percent: number) =>
  once(`${percent} % errors`, [5, 35], { is: 'fails', rate: percent / 100 }, 40)

/** Returns a row in which all tools fail together once in 10 s, at a random time, for a second on average. */
function episodes(tools: number): Row {
  const ill = [5, 55] as const
  return {
    name: `episodes of errors of ${tools} tools`,
    lengthS: 60,
    ill,
    tools,
    condition(_, now, random) {
      const period = Math.floor(now / PERIOD_MS)
      const begins = (period + random(`${period}`, 'begins') / 2) * PERIOD_MS
      const lastsMs = Math.min(PERIOD_MS / 2, -Math.log(1 - random(`${period}`, 'lasts')) * EPISODE_MS)
      const isNow = isWithin(now, ill) && now >= begins && now < begins + lastsMs
      return isNow ? { is: 'fails', rate: 1 } : WELL
    },
  }
}

const PERIOD_MS: Millis = 10_000
const EPISODE_MS: Millis = 1_000

/** Returns a row with a server that is healthy except for the effects of offences. */
const offended = (name: string, offenders: Offenders, ill: readonly [number, number] = [0, 40]): Row => ({
  name,
  lengthS: 40,
  ill,
  condition: () => WELL,
  offenders,
})

const badArguments = (name: string, meets: Offenders['meets']) =>
  offended(name, { agents: 1, offend: 'always', meets })

const dying = offended(
  '40 agents die in calls that hang',
  { agents: 40, offend: 'once', meets: () => HANGS },
  [10, 12],
)

/** The argument that marks a call as an offence. */
export const OFFENCE = 'offence'

export function isOffence({ message }: Call): boolean {
  const args = paramsOf(message.value).arguments
  return isObject(args) && args.service === OFFENCE
}

export const rows: readonly Row[] = [
  once('resets 0.4 s', [10, 10.4], { is: 'resets' }),
  once('resets 2 s', [10, 12], { is: 'resets' }),
  once('away 1 s', [10, 11], { is: 'away' }),
  once('away 3 s', [10, 13], { is: 'away' }),
  once('away 5 s', [10, 15], { is: 'away' }),
  once('away 15 s', [10, 25], { is: 'away' }, 50),
  once('away 60 s', [10, 70], { is: 'away' }, 90),
  flapping(4, 8),
  flapping(20, 3),
  errors(2),
  errors(10),
  errors(30),
  errors(60),
  bursts(1, 10),
  bursts(0.4, 5),
  once('only errors 20 s', [10, 30], { is: 'fails', rate: 1 }, 50),
  { ...once('well with calls of 3 s', [0, 40], WELL, 40), callMs: 3_000 },
  once('20 times slower', [10, 30], { is: 'slow', times: 20 }, 60),
  once('hangs 10 s', [10, 20], { is: 'hangs' }, 90),
  once('hangs 60 s', [10, 70], { is: 'hangs' }, 120),
  once('HTTP 429 3 s', [10, 13], { is: 'limits', retryAfterMs: 1_000 }),
  once('4 % cut replies', [5, 35], { is: 'cuts', rate: 0.04 }, 40),
  {
    ...once('4 % cut replies without outputSchema', [5, 35], { is: 'cuts', rate: 0.04 }, 40),
    isPlain: true,
  },
  episodes(4),
  oneOfThree('only fails', { is: 'fails', rate: 1 }),
  oneOfThree('is away', { is: 'away' }),
  oneOfThree('hangs', { is: 'hangs' }, 110),
  oneOfThree('is slow', { is: 'slow', times: 20 }, 60),
  offended('a call that ends its server', { agents: 1, offend: 'sometimes', meets: () => ({ is: 'ends' }) }),
  badArguments("one agent's bad arguments", (id, random) => ({
    is: 'fails',
    rate: 1,
    as: random(id, 'form') < 0.5 ? 'invalid_params' : 'tool_error',
  })),
  badArguments("one agent's bad arguments as -32603", () => ({ is: 'fails', rate: 1 })),
  dying,
  { ...dying, name: '40 agents die beside calls of 3 s', callMs: 3_000 },
  offended('another tool hangs', { offend: 'always', meets: () => HANGS, isElsewhere: true }),
]
