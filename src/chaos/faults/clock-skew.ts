import { z } from 'zod'
import { isObject } from '../../protocol/jsonrpc.ts'
import { duration } from '../../units/duration.ts'
import type { FaultType } from '../fault.ts'
import { shifted } from '../operators/time.ts'
import { blocksOf, changing, textOf } from './tool-result.ts'

/** Matches times in the format of RFC 3339, with optional seconds and zone, outside of longer words and numbers. */
const moment = /(?<![\w.-])\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?(?![\w:])/g

const schema = z.strictObject({
  by: duration({ min: 1 }).default(300_000).describe('How wrong the clock of the server is.'),
  direction: z
    .enum(['ahead', 'behind'])
    .default('ahead')
    .describe('Whether the times in results are later or earlier than the true times.'),
})

/** Shifts all times of a reply by the same amount, so the times still agree with each other. */
export const clockSkew: FaultType<z.output<typeof schema>> = {
  schema,
  family: 'result',
  about: 'The clock of the server is wrong: times in its results are shifted.',
  use: 'To find out how an agent handles times in the future, or data that seems older than it is.',
  seen: 'The same result with other times in the format of RFC 3339; dates without a time and numbers stay.',
  containedBy: {
    policies: [],
    how: 'No schema tells a wrong time from a right time; compare the time with your own clock.',
  },
  sides: ['upstream', 'client'],
  example: { name: 'clock-skew', rate: 0.1, ttl: '10m', match: { server: 'search' }, by: '1h' },
  layer: ({ by, direction }, injection) =>
    changing(injection, (result) => {
      const byMs = direction === 'ahead' ? by : -by
      let times = 0
      const inText = (text: string): string =>
        text.replace(moment, (time) => {
          const moved = Number.isNaN(Date.parse(time)) ? undefined : shifted(time, byMs)
          if (moved === undefined) return time
          times++
          return moved
        })
      const within = (value: unknown): unknown => {
        if (typeof value === 'string') return inText(value)
        if (Array.isArray(value)) return value.map(within)
        if (!isObject(value)) return value
        return Object.fromEntries(Object.entries(value).map(([key, held]) => [key, within(held)]))
      }
      const content = blocksOf(result).map((block) => {
        const text = textOf(block)
        return text === undefined ? block : { ...(block as object), text: inText(text) }
      })
      const skewed = { ...result, content }
      if (result.structuredContent !== undefined)
        Object.assign(skewed, { structuredContent: within(result.structuredContent) })
      return times === 0 ? 'the reply names no point in time' : { result: skewed, note: { byMs, times } }
    }),
}
