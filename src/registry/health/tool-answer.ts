import { isDeepStrictEqual } from 'node:util'
import type { ProbeTool } from '../../config/schema/health-schema.ts'
import { isObject } from '../../protocol/jsonrpc.ts'
import { printable, printableWords } from '../../telemetry/printable.ts'
import type { Conceal } from '../../upstreams/server-words.ts'
import type { ProbeFailure } from './probe.ts'

/** How much of an answer a message repeats, in characters. */
const EXCERPT = 100

type Message = Readonly<Record<string, unknown>>

/** What is wrong with the answer to a probe's call; undefined when it is what was expected. */
export function wrongIn(
  { error, result }: Message,
  { name, expect }: ProbeTool,
  conceal: Conceal,
): ProbeFailure | undefined {
  const wrong = (what: string): ProbeFailure => ({
    reason: 'wrong_answer',
    message: `tool ${printable(name, EXCERPT)} ${what}`,
  })
  if (isObject(error))
    return wrong(
      `answered with an error: ${printableWords(typeof error.message === 'string' ? conceal(error.message) : error.message, EXCERPT)}`,
    )
  if (!isObject(result)) return wrong('answered without a result')
  const text = textOf(result)
  if (result.isError === true) return wrong(`failed: ${printable(conceal(text), EXCERPT)}`)
  if (typeof expect === 'string' && !text.includes(expect))
    return wrong(`did not answer with "${printable(expect, EXCERPT)}"`)
  if (typeof expect !== 'object') return undefined
  const { structuredContent } = result
  const differing = isObject(structuredContent)
    ? Object.keys(expect).filter((key) => !holds(structuredContent[key], expect[key]))
    : Object.keys(expect)
  if (differing.length === 0) return undefined
  return wrong(
    `answered with other values of structuredContent than expected: ${printable(differing.join(', '), EXCERPT)}`,
  )
}

/** Whether a value has what is expected of it; a map may have more. */
function holds(value: unknown, expected: unknown): boolean {
  if (!isObject(expected)) return isDeepStrictEqual(value, expected)
  return isObject(value) && Object.keys(expected).every((key) => holds(value[key], expected[key]))
}

function textOf({ content }: Message): string {
  if (!Array.isArray(content)) return ''
  return content
    .map((block: unknown) => (isObject(block) && typeof block.text === 'string' ? block.text : ''))
    .join('\n')
}
