import type { Call } from '../../../mesh/call.ts'
import type { Millis } from '../../../mesh/clock.ts'
import { isObject, paramsOf } from '../../../protocol/jsonrpc.ts'
import type { Condition } from '../../servers.ts'

/** How a server is while agents work with it. */
export interface Row {
  readonly name: string
  /** For how long agents begin tasks, in seconds. */
  readonly lengthS: number
  /** When it is ill for the first time and when it is well for good, in seconds. */
  readonly ill: readonly [from: number, to: number]
  readonly replicas?: number
  /** How many calls it works on at a time; what comes on top waits in line there. Default: any number. */
  readonly pool?: number
  condition(replica: number, now: Millis, call?: Call): Condition
  /** When all connections to a replica break, in seconds. */
  readonly drops?: readonly (readonly [atS: number, replica: number])[]
  /** Whether a call ends the server's process; it is back after `poisonMs`. */
  readonly isPoison?: (call: Call) => boolean
  /** One of the agents does something that the others must not pay for. */
  readonly offender?: 'poison' | 'bad_arguments' | 'dead'
}

const WELL: Condition = { is: 'well' }

const isWithin = (now: Millis, [from, to]: readonly [number, number]) =>
  now >= from * 1_000 && now < to * 1_000

/** Ill in one way for some time. What is under way when a server goes away is lost. */
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

/** Away for the second half of each period. */
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

/** Each call fails for the first `illS` seconds of each period. */
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

/** One of three replicas is ill. */
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

/** The tasks of an offender of which the second call ends the server. */
export const POISON = 'poison'

function serviceOf({ message }: Call): unknown {
  const args = paramsOf(message.value).arguments
  return isObject(args) ? args.service : undefined
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
  once('20 times slower', [10, 30], { is: 'slow', times: 20 }, 60),
  once('hangs 10 s', [10, 20], { is: 'hangs' }, 90),
  once('hangs 60 s', [10, 70], { is: 'hangs' }, 120),
  once('HTTP 429 3 s', [10, 13], { is: 'limits', retryAfterMs: 1_000 }),
  once('4 % cut replies', [5, 35], { is: 'cuts', rate: 0.04 }, 40),
  oneOfThree('only fails', { is: 'fails', rate: 1 }),
  oneOfThree('is away', { is: 'away' }),
  oneOfThree('hangs', { is: 'hangs' }, 110),
  oneOfThree('is slow', { is: 'slow', times: 20 }, 60),
  {
    name: 'a call that ends its server',
    lengthS: 40,
    ill: [0, 40],
    condition: () => WELL,
    isPoison: (call) => serviceOf(call) === POISON,
    offender: 'poison',
  },
]
