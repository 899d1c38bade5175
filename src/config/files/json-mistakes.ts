export interface JsonMistake {
  /** Offset in the text, in characters. */
  readonly offset: number
  /** The message quotes only punctuation of the text, because the rest may be secret. */
  readonly message: string
}

export const isNamedJson = (file: string): boolean => /\.jsonc?$/i.test(file)

/**
 * Returns true if a file is meant as JSON: its name says so, or its text begins with an object. YAML may begin the same
 * way.
 */
export function isJson(file: string, text: string): boolean {
  return isNamedJson(file) || text[skipGap(text, text.startsWith('\uFEFF') ? 1 : 0).end] === '{'
}

const brackets = { '{': { end: '}', name: 'object' }, '[': { end: ']', name: 'list' } } as const

interface Open {
  readonly bracket: '{' | '['
  readonly offset: number
}

/** The expected token: a value, a key or the end of an object, `:`, or `,` and the end of the open bracket. */
type Expected = 'value' | 'key' | 'colon' | 'comma'

/** Returns the first mistake in a JSON text, if any. As in VS Code, comments and a trailing comma are allowed. */
export function jsonMistake(text: string): JsonMistake | undefined {
  const open: Open[] = []
  let expected: Expected = 'value'
  let at = text.startsWith('\uFEFF') ? 1 : 0
  let done = false
  /** The last token, if it was a comma or an opening bracket. */
  let after: 'comma' | 'open' | undefined
  const mistake = (message: string, offset = at): JsonMistake => ({ offset, message })

  for (;;) {
    const gap = skipGap(text, at)
    if (gap.unclosed !== undefined) return mistake('a comment that begins with /* has no */', gap.unclosed)
    at = gap.end
    if (at >= text.length) {
      const { bracket, offset } = open.at(-1) ?? {}
      if (bracket !== undefined)
        return mistake(
          `the file ends, and the ${bracket} of line ${lineOf(text, offset ?? 0)} has no ${brackets[bracket].end}`,
        )
      return done ? undefined : mistake('the file holds nothing')
    }
    const unit = text[at] ?? ''
    if (done) return mistake(`found ${nameOf(text, at)} after the end of the ${brackets['{'].name}`)
    const inside = open.at(-1)
    const isEnd = inside !== undefined && unit === brackets[inside.bracket].end
    if (
      isEnd &&
      (expected === 'comma' ||
        expected === 'key' ||
        (expected === 'value' && after !== undefined && inside.bracket === '['))
    ) {
      open.pop()
      at++
      after = undefined
      expected = 'comma'
      done = open.length === 0
      continue
    }
    switch (expected) {
      case 'comma': {
        if (unit !== ',') return mistake(missingComma(text, at, inside?.bracket ?? '{'))
        expected = inside?.bracket === '{' ? 'key' : 'value'
        after = 'comma'
        at++
        continue
      }
      case 'colon': {
        if (unit !== ':') return mistake(`expected ":" after the key, found ${nameOf(text, at)}`)
        expected = 'value'
        after = undefined
        at++
        continue
      }
      case 'key': {
        if (unit !== '"') return mistake(noKey(text, at))
        const end = stringEnd(text, at)
        if (typeof end !== 'number') return end
        at = end
        expected = 'colon'
        continue
      }
      case 'value': {
        if (unit === '{' || unit === '[') {
          open.push({ bracket: unit, offset: at })
          expected = unit === '{' ? 'key' : 'value'
          after = 'open'
          at++
          continue
        }
        const end = unit === '"' ? stringEnd(text, at) : scalarEnd(text, at)
        if (typeof end !== 'number') return end
        at = end
        after = undefined
        expected = 'comma'
        done = open.length === 0
      }
    }
  }
}

function skipGap(text: string, from: number): { end: number; unclosed?: number } {
  let end = from
  for (;;) {
    while (/[ \t\r\n]/.test(text[end] ?? '')) end++
    if (text.startsWith('//', end)) {
      const line = text.indexOf('\n', end)
      end = line === -1 ? text.length : line
    } else if (text.startsWith('/*', end)) {
      const close = text.indexOf('*/', end + 2)
      if (close === -1) return { end, unclosed: end }
      end = close + 2
    } else return { end }
  }
}

const SIMPLE_ESCAPE = /["\\/bfnrt]/

/** Returns the offset after a string, or the mistake in the string. */
function stringEnd(text: string, from: number): number | JsonMistake {
  for (let at = from + 1; at < text.length; at++) {
    const unit = text[at] ?? ''
    if (unit === '"') return at + 1
    if (unit === '\n' || unit === '\r')
      return { offset: from, message: 'the string that begins here has no " at its end' }
    if (unit < ' ')
      return { offset: at, message: 'found a tab or a control character in a string; write \\t for a tab' }
    if (unit !== '\\') continue
    const escape = text[at + 1] ?? ''
    if (escape === 'u' && /^[0-9a-fA-F]{4}$/.test(text.slice(at + 2, at + 6))) at += 5
    else if (SIMPLE_ESCAPE.test(escape)) at++
    else
      return {
        offset: at,
        message: 'found a lone \\ in a string; write \\\\ for a backslash, or / in a path',
      }
  }
  return { offset: from, message: 'the string that begins here has no " at its end' }
}

const SCALAR = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?![\w.+-])/y

function scalarEnd(text: string, at: number): number | JsonMistake {
  SCALAR.lastIndex = at
  const [scalar] = SCALAR.exec(text) ?? []
  if (scalar !== undefined) return at + scalar.length
  const word = wordAt(text, at)
  if (/^(true|false|null)$/i.test(word))
    return { offset: at, message: `found ${word}; JSON writes ${word.toLowerCase()}, in small letters` }
  if (/^(none|undefined|nan)$/i.test(word)) return { offset: at, message: `found ${word}; JSON writes null` }
  if (/^[,}\]:]/.test(text.slice(at, at + 1)))
    return { offset: at, message: `a value is missing before "${text[at] ?? ''}"` }
  if (/^[-+.\d]/.test(word))
    return { offset: at, message: 'found a number in a form that JSON does not have' }
  return { offset: at, message: `expected a value, found ${nameOf(text, at)}` }
}

function missingComma(text: string, at: number, bracket: '{' | '['): string {
  const { end, name } = brackets[bracket]
  if (text[at] === '"' || text[at] === '{' || text[at] === '[')
    return `expected "," or "${end}", found ${nameOf(text, at)}: the comma after the last entry of the ${name} is missing`
  return `expected "," or "${end}", found ${nameOf(text, at)}`
}

function noKey(text: string, at: number): string {
  if (text[at] === ',') return 'found a second comma in a row'
  return `expected a key in double quotes, found ${nameOf(text, at)}`
}

const wordAt = (text: string, at: number) => /^[\w$.+-]*/.exec(text.slice(at, at + 64))?.[0] ?? ''

/** Describes the token at an offset, without its text. */
function nameOf(text: string, at: number): string {
  const unit = text[at] ?? ''
  if (unit === "'") return 'a single quote; JSON writes "…"'
  if (/[“”„‘’«»]/.test(unit)) return 'a typographic quote; JSON writes "…"'
  if (unit === '`') return 'a backtick; JSON writes "…"'
  if (unit === '"') return 'a string'
  if (unit === '#') return 'a "#"; comments are written // or /* */'
  if (/[{}[\]:,]/.test(unit)) return `"${unit}"`
  if (/[-+.\d]/.test(unit)) return 'a number'
  if (/[\w$]/.test(unit)) return 'a word without quotes'
  return 'a character that means nothing here'
}

function lineOf(text: string, offset: number): number {
  return text.slice(0, offset).split('\n').length
}
