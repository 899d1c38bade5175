import { isDeepStrictEqual } from 'node:util'
import type { Outcome } from '../mesh/call.ts'
import { resultOf } from '../mesh/classify.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { PARTIAL_KEY } from '../protocol/meta.ts'
import type { Json, SimulatedServer } from './servers.ts'

/**
 * How a task ended. `failed_safely`: its agent knows that it has no answer, and says so. `failed_silently`: it went on with a
 * value that is wrong, and nobody knows.
 */
export const taskEnds = ['succeeded', 'failed_safely', 'failed_silently'] as const
export type TaskEnd = (typeof taskEnds)[number]

/** One call that a task is made of. */
export interface Step {
  readonly server: string
  readonly tool: string
  readonly args: Json
}

/** An agent's reaction to the outcome of a call: takes a value, asks again, gives the task up, or goes on without a value. */
export type Reaction = { readonly value: unknown } | 'again' | 'give_up' | 'go_on'

/** A way to deal with replies. */
export interface AgentModel {
  readonly about: string
  /** `tries`: how often this step has been called by now, from 1. */
  react(outcome: Outcome, step: Step, tries: number, server: SimulatedServer): Reaction
}

/** How often a checking agent calls for one step at most. */
const MOST_TRIES = 3

/** The agents that there are. Neither knows the true answer: a wrong number where a number belongs deceives both. */
export const agents = {
  naive: {
    about: 'takes whatever is no error for the answer',
    react(outcome) {
      const result = resultIn(outcome)
      return result === undefined ? 'give_up' : { value: valueOf(result) }
    },
  },
  checking: {
    about: `takes an answer that is whole, has the shape that the tool promises and names what it was asked; asks up to ${MOST_TRIES} times, then gives up`,
    react(outcome, step, tries, server) {
      const result = resultIn(outcome)
      if (result !== undefined && isPlausible(outcome, result, step, server))
        return { value: valueOf(result) }
      return tries < MOST_TRIES ? 'again' : 'give_up'
    },
  },
} satisfies Readonly<Record<string, AgentModel>>

export type AgentKind = keyof typeof agents

/**
 * Takes what a naive agent takes, and gives nothing up: for measuring calls, of which tasks that end early would make fewer the
 * more of them fail.
 */
export const thorough: AgentModel = {
  about: 'makes all of its calls, whatever comes of them',
  react(outcome) {
    const reaction = agents.naive.react(outcome)
    return reaction === 'give_up' ? 'go_on' : reaction
  },
}

/** A result that says nothing of an error. */
function resultIn(outcome: Outcome): Json | undefined {
  if (outcome.kind !== 'answered' || resultOf(outcome) !== 'returned') return undefined
  const { wire } = outcome
  if (wire?.end !== undefined || (wire?.status ?? 200) >= 400) return undefined
  const { result } = outcome.result.value
  return isObject(result) && result.isError !== true ? result : undefined
}

/** Returns the value that an agent reads: the structured content, or else the text. */
const valueOf = ({ structuredContent, content }: Json): unknown => structuredContent ?? content

function isPlausible(outcome: Outcome, result: Json, { tool, args }: Step, server: SimulatedServer): boolean {
  const isFlagged = isObject(result._meta) && PARTIAL_KEY in result._meta
  if (outcome.kind !== 'answered' || outcome.partial !== undefined || isFlagged) return false
  const content = result.structuredContent
  if (!isObject(content)) return false
  const schema = server.facts(tool)?.outputSchema
  const properties = isObject(schema) && isObject(schema.properties) ? schema.properties : {}
  const hasShape = Object.entries(properties).every(
    ([name, property]) => isObject(property) && typeOf(content[name]) === property.type,
  )
  return (
    hasShape &&
    Object.entries(args).every(([name, asked]) => !(name in properties) || content[name] === asked)
  )
}

/** The type of a value, as a JSON Schema calls it. */
const typeOf = (value: unknown): string => (Array.isArray(value) ? 'array' : typeof value)

/** Whether a value that an agent took is the true one. */
export function isTrue(
  outcome: Outcome,
  value: unknown,
  { tool, args }: Step,
  server: SimulatedServer,
): boolean {
  if (outcome.kind !== 'answered') return false
  if (server.answered(outcome.result, tool, args)) return true
  return isDeepStrictEqual(value, server.truth(tool, args))
}
