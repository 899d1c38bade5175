import { chaos } from '../../chaos/plan/schema.ts'
import type { Fault } from '../../chaos/plan/common.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { Json } from '../servers.ts'

export type Draw = () => number

/** A fault's `when`, as in a plan. */
export interface When {
  readonly burst?: { readonly meanLength: number; readonly per: 'slot' | 'call' }
  readonly window?: { readonly from: Millis; readonly to: Millis }
}

/** A fault of an individual, with only the fields that the search varies. */
export interface Gene {
  readonly type: string
  /** Exact names, not globs. Without server and tool, the fault matches every call. */
  readonly match: { readonly server?: string; readonly tool?: string }
  readonly rate: number
  readonly when: When
  /** The fields of the fault type, and `sticky`. */
  readonly options: Json
}

/** An individual: 1 to 4 faults of different types, ordered by type name. */
export type Genome = readonly Gene[]

export const MOST_FAULTS = 4

/** The tools and the time span from which the search draws individuals. */
export interface PlanSpace {
  /** Tools as `server/tool`. */
  readonly tools: readonly string[]
  /** Duration of a run without faults, in milliseconds. Windows of faults begin within this time. */
  readonly spanMs: Millis
}

/** Returns a random value for a field. */
type Choice = (draw: Draw) => unknown

/** The fault types that affect simulated tool calls, with functions that draw their fields. */
export const types: Readonly<Record<string, Readonly<Record<string, Choice>>>> = {
  'conn.refused': {},
  'conn.reset': {},
  'conn.latency': {
    distribution: (draw) => {
      const [one, other] = [ms(10, 10_000)(draw), ms(50, 60_000)(draw)]
      return pick(
        [
          { kind: 'fixed', delay: one },
          { kind: 'uniform', max: one },
          // The second duration may be shorter than the first; the schema then refuses the plan.
          { kind: 'lognormal', median: one, p99: other },
          { kind: 'pareto', scale: one, alpha: 1.5, cap: other },
        ],
        draw,
      )
    },
  },
  'conn.half_open': { hold: ms(100, 120_000), then: oneOf('pass', 'fail') },
  'http.status': { status: oneOf(500, 502, 503, 504) },
  'rpc.error': {},
  'rpc.malformed': { kind: oneOf('truncate', 'bad_json') },
  'rpc.late': { delay: ms(50, 120_000) },
  'result.is_error': {},
  'result.empty': { form: oneOf('no_content', 'empty_text') },
  'result.drift': { detectable: oneOf('any', 'schema_detectable', 'semantic') },
  'result.partial': { declared: oneOf(true, false) },
  'result.wrong_entity': {},
  'limit.429': { retryAfter: ms(100, 60_000), form: oneOf('seconds', 'absent', 'absurd') },
  'hol.block': { hold: ms(50, 60_000) },
  'pool.exhaust': { slots: oneOf(1, 2, 4), hold: ms(50, 60_000) },
  'retry.storm': { failures: oneOf(1, 2, 3) },
  cold_start: { delay: ms(50, 60_000), idle: ms(50, 10_000) },
}

export const typeNames = Object.keys(types)

/** Lowest rate. Rates are drawn log-uniformly between here and 1. */
export const LEAST_RATE = 0.001

/** Probability of a burst, of a window, and of `sticky` in a new fault. */
const RARELY = 0.25

/** Maximum number of calls held by a fault: far above the concurrency, so only the rate limits the fault. */
const MOST_HELD = 1_000

/** Lifetime of faults: the default limit of a gateway. */
const TTL = '1h'

/** Returns an individual with these faults; among faults of equal type the last one wins. */
export function genomeOf(genes: readonly Gene[]): Genome {
  const byType = new Map(genes.map((gene) => [gene.type, gene]))
  return [...byType.values()].sort((one, other) => (one.type < other.type ? -1 : 1))
}

/** Returns a key of a plan. Equal plans have equal keys. */
export const keyOf = (genome: Genome): string => genome.map(keyOfGene).join('\n')

const keyOfGene = ({ type, match, rate, when, options }: Gene): string =>
  JSON.stringify([
    type,
    match.server,
    match.tool,
    rate,
    when.burst,
    when.window,
    Object.entries(options).sort(),
  ])

/** Returns the kind of a plan: its fault types as text. */
export const kindOf = (genome: Genome): string => genome.map(({ type }) => type).join(' + ')

/** Returns true if a plan has all fault types of another plan; it may have more types. */
export const holdsTypesOf = (genome: Genome, other: Genome): boolean =>
  other.every(({ type }) => genome.some((gene) => gene.type === type))

/** Returns faults as in a plan. Draws are keyed by fault name, so adding other faults changes no draw. */
export const writtenFaults = (genome: Genome): Json[] =>
  genome.map(({ type, match, rate, when, options }) => ({
    name: type,
    type,
    rate,
    ttl: TTL,
    maxConcurrent: MOST_HELD,
    ...(match.server !== undefined && { match }),
    ...(Object.keys(when).length > 0 && { when }),
    ...options,
  }))

/** Returns faults armed for a whole run, or the reason why the plan is not allowed. */
export function faultsOf(genome: Genome): readonly Fault[] | string {
  const parsed = chaos.safeParse({ faults: writtenFaults(genome) })
  if (!parsed.success) return parsed.error.issues[0]?.message ?? 'invalid'
  return parsed.data.faults.map((fault) => ({ ...fault, ttl: Infinity }))
}

/**
 * Returns a random individual with 1 fault (half of the time) or 2 to 4 faults. The first fault has the given type, the
 * others any type.
 */
export function randomGenome(space: PlanSpace, draw: Draw, type = pick(typeNames, draw)): Genome {
  const others = draw() < 0.5 ? 0 : 1 + Math.floor(draw() * (MOST_FAULTS - 1))
  return genomeOf([
    randomGene(type, space, draw),
    ...Array.from({ length: others }, () => randomGene(pick(typeNames, draw), space, draw)),
  ])
}

function randomGene(type: string, space: PlanSpace, draw: Draw): Gene {
  const own = Object.entries(types[type]!).map(([name, choice]) => [name, choice(draw)] as const)
  return {
    type,
    match: randomMatch(space, draw),
    rate: significant(LEAST_RATE ** draw()),
    when: {
      ...(draw() < RARELY && { burst: randomBurst(draw) }),
      ...(draw() < RARELY && { window: randomWindow(space, draw) }),
    },
    options: { ...Object.fromEntries(own), ...(draw() < RARELY && { sticky: true }) },
  }
}

function randomMatch({ tools }: PlanSpace, draw: Draw): Gene['match'] {
  const [server = '', tool = ''] = pick(tools, draw).split('/')
  return pick([{}, { server }, { server, tool }], draw)
}

/** Returns a random burst. Some bursts contradict some rates; the schema then refuses the plan. */
const randomBurst = (draw: Draw) => ({
  meanLength: pick([2, 4, 8, 16], draw),
  per: pick(['slot', 'call'] as const, draw),
})

function randomWindow({ spanMs }: PlanSpace, draw: Draw) {
  const from = Math.floor(draw() * spanMs)
  return { from, to: from + Math.max(1, significant(draw() * spanMs)) }
}

/** Returns a child of two individuals by uniform crossover: keeps each fault of either parent with probability 1/2. */
export function crossed(one: Genome, other: Genome, draw: Draw): Genome {
  const taken = genomeOf([...one, ...other].filter(() => draw() < 0.5))
  return taken.length === 0 ? one : taken.slice(0, MOST_FAULTS)
}

/**
 * Divides all rates by √(1 + excess). This is a compromise: if every injection fails a call, a larger divisor is right;
 * if retries mend most faults, a smaller one.
 */
export const milder = (genome: Genome, excess: number): Genome =>
  genome.map((gene) => ({
    ...gene,
    rate: Math.max(LEAST_RATE, significant(gene.rate / Math.sqrt(1 + excess))),
  }))

type Mutation = (genome: Genome, at: number, space: PlanSpace, draw: Draw) => readonly Gene[]

const changing =
  (change: (gene: Gene, space: PlanSpace, draw: Draw) => Partial<Gene>): Mutation =>
  (genome, at, space, draw) =>
    genome.with(at, { ...genome[at]!, ...change(genome[at]!, space, draw) })

const rate = changing(({ rate }, _, draw) => ({
  // Multiplies the rate by a factor of up to 32, usually a small one: most steps towards the boundary must be small.
  rate: Math.min(1, Math.max(LEAST_RATE, significant(rate * 32 ** ((2 * draw() - 1) ** 3)))),
}))

const target = changing((_, space, draw) => ({ match: randomMatch(space, draw) }))

const time = changing(({ when: { burst, window } }, space, draw) => {
  if (draw() < 0.5)
    return { when: { ...(window && { window }), ...(burst === undefined && { burst: randomBurst(draw) }) } }
  return {
    when: { ...(burst && { burst }), ...(window === undefined && { window: randomWindow(space, draw) }) },
  }
})

const option = changing(({ type, options }, _, draw) => {
  const { sticky, ...own } = options
  const name = pick(['sticky', ...Object.keys(types[type]!)], draw)
  if (name === 'sticky') return { options: sticky === true ? own : { ...own, sticky: true } }
  return { options: { ...options, [name]: types[type]![name]!(draw) } }
})

const exchange: Mutation = (genome, at, space, draw) =>
  genome.with(at, randomGene(pick(typeNames, draw), space, draw))

const drop: Mutation = (genome, at) => (genome.length === 1 ? genome : genome.toSpliced(at, 1))

const add: Mutation = (genome, _, space, draw) =>
  genome.length === MOST_FAULTS ? genome : [...genome, randomGene(pick(typeNames, draw), space, draw)]

/** The possible mutations. An entry that occurs several times is chosen more often. */
const mutations: readonly Mutation[] = [
  rate,
  rate,
  rate,
  rate,
  target,
  time,
  option,
  option,
  exchange,
  drop,
  add,
]

export function mutated(genome: Genome, space: PlanSpace, draw: Draw): Genome {
  const at = Math.floor(draw() * genome.length)
  return genomeOf(pick(mutations, draw)(genome, at, space, draw))
}

/** Draws a time in milliseconds, log-uniformly. */
function ms(from: Millis, to: Millis): (draw: Draw) => Millis {
  return (draw) => Math.round(significant(from * (to / from) ** draw()))
}

function oneOf<Value>(...values: readonly Value[]): (draw: Draw) => Value {
  return (draw) => pick(values, draw)
}

export function pick<Value>(values: readonly Value[], draw: Draw): Value {
  return values[Math.floor(draw() * values.length)]!
}

/** Rounds to two digits, so plans are easy to read and often equal. */
export const significant = (value: number): number => Number(value.toPrecision(2))
