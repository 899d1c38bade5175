import { z } from 'zod'
import type { Call, Outcome } from '../../mesh/call.ts'
import { size } from '../../units/size.ts'
import type { FaultType, Shot } from '../fault.ts'
import { blocksOf, changing, textResult } from './result/change.ts'
import { drift } from './result/drift.ts'
import { stale, wrongEntity } from './result/earlier.ts'
import { errorAsSuccess, isError } from './result/error.ts'
import { partial } from './result/partial.ts'
import { splitBrain } from './result/split.ts'
import { json } from './shared/http.ts'

const emptySchema = z.strictObject({
  form: z
    .enum(['no_content', 'empty_text'])
    .default('no_content')
    .describe('No content block at all, or one whose text is empty.'),
})

const empty: FaultType<z.output<typeof emptySchema>> = {
  schema: emptySchema,
  about: 'A reply with nothing in it.',
  layer: ({ form }, shot) =>
    changing(shot, (result) => {
      const none = { ...textResult(result, ''), ...(form === 'no_content' ? { content: [] } : {}) }
      const structured = result.structuredContent === undefined ? {} : { structuredContent: {} }
      return { result: { ...none, ...structured }, note: { form } }
    }),
}

const oversizeSchema = z.strictObject({
  bytes: size()
    .default(10 * 1024 ** 2)
    .describe('How much longer the reply gets.'),
})

const oversize: FaultType<z.output<typeof oversizeSchema>> = {
  schema: oversizeSchema,
  about: 'A reply that is far too long.',
  layer: ({ bytes }, shot) => {
    const grow = changing(shot, (result) => ({
      result: { ...result, content: [...blocksOf(result), { type: 'text', text: 'x'.repeat(bytes) }] },
      note: { bytes },
    }))
    if (shot.side === 'client') return grow
    // The gateway has to meet it as a server would have sent it: where replies are read, their size has a limit.
    return (next) => (call) =>
      next(call).then((whole) =>
        grow(() => Promise.resolve(whole))(call).then((grown) =>
          grown === whole ? whole : reread(shot, call, grown),
        ),
      )
  },
}

function reread(shot: Shot, call: Call, outcome: Outcome): Outcome {
  if (outcome.kind !== 'answered') return outcome
  const { text, status } = outcome.result
  return shot.reply(call, json(text, status))
}

/** What a reply can be besides right. */
export const resultFaults = {
  'result.is_error': isError,
  'result.error_as_success': errorAsSuccess,
  'result.empty': empty,
  'result.drift': drift,
  'result.partial': partial,
  'result.wrong_entity': wrongEntity,
  'result.stale': stale,
  'result.split_brain': splitBrain,
  'result.oversize': oversize,
} as const
