import { isDeepStrictEqual } from 'node:util'
import type { Cancellation } from '../mesh/cancel.ts'
import type { Clock, Millis } from '../mesh/clock.ts'
import { createKeyedRandom, type KeyedRandom } from '../mesh/keyed-random.ts'
import { ARM_KEY, INTENT_KEY, STEP_KEY } from '../protocol/task.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { pathOf, resolved, type Scope, Unresolved, valueAt } from './references.ts'
import { kindOf, type Step, type TaskKind, valuesOf, type Workload } from './workload.ts'

/** A tool call as an agent makes it. */
export interface ToolCall {
  readonly name: string
  readonly arguments: Readonly<Record<string, unknown>>
  readonly meta: Readonly<Record<string, unknown>>
}

/** The answer to a call: a result, or a short reason why there is none. */
export type Answer =
  | { readonly ok: true; readonly result: Readonly<Record<string, unknown>> }
  | { readonly ok: false; readonly why: string }

export interface Agent {
  /** Never rejects. */
  call(call: ToolCall): Promise<Answer>
}

/** The result of a task in one arm, as the agent saw it. */
export interface Played {
  readonly outcome: 'succeeded' | 'failed'
  /** Number of calls made. A step is skipped when a step that it needs has failed. */
  readonly calls: number
  /** Calls with the expected answer. */
  readonly right: number
  /** The duration of each call, in milliseconds. */
  readonly durations: readonly Millis[]
  /** Tool and reason of the first failed step. */
  readonly trouble: string | undefined
}

/** A task that was played in both arms, with the result of each arm. */
export interface Twins {
  readonly task: string
  readonly kind: string
  readonly control: Played
  readonly treatment: Played
}

/** The arms, by the names in agents' requests. */
export interface Arms {
  readonly control: string
  readonly treatment: string
}

export type Side = keyof Arms

/** Called at the end of each task in each arm. */
export type Heard = (task: string, side: Side, played: Played) => void

export interface PlayOptions {
  readonly workload: Workload
  /** Number of pairs. */
  readonly tasks: number
  readonly seed: number
  /** Tasks under way at a time, both arms together. */
  readonly concurrency: number
  readonly arms: Arms
  readonly clock: Clock
  /** Returns the exposed name of a step's tool. */
  readonly nameOf: (step: Step) => string
  /** Returns the agent of a place, a number from 0 to `concurrency` - 1. A place has a single task at a time. */
  readonly agentAt: (place: number, side: Side, era: Workload['eras'][number]) => Agent
  /** Ends the run early: pairs with an unfinished task do not count. */
  readonly stop: Cancellation
  readonly onPlayed?: Heard
}

/** Returns the prefix of the names of a run's tasks. */
export const prefixOf = ({ name }: Pick<Workload, 'name'>, seed: number): string => `${name}-${seed}-`

/**
 * Plays each task once in each arm. Twins have the same name, arguments and step numbers, so they meet the same faults.
 * Twins are next to each other in the queue, and their order alternates, so changes over time affect both arms.
 * Resolves to the pairs in order. Never rejects.
 */
export async function playTwins(options: PlayOptions): Promise<readonly Twins[]> {
  const { workload, tasks, seed, concurrency, clock, stop, onPlayed } = options
  const random = createKeyedRandom(seed)
  const half: { kind: string; control?: Played; treatment?: Played }[] = []
  const startedAt = clock.now()
  const spacingMs = workload.arrivals === undefined ? 0 : workload.arrivals.perMs / workload.arrivals.calls
  const prefix = prefixOf(workload, seed)
  let next = 0

  async function work(place: number): Promise<void> {
    while (next < 2 * tasks && !stop.aborted) {
      const turn = next++
      const dueMs = startedAt + turn * spacingMs - clock.now()
      if (dueMs > 0) await clock.sleep(dueMs, stop).catch(() => undefined)
      const n = Math.floor(turn / 2)
      const side: Side = (turn + n) % 2 === 0 ? 'control' : 'treatment'
      const task = `${prefix}${n}`
      const kind = kindOf(workload, task, random)
      const era = workload.eras[Math.floor(random(task, 'era') * workload.eras.length)]!
      const agent = options.agentAt(place, side, era)
      const played = await play({ kind, n, task, side, agent }, random, options)
      if (stop.aborted) return
      const pair = (half[n] ??= { kind: kind.name })
      pair[side] = played
      onPlayed?.(task, side, played)
    }
  }

  await Promise.all(Array.from({ length: concurrency }, (_, place) => work(place)))
  return half.flatMap(({ kind, control, treatment }, n) =>
    control === undefined || treatment === undefined
      ? []
      : { task: `${prefix}${n}`, kind, control, treatment },
  )
}

interface Part {
  readonly kind: TaskKind
  readonly n: number
  readonly task: string
  readonly side: Side
  readonly agent: Agent
}

/** Plays a task in an arm. */
async function play(
  { kind, n, task, side, agent }: Part,
  random: KeyedRandom,
  { arms, clock, nameOf, stop }: PlayOptions,
): Promise<Played> {
  const saved = Object.create(null) as Record<string, unknown>
  const scope: Scope = { n, task, values: valuesOf(kind, task, random), steps: saved }
  const durations: Millis[] = []
  let right = 0
  let trouble: string | undefined
  for (const [index, step] of kind.steps.entries()) {
    if (step.needs.some((need) => !(need in saved))) {
      trouble ??= `${step.tool}: left out`
      continue
    }
    let args: Readonly<Record<string, unknown>>
    let expected: readonly (readonly [string, unknown])[]
    try {
      args = resolved(step.arguments, scope) as Readonly<Record<string, unknown>>
      expected = Object.entries(resolved(step.expect, scope) as object)
    } catch (error) {
      if (!(error instanceof Unresolved)) throw error
      trouble ??= `${step.tool}: ${error.message}`
      continue
    }
    if (step.think > 0) await clock.sleep(step.think, stop).catch(() => undefined)
    if (stop.aborted) break
    const meta = { [INTENT_KEY]: task, [STEP_KEY]: index, [ARM_KEY]: arms[side] }
    const startedAt = clock.now()
    const answer = await agent.call({ name: nameOf(step), arguments: args, meta })
    durations.push(clock.now() - startedAt)
    const wrong = answer.ok ? wrongIn(answer.result, expected) : answer.why
    if (wrong !== undefined) trouble ??= `${step.tool}: ${wrong}`
    else {
      right++
      saved[step.save ?? `step ${index}`] = answer.ok ? answer.result : undefined
    }
  }
  const wanted = kind.succeeds === 'every' ? undefined : kind.succeeds
  const isGood = wanted === undefined ? right === kind.steps.length : wanted.every((name) => name in saved)
  return { outcome: isGood ? 'succeeded' : 'failed', calls: durations.length, right, durations, trouble }
}

/** Returns the problem with a result in a few words; undefined when there is none. */
function wrongIn(
  result: Readonly<Record<string, unknown>>,
  expected: readonly (readonly [string, unknown])[],
): string | undefined {
  if (result.isError === true) return `error: ${textOf(result)}`
  const other = expected.find(
    ([path, value]) => !isDeepStrictEqual(valueAt(result, pathOf(path) ?? []), value),
  )
  return other && `not the expected ${other[0]}`
}

/** Returns the beginning of a result's text, for messages. */
function textOf({ content }: Readonly<Record<string, unknown>>): string {
  const block: unknown = Array.isArray(content) ? content[0] : undefined
  return isObject(block) && typeof block.text === 'string' ? block.text.slice(0, 120) : 'without a text'
}
