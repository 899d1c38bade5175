/** A text that is HTML. Only this module constructs such texts, so all other text in HTML gets escaped. */
export class Markup {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

/** Text and numbers are escaped; undefined gives nothing. */
export type Part = string | number | undefined | Markup | readonly Markup[]

/** Template tag for HTML. Escapes all parts, for text and for attributes in double quotes. */
export function markup(strings: TemplateStringsArray, ...parts: readonly Part[]): Markup {
  return new Markup(strings.map((text, at) => (at < parts.length ? text + textOf(parts[at]) : text)).join(''))
}

/** Marks text as HTML, style or script, without escaping. Never pass text from a config or an agent. */
export const trusted = (text: string): Markup => new Markup(text)

/** Returns data as JSON for a script element: `<`, `>`, `&` and line separators are escaped. */
export const jsonMarkup = (data: unknown): Markup =>
  new Markup(
    JSON.stringify(data).replace(
      /[<>&\u2028\u2029]/g,
      (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
    ),
  )

function textOf(part: Part): string {
  if (part === undefined) return ''
  if (part instanceof Markup) return part.text
  if (typeof part === 'object') return part.map(textOf).join('')
  return String(part).replace(/[&<>"']/g, (character) => entities[character]!)
}

const entities: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}
