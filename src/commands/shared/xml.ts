import { hasUnprintable, printable } from '../../telemetry/printable.ts'

/** Longest text of an attribute or element, in characters. */
const LONGEST = 2_000

const entities: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&apos;',
}

/** Escapes a text for XML 1.0, which cannot hold control characters: they are written as `\u001b`. */
export function escaped(text: string): string {
  const shown = hasUnprintable(text) || text.length > LONGEST ? printable(text, LONGEST) : text
  return shown
    .replace(/[\p{Surrogate}\ufffe\uffff]/gu, '\ufffd')
    .replace(/[&<>"']/g, (found) => entities[found] ?? found)
}

export type Attributes = Readonly<Record<string, string | number | undefined>>

/** Returns an XML element; each text of `inside` is XML and gets its own line. */
export function element(name: string, attributes: Attributes, inside: readonly string[] = []): string {
  const written = Object.entries(attributes).flatMap(([key, value]) =>
    value === undefined ? [] : [` ${key}="${escaped(String(value))}"`],
  )
  const start = `<${name}${written.join('')}`
  if (inside.length === 0) return `${start}/>`
  const indented = inside.map((part) => part.replace(/^/gm, '  '))
  return `${start}>\n${indented.join('\n')}\n</${name}>`
}

/** Returns a duration in seconds, as JUnit's readers expect. */
export const inSeconds = (ms: number): string => (ms / 1_000).toFixed(3)
