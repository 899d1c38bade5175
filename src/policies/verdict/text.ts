import { isObject } from '../../protocol/jsonrpc.ts'

/** Longest text that is read as JSON, in characters. */
const MAX_TEXT = 256 * 1024

/** The text of the first block of a result's content, when that is text; undefined otherwise. */
export function firstText(content: unknown): string | undefined {
  if (!Array.isArray(content)) return undefined
  const block: unknown = content[0]
  return isObject(block) && block.type === 'text' && typeof block.text === 'string' ? block.text : undefined
}

/** Whether a text begins as JSON objects and lists do, and is short enough to be read. */
export function beginsLikeJson(text: string): boolean {
  let at = 0
  let unit = text.charCodeAt(0)
  while (unit === 0x20 || unit === 0x0a || unit === 0x0d || unit === 0x09) unit = text.charCodeAt(++at)
  return (unit === 0x7b || unit === 0x5b) && text.length <= MAX_TEXT
}

/** Whether a text begins as nothing but JSON does; a link, a log line and a template do not. */
export function isSurelyJson(text: string): boolean {
  return /^\s*(?:\{\s*"|\[\s*(?:\{\s*"|\[|"|-?\d+(?:\.\d+)?\s*,))/.test(text)
}
