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

/** Where a search is between two generations: with the evaluations, all that it takes to go on. */
export interface SearchState {
  /** Generations that were evaluated. */
  readonly generation: number
  /** The individuals of the next one. */
  readonly population: readonly Genome[]
}

/** Most of a population that lives on as it is: the best individuals of different kinds. */
const ELITE = 1 / 2

/** Most of a population that are outages of the one before, with lower rates: as breeding goes by fitness, they have no children. */
const MILDER = 1 / 4

/** Number of individuals drawn for a parent: the best individual drawn becomes the parent. */
const TOURNAMENT = 2

/** How often a child comes of two parents; otherwise it is one that has changed. */
const CROSSOVER = 0.6

/** How often a child of two parents changes as well. */
const MUTATION = 0.7

/** How often a child that is there already changes again before a random one takes its place. */
const MOST_CHANGES = 3

/**
 * How fit an individual is: the closer to the boundary of the objective the better, and those that violate it by a little before all
 * that meet it, which are before outages. An individual that could not be measured is no good at all.
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

/** The individuals that a search begins with: the types take turns. */
export function firstState(space: PlanSpace, size: number, seed: Seed): SearchState {
  const population = Array.from({ length: size }, (_, at) =>
    randomGenome(space, drawOf(seed, `first ${at}`), typeNames[at % typeNames.length]),
  )
  return { generation: 0, population }
}

/** Evaluates one generation, and makes the next one of it. The draws depend on the seed and the generation alone. */
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
 * The best one of each kind, as far as there is room, but none that holds all types of a better one: a weakness that was found must not
 * crowd out all others, alone or in company.
 */
function elite(scored: readonly Scored[]): Genome[] {
  const kept: Genome[] = []
  for (const { genome, fitness } of scored)
    if (fitness > 0 && !kept.some((better) => holdsTypesOf(genome, better))) kept.push(genome)
  return kept.slice(0, Math.max(1, Math.floor(scored.length * ELITE)))
}

/** The nearest outages, each as much milder as it was beyond. */
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

/** A sequence of draws of its own for each name. */
function drawOf(seed: Seed, name: string): Draw {
  const random = createKeyedRandom(seed)
  let count = 0
  return () => random(name, String(count++))
}
