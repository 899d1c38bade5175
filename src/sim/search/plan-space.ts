import { chaos } from '../../chaos/plan/schema.ts'
import type { Fault } from '../../chaos/plan/common.ts'
import type { Millis } from '../../mesh/clock.ts'
import type { Json } from '../servers.ts'

/** A source of numbers in [0, 1). */
export type Draw = () => number

/** When a fault comes into question, as a plan says it. */
export interface When {
  readonly burst?: { readonly meanLength: number; readonly per: 'slot' | 'call' }
  readonly window?: { readonly from: Millis; readonly to: Millis }
}

/** One fault of an individual: what a plan says of it, but for what is the same for all. */
export interface Gene {
  readonly type: string
  /** Neither names nor globs: every call. */
  readonly match: { readonly server?: string; readonly tool?: string }
  readonly rate: number
  readonly when: When
  /** Fields of the type, and `sticky`. */
  readonly options: Json
}

/** An individual: 1 to 4 faults of different types, in the order of their names. */
export type Genome = readonly Gene[]

export const MOST_FAULTS = 4

/** The tools and the time span that individuals are made for. */
export interface PlanSpace {
  /** Tools as `server/tool`. */
  readonly tools: readonly string[]
  /** How long a run without faults takes: windows lie within it. */
  readonly spanMs: Millis
}

/** Draws a value of a field. */
type Choice = (draw: Draw) => unknown

/** The types that change what becomes of a simulated tool call, with the fields that are drawn. */
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
          // Nobody says that the second is the longer one: the schema refuses it then.
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

/** Their names. */
export const typeNames = Object.keys(types)

/** The lowest rate. They are drawn from here to 1, each order of magnitude as likely as any other. */
export const LEAST_RATE = 0.001

/** How likely a new fault has a burst, a window, or meets retries again. */
const RARELY = 0.25

/** Calls that a fault holds at most: far more than there are at a time, so that its rate alone limits it. */
const MOST_HELD = 1_000

/** As long as a gateway allows unless it says otherwise. */
const TTL = '1h'

/** An individual of these faults; of two of a type, the latter. */
export function genomeOf(genes: readonly Gene[]): Genome {
  const byType = new Map(genes.map((gene) => [gene.type, gene]))
  return [...byType.values()].sort((one, other) => (one.type < other.type ? -1 : 1))
}

/** The same text for the same plan, however it came about. */
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

/** Returns the kind of a plan: its types. */
export const kindOf = (genome: Genome): string => genome.map(({ type }) => type).join(' + ')

/** Whether a plan has all types of another one, and maybe more. */
export const holdsTypesOf = (genome: Genome, other: Genome): boolean =>
  other.every(({ type }) => genome.some((gene) => gene.type === type))

/** Its faults as a plan has them. Draws go by name, and so meet the same calls when others come and go. */
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

/** Its faults as they are armed for a whole run; or, where a plan must not be like that, why. */
export function faultsOf(genome: Genome): readonly Fault[] | string {
  const parsed = chaos.safeParse({ faults: writtenFaults(genome) })
  if (!parsed.success) return parsed.error.issues[0]?.message ?? 'invalid'
  return parsed.data.faults.map((fault) => ({ ...fault, ttl: Infinity }))
}

/** One fault half of the time, or up to 4; the first one of this type, the others of any. */
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

/** All servers, one of them, or one tool. */
function randomMatch({ tools }: PlanSpace, draw: Draw): Gene['match'] {
  const [server = '', tool = ''] = pick(tools, draw).split('/')
  return pick([{}, { server }, { server, tool }], draw)
}

/** Not every burst allows every rate: the schema refuses what contradicts itself. */
const randomBurst = (draw: Draw) => ({
  meanLength: pick([2, 4, 8, 16], draw),
  per: pick(['slot', 'call'] as const, draw),
})

function randomWindow({ spanMs }: PlanSpace, draw: Draw) {
  const from = Math.floor(draw() * spanMs)
  return { from, to: from + Math.max(1, significant(draw() * spanMs)) }
}

/** Uniform crossover: each fault of either parent is taken or left. */
export function crossed(one: Genome, other: Genome, draw: Draw): Genome {
  const taken = genomeOf([...one, ...other].filter(() => draw() < 0.5))
  return taken.length === 0 ? one : taken.slice(0, MOST_FAULTS)
}

/** The same with all rates lower by the square root of how far beyond it is: less than that where each fault counts once, more where retries mend most. */
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
  // Mostly a little, and by a factor of 32 at most: the boundary is approached in small steps, and not only in these.
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

/** Each as often as it stands here. */
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

/** One thing about it is another. */
export function mutated(genome: Genome, space: PlanSpace, draw: Draw): Genome {
  const at = Math.floor(draw() * genome.length)
  return genomeOf(pick(mutations, draw)(genome, at, space, draw))
}

/** A time in milliseconds, each order of magnitude as likely as any other. */
function ms(from: Millis, to: Millis): (draw: Draw) => Millis {
  return (draw) => Math.round(significant(from * (to / from) ** draw()))
}

function oneOf<Value>(...values: readonly Value[]): (draw: Draw) => Value {
  return (draw) => pick(values, draw)
}

export function pick<Value>(values: readonly Value[], draw: Draw): Value {
  return values[Math.floor(draw() * values.length)]!
}

/** To two digits, so that plans read well and meet again. */
export const significant = (value: number): number => Number(value.toPrecision(2))
