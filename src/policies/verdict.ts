import { z } from 'zod'
import type { Call, Layer, Outcome } from '../mesh/call.ts'
import { gatewayError } from '../mesh/errors.ts'
import type { PolicyContext, Policy, Scope } from '../mesh/policy.ts'
import { isObject, paramsOf } from '../protocol/jsonrpc.ts'
import { sharedSchemas } from './state/schemas.ts'
import type { Mismatch } from './state/schemas/mismatch.ts'
import {
  breachOf,
  declaredPartial,
  type ReplyVerdict,
  look,
  type Looks,
  malformedAt,
} from './verdict/judge.ts'
import { ToolMemories, type ToolMemory } from './verdict/memory.ts'

const schema = z
  .strictObject({
    output: z
      .enum(['off', 'report', 'enforce'])
      .default('report')
      .describe(
        "Replies that break their outputSchema or the protocol's form, and text that only claims to be JSON: ignored, counted, or " +
          'turned into errors, which breakers and metrics still count as wrong answers. A schema is compiled while the server works on the first ' +
          'call: an earlier reply is unchecked, unless `output` is `enforce`.',
      ),
    shapes: z
      .boolean()
      .default(true)
      .describe(
        'Whether verdict learns the shape of JSON replies without an outputSchema, and reports a change.',
      ),
    partials: z
      .boolean()
      .default(true)
      .describe(
        'Whether verdict searches replies for missing parts: declared ones, cut JSON, lists shorter than their total, ' +
          'lost cursors, a text that differs from the structured content.',
      ),
  })
  .describe('Judges how good each reply of a tool was.')

type Config = z.output<typeof schema>

const noArguments = {}

/** The mismatch of a reply without structured content, from a tool with an `outputSchema`. */
const absent: readonly Mismatch[] = [
  { path: '/structuredContent', expected: 'is missing', keyword: 'required', limit: undefined },
]

/** Judges how good each reply of a tool was; replies that cannot be judged stay `unchecked`. */
export const verdict: Policy<Config> & { schema: typeof schema } = {
  schema,
  use: 'Keep it in force: correctness metrics and the breaker for wrong answers depend on it. Use `output: enforce` where a wrong reply does more harm than an error, and `shapes: false` for tools whose replies have another shape each time.',
  perAttempt: true,
  events: {
    drift: { about: 'Results of a tool have another shape than all earlier results.' },
    schema_invalid: { about: "Results of a tool break the tool's outputSchema, or the protocol." },
    json_invalid: { about: 'Results of a tool claim to be JSON and are not.' },
  },
  build(config, context, scope): Layer {
    if (config.output === 'off' && !config.shapes && !config.partials) return (next) => next
    const judge = judgeFor(config, context, scope)
    const schemas = sharedSchemas(context)
    let asked: unknown
    /** Starts compiling a new schema while the server works on the first call. */
    const ahead = () => {
      const outputSchema = scope.facts()?.outputSchema
      if (outputSchema === asked || config.output === 'off') return
      asked = outputSchema
      schemas.find(outputSchema, 'reply')
    }
    if (config.output !== 'enforce')
      return (next) => (call) => {
        if (call.tool === undefined) return next(call)
        ahead()
        return next(call).then((outcome) => judge(call, outcome))
      }
    return (next) => async (call) => {
      if (call.tool === undefined) return next(call)
      // Compiling runs while the server works on the call.
      const pending = schemas.settled(scope.facts()?.outputSchema, 'reply', call.signal)
      const outcome = await next(call)
      await pending
      return judge(call, outcome)
    }
  },
}

function judgeFor({ output, shapes, partials }: Config, context: PolicyContext, scope: Scope) {
  const { set, server, tool } = scope
  const schemas = sharedSchemas(context)
  const memories =
    tool === undefined
      ? undefined
      : context.state.get({ kind: 'shape', set, server, tool }, () => new ToolMemories())
  const looks: Looks = { json: output !== 'off', partials, shapes }
  const looksAtSchema: Looks = { json: output !== 'off', partials, shapes: false }

  function report({ verdict: type, drift, breach }: ReplyVerdict, memory: ToolMemory | undefined): void {
    const now = context.clock.now()
    if (drift !== undefined && memory?.reportsDrift(drift, now)) {
      const { path, was, now: is } = drift
      context.emit({ type: 'drift', set, server, tool, detail: { path: path.slice(0, 200), was, now: is } })
    }
    if (breach !== undefined && memory?.reportsBreach(now))
      context.emit({ type, set, server, tool, detail: { breach } })
  }

  return (call: Call, outcome: Outcome): Outcome => {
    if (outcome.kind !== 'answered' || outcome.verdict !== 'unchecked') return outcome
    const { result } = outcome.result.value
    if (!isObject(result) || !isFinal(result)) return outcome
    const declared = partials && result._meta !== undefined ? declaredPartial(result) : undefined
    if (declared !== undefined)
      return { kind: 'answered', result: outcome.result, verdict: 'partial_declared', partial: declared }
    const facts = scope.facts()
    const memory = facts && memories?.of(facts.fingerprint)
    const outputSchema = facts?.outputSchema
    const check =
      output === 'off' || outputSchema === undefined ? undefined : schemas.find(outputSchema, 'reply')
    const finding =
      check && (result.structuredContent === undefined ? absent : check(result.structuredContent))
    const judgement =
      (output === 'off' ? undefined : malformedAt(result)) ??
      (typeof finding === 'object' && finding[0] !== undefined
        ? breachOf(finding[0], result.structuredContent)
        : look(result, argumentsOf(call), memory, outputSchema === undefined ? looks : looksAtSchema))
    if (judgement === undefined)
      return finding === 'fits' ? { kind: 'answered', result: outcome.result, verdict: 'correct' } : outcome
    report(judgement, memory)
    const { verdict: found, partial, breach } = judgement
    if (output === 'enforce' && breach !== undefined)
      return {
        kind: 'failed',
        error: gatewayError('incorrect_result', breach, { sent: true }),
        verdict: found,
      }
    return partial === undefined
      ? { kind: 'answered', result: outcome.result, verdict: found }
      : { kind: 'answered', result: outcome.result, verdict: found, partial }
  }
}

/** Returns whether a result answers the call; a result may also ask for input, or be a task handle. */
function isFinal({ resultType, task, content }: Readonly<Record<string, unknown>>): boolean {
  if (resultType !== undefined && resultType !== 'complete') return false
  return task === undefined || content !== undefined
}

function argumentsOf({ message }: Call): Readonly<Record<string, unknown>> {
  const args = paramsOf(message.value).arguments
  return isObject(args) ? args : noArguments
}
