import type { Exceeded } from '../../approval/envelope.ts'
import { printable } from '../../telemetry/printable.ts'

/** Longest quoted text of a server or agent, in characters. */
const LONGEST = 200

/**
 * Returns a text of a server or agent for a field `untrusted`: short, on one line, without control characters. The text
 * may hold instructions for a model, so no other field quotes such a text.
 */
export const quoted = (text: string): string => quotedUpTo(LONGEST, text)

/** As `quoted`, with another longest text, in characters. */
export const quotedUpTo = (most: number, text: string): string =>
  printable(text, most).replaceAll(/\s+/g, ' ')

/** Most exceeded limits in an answer. */
const MOST_EXCEEDED = 8

/** Longest text of an exceeded limit, in characters. */
const LONGEST_LIMIT = 160

/** Returns exceeded limits for an answer. */
export const shownExceeded = (exceeded: readonly Exceeded[]) =>
  exceeded.slice(0, MOST_EXCEEDED).map(({ limit, allowed, asked, untrusted }) => ({
    limit,
    allowed: allowed.slice(0, LONGEST_LIMIT),
    asked: asked.slice(0, LONGEST_LIMIT),
    ...(untrusted !== undefined && { untrusted: { tool: quoted(untrusted.tool) } }),
  }))
