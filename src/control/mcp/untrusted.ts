import { printable } from '../../telemetry/printable.ts'

/** Longest quoted text of a server or agent, in characters. */
const LONGEST = 200

/**
 * Returns a text of a server or agent for a field `untrusted`: short, on one line, without control characters. The text
 * may hold instructions for a model, so no other field quotes such a text.
 */
export const quoted = (text: string): string => printable(text, LONGEST).replaceAll(/\s+/g, ' ')
