import { createKeyedRandom, type Seed } from '../../mesh/keyed-random.ts'
import type { Evaluated, Evaluation, Evaluator } from './evaluation.ts'
import {
  crossed,
  type Draw,
  type Genome,
  keyOf,
  holdsTypesOf,
  milder,
  mutated,
  pick,
  type PlanSpace,
  typeNames,
  randomGenome,
} from './plan-space.ts'

/** A search's state between two generations. Together with the evaluations, it is enough to continue the search. */
export interface SearchState {
  readonly generation: number
  readonly population: readonly Genome[]
}

/** Largest share of a population that is kept unchanged. Keeps the best individuals of different kinds. */
const ELITE = 1 / 2

/**
 * Largest share of a population that is made from outages, with lower rates. The low fitness of outages gives them few
 * children.
 */
const MILDER = 1 / 4

/** Number of individuals drawn to choose a parent. The best of them becomes the parent. */
const TOURNAMENT = 2

/** Probability of a child from two parents; other children are mutations of a single parent. */
const CROSSOVER = 0.6

/** Probability of a mutation after crossover. */
const MUTATION = 0.7

/** Number of further mutations of a duplicate child before a random individual replaces it. */
const MOST_CHANGES = 3

/**
 * Returns an individual's fitness: the closer to the objective's boundary, the better. Slight violations rank before
 * individuals within the objective, and outages last. Unmeasured individuals have the worst fitness.
 */
export function fitnessOf(evaluation: Evaluation): number {
  if (evaluation.status !== 'measured') return 0
  const closeness = 1 / (1 + Math.abs(evaluation.excess))
  switch (evaluation.standing) {
    case 'violating':
      return 2 + closeness
    case 'uncertain':
    case 'within':
      return 1 + closeness
    case 'outage':
      return closeness
  }
}

/** Returns the first generation of random individuals. The fault types take turns. */
export function firstState(space: PlanSpace, size: number, seed: Seed): SearchState {
  const population = Array.from({ length: size }, (_, at) =>
    randomGenome(space, drawOf(seed, `first ${at}`), typeNames[at % typeNames.length]),
  )
  return { generation: 0, population }
}

/**
 * Evaluates a generation, and resolves to the next generation. The draws depend only on the seed and the generation.
 */
export async function advance(
  { generation, population }: SearchState,
  space: PlanSpace,
  evaluator: Evaluator,
  seed: Seed,
): Promise<SearchState> {
  const scored: Scored[] = []
  for (const genome of population) {
    const evaluation = await evaluator.evaluate(genome)
    scored.push({ genome, evaluation, fitness: fitnessOf(evaluation) })
  }
  scored.sort((a, b) => b.fitness - a.fitness || (keyOf(a.genome) < keyOf(b.genome) ? -1 : 1))
  const next = new Map([...elite(scored), ...tamed(scored)].map((genome) => [keyOf(genome), genome]))
  for (let at = next.size; at < population.length; at++) {
    const draw = drawOf(seed, `${generation} ${at}`)
    let child = childOf(scored, space, draw)
    for (let tries = 0; next.has(keyOf(child)); tries++)
      child = tries < MOST_CHANGES ? mutated(child, space, draw) : randomGenome(space, draw)
    next.set(keyOf(child), child)
  }
  return { generation: generation + 1, population: [...next.values()] }
}

interface Scored extends Evaluated {
  readonly fitness: number
}

/**
 * Returns the best individual of each kind, up to the share `ELITE`. Skips individuals that contain all types of a
 * better individual, so variants of one weakness do not displace other weaknesses.
 */
function elite(scored: readonly Scored[]): Genome[] {
  const kept: Genome[] = []
  for (const { genome, fitness } of scored)
    if (fitness > 0 && !kept.some((better) => holdsTypesOf(genome, better))) kept.push(genome)
  return kept.slice(0, Math.max(1, Math.floor(scored.length * ELITE)))
}

/** Returns the outages nearest to the objective, with rates lowered according to their excess. */
function tamed(scored: readonly Scored[]): Genome[] {
  const outages = scored.flatMap(({ genome, evaluation }) =>
    evaluation.status === 'measured' && evaluation.standing === 'outage'
      ? [milder(genome, evaluation.excess)]
      : [],
  )
  return outages.slice(0, Math.floor(scored.length * MILDER))
}

function childOf(scored: readonly Scored[], space: PlanSpace, draw: Draw): Genome {
  const parent = winner(scored, draw)
  if (draw() >= CROSSOVER) return mutated(parent, space, draw)
  const child = crossed(parent, winner(scored, draw), draw)
  return draw() < MUTATION ? mutated(child, space, draw) : child
}

function winner(scored: readonly Scored[], draw: Draw): Genome {
  const drawn = Array.from({ length: TOURNAMENT }, () => pick(scored, draw))
  return drawn.reduce((best, other) => (other.fitness > best.fitness ? other : best)).genome
}

/** Returns a separate sequence of draws for each name. */
function drawOf(seed: Seed, name: string): Draw {
  const random = createKeyedRandom(seed)
  let count = 0
  return () => random(name, String(count++))
}
