import { hash } from 'node:crypto'

/** The first 16 hex digits of the SHA-256 of a text. */
export const digest = (text: string): string => hash('sha256', text, 'hex').slice(0, 16)

/** Fields as one text, each with its length in front, so that no two lists of fields run together. */
export function joined(...fields: readonly (string | number)[]): string {
  let text = ''
  for (const field of fields) {
    const own = String(field)
    text += `${text === '' ? '' : ' '}${own.length}:${own}`
  }
  return text
}
