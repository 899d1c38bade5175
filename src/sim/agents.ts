import { isDeepStrictEqual } from 'node:util'
import type { Outcome } from '../mesh/call.ts'
import { resultOf } from '../mesh/classify.ts'
import { isObject } from '../protocol/jsonrpc.ts'
import { PARTIAL_KEY } from '../protocol/meta.ts'
import type { Json, SimulatedServer } from './servers.ts'

/**
 * How a task ended. `failed_safely`: the agent knows there is no answer and says so. `failed_silently`: the agent
 * continued with a wrong value without noticing.
 */
export const taskEnds = ['succeeded', 'failed_safely', 'failed_silently'] as const
export type TaskEnd = (typeof taskEnds)[number]

export interface Step {
  readonly server: string
  readonly tool: string
  readonly args: Json
}

/**
 * An agent's reaction to the outcome of a call: takes the value, calls again, gives up the task, or continues without a
 * value.
 */
export type Reaction = { readonly value: unknown } | 'again' | 'give_up' | 'go_on'

export interface AgentModel {
  readonly about: string
  /** `tries`: number of calls for this step so far, from 1. */
  react(outcome: Outcome, step: Step, tries: number, server: SimulatedServer): Reaction
}

/** Maximum number of calls that a checking agent makes for a step. */
const MOST_TRIES = 3

/**
 * The two kinds of agents. Neither knows the true answer, so a wrong number in place of the right number deceives both.
 */
export const agents = {
  naive: {
    about: 'takes any reply without an error as the answer',
    react(outcome) {
      const result = resultIn(outcome)
      return result === undefined ? 'give_up' : { value: valueOf(result) }
    },
  },
  checking: {
    about: `takes a complete answer with the shape promised by the tool and the arguments of the call; asks up to ${MOST_TRIES} times, then gives up`,
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
 * An agent like `naive` that makes all its calls even after failures. Studies that measure calls use it, because ended
 * tasks would make no further calls.
 */
export const thorough: AgentModel = {
  about: 'makes all its calls, even after failures',
  react(outcome) {
    const reaction = agents.naive.react(outcome)
    return reaction === 'give_up' ? 'go_on' : reaction
  },
}

function resultIn(outcome: Outcome): Json | undefined {
  if (outcome.kind !== 'answered' || resultOf(outcome) !== 'returned') return undefined
  const { wire } = outcome
  if (wire?.end !== undefined || (wire?.status ?? 200) >= 400) return undefined
  const { result } = outcome.result.value
  return isObject(result) && result.isError !== true ? result : undefined
}

/** Returns the structured content of a result, or else its content. */
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

/** Returns the name of a value's type in JSON Schema. */
const typeOf = (value: unknown): string => (Array.isArray(value) ? 'array' : typeof value)

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
