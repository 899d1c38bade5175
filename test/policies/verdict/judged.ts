import { verdictOf } from '../../../src/mesh/classify.ts'
import type { Outcome } from '../../../src/mesh/call.ts'
import type { MeshEvent, ToolDefinition } from '../../../src/mesh/policy.ts'
import { verdict } from '../../../src/policies/verdict.ts'
import { toolCall } from '../../support/caller.ts'
import { testPolicyContext, testScope } from '../../support/policy-context.ts'
import { ManualClock } from '../../support/manual-clock.ts'

type Result = Readonly<Record<string, unknown>>

/** Returns an outcome with this result, as a transport hands results on. */
export function answered(result: Result): Outcome {
  const value = { jsonrpc: '2.0', id: 1, result }
  return {
    kind: 'answered',
    result: { text: JSON.stringify(value), value, status: 200 },
    verdict: verdictOf(value),
  }
}

export const textResult = (text: string): Result => ({ content: [{ type: 'text', text }] })

/** A result with one text block of JSON. */
export const jsonResult = (value: unknown): Result => textResult(JSON.stringify(value))

/** A result with structured content alone. */
export const structured = (structuredContent: unknown): Result => ({ content: [], structuredContent })

/** The policy around a tool with scripted results. */
export function setUp(settings: object = {}, tool: Partial<ToolDefinition> | undefined = {}) {
  const clock = new ManualClock()
  const events: MeshEvent[] = []
  const context = testPolicyContext(clock, events)
  let facts: ToolDefinition | undefined =
    tool === undefined ? undefined : { inputSchema: {}, outputSchema: undefined, fingerprint: 'a', ...tool }
  const scope = testScope({ facts: () => facts })
  const layer = verdict.build(verdict.schema.parse(settings), context, scope)
  const judgeOutcome = (outcome: Outcome, args: Result = {}) =>
    layer(() => Promise.resolve(outcome))(toolCall('tool', args))
  const judge = (result: Result, args: Result = {}) => judgeOutcome(answered(result), args)
  const verdictOn = (result: Result, args: Result = {}) =>
    judge(result, args).then((outcome) => (outcome.kind === 'answered' ? outcome.verdict : outcome.kind))
  const partialOf = (result: Result, args: Result = {}) =>
    judge(result, args).then((outcome) => (outcome.kind === 'answered' ? outcome.partial : undefined))
  /** Judges the same result several times. */
  const repeat = async (times: number, result: Result, args: Result = {}) => {
    for (let i = 0; i < times; i++) await judge(result, args)
  }
  const change = (changed: Partial<ToolDefinition>) => {
    facts = { inputSchema: {}, outputSchema: undefined, fingerprint: 'b', ...changed }
  }
  return { clock, events, context, layer, judge, judgeOutcome, verdictOn, partialOf, repeat, change }
}
