/** Text that is HTML already. Only `markup` and `trusted` make it, so that whatever else is put into HTML is escaped. */
export class Markup {
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}

/** A part of a template: text and numbers are escaped, undefined is nothing. */
export type Part = string | number | undefined | Markup | readonly Markup[]

/** A template of HTML, all parts of which are escaped, for text and for attributes in double quotes. */
export function markup(strings: TemplateStringsArray, ...parts: readonly Part[]): Markup {
  return new Markup(strings.map((text, at) => (at < parts.length ? text + textOf(parts[at]) : text)).join(''))
}

/** Returns text as HTML, style or script, not escaped. The text never comes from a config or an agent. */
export const trusted = (text: string): Markup => new Markup(text)

/** Data for a script, as JSON in which nothing ends the script, begins a comment, or is no text to a script. */
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
