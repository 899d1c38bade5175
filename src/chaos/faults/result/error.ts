import { z } from 'zod'
import type { Call, Outcome } from '../../../mesh/call.ts'
import { parseJson, resultText } from '../../../protocol/jsonrpc.ts'
import { ENDED, resultIn, type FaultType, type Shot } from '../../fault.ts'
import { changing, textResult } from './change.ts'

const isErrorSchema = z.strictObject({
  text: z.string().min(1).default('The request could not be completed.').describe('What the error says.'),
})

/** The tool has run: only its answer is another one. */
export const isError: FaultType<z.output<typeof isErrorSchema>> = {
  schema: isErrorSchema,
  about: 'The tool says that it failed.',
  layer: ({ text }, shot) =>
    changing(shot, (result) => ({ result: { ...textResult(result, text), isError: true }, note: { text } })),
}

const errorAsSuccessSchema = z.strictObject({
  of: z
    .enum(['errors', 'every_reply'])
    .default('errors')
    .describe(
      '`errors`: what went wrong is told as a success. `every_reply`: a good reply gives way to the words of an ' +
        'error, which is not marked as one.',
    ),
  text: z.string().optional().describe('What the reply says; without it, `OK`, or the words of an error.'),
})

export const errorAsSuccess: FaultType<z.output<typeof errorAsSuccessSchema>> = {
  schema: errorAsSuccessSchema,
  about: 'An error that looks like a success.',
  layer: ({ of, text }, shot) => {
    const ofGood = changing(shot, (result) =>
      of === 'errors'
        ? 'the reply is no error'
        : { result: textResult(result, text ?? 'Error: the request failed'), note: { was: 'a good reply' } },
    )
    return (next) => (call) =>
      next(call).then((outcome) => {
        const was = errorIn(outcome)
        if (was === undefined) return ofGood(() => Promise.resolve(outcome))(call)
        if (shot.released.aborted || call.signal.aborted) {
          shot.notApplicable(shot.released.aborted ? ENDED : 'the call was aborted')
          return outcome
        }
        shot.note({ was })
        return shot.change(answer(call, outcome), textResult(envelope(call, outcome, shot), text ?? 'OK'))
      })
  },
}

/** What kind of error it is; undefined for none. */
function errorIn(outcome: Outcome): string | undefined {
  if (outcome.kind !== 'answered') return outcome.error.reason
  if (outcome.verdict === 'rpc_error') return 'rpc_error'
  return resultIn(outcome)?.isError === true ? 'tool_error' : undefined
}

/** The outcome when it was an answer, or else an empty answer in its place. */
function answer(call: Call, outcome: Outcome): Outcome {
  if (outcome.kind === 'answered') return outcome
  const text = resultText(call.id, '{}')
  return {
    kind: 'answered',
    result: { text, value: parseJson(text) as Record<string, unknown>, status: 200 },
    verdict: 'unchecked',
  }
}

/** What a result says besides its content; every result of a modern server says that it is complete. */
function envelope(call: Call, outcome: Outcome, shot: Shot): Readonly<Record<string, unknown>> {
  const modern = shot.world.kindOf(call)?.era === 'modern'
  return resultIn(outcome) ?? (modern ? { resultType: 'complete' } : {})
}
