/**
 * How a text that `JSON.parse` refuses comes to be no JSON: `cut` is the beginning of some JSON text, `more` a
 * complete value with something behind it (lines of JSON, a note), `broken` is wrong in the middle.
 */
export type JsonEnd = 'cut' | 'more' | 'broken'

const space = /[ \t\n\r]*/y
const string = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y
const scalar = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)/y

/** Beginnings of strings and scalars that go on where the text ends. */
const begunString =
  /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*(?:\\(?:u[0-9a-fA-F]{0,3})?)?$/y
const begunScalar = /(?:t(?:ru?)?|f(?:a(?:ls?)?)?|n(?:ul?)?|-|-?(?:0|[1-9]\d*)(?:\.|(?:\.\d+)?[eE][+-]?))$/y

/** Reads a text that begins with `{` or `[` and that `JSON.parse` refuses. */
export function jsonEnd(text: string): JsonEnd {
  const open: string[] = []
  let at = 0
  /** What may come: a value, a key, the colon after one, or what follows a value. */
  let expected: 'value' | 'key' | 'colon' | 'next' = 'value'
  /** Whether the bracket that was opened last may close at once. */
  let fresh = false

  const take = (pattern: RegExp): boolean => {
    pattern.lastIndex = at
    if (!pattern.test(text)) return false
    at = pattern.lastIndex
    return true
  }

  for (;;) {
    take(space)
    if (expected === 'next' && open.length === 0) return 'more'
    const unit = text[at]
    if (unit === undefined) return 'cut'
    const closes = open.at(-1) === '{' ? '}' : ']'
    if (unit === closes && open.length > 0 && (expected === 'next' || fresh)) {
      open.pop()
      at++
      expected = 'next'
    } else if (expected === 'next') {
      if (unit !== ',') return 'broken'
      at++
      expected = open.at(-1) === '{' ? 'key' : 'value'
    } else if (expected === 'colon') {
      if (unit !== ':') return 'broken'
      at++
      expected = 'value'
    } else if (expected === 'key') {
      if (!take(string)) return take(begunString) ? 'cut' : 'broken'
      expected = 'colon'
    } else if (unit === '{' || unit === '[') {
      open.push(unit)
      at++
      expected = unit === '{' ? 'key' : 'value'
      fresh = true
      continue
    } else {
      if (!take(string) && !take(scalar)) return take(begunString) || take(begunScalar) ? 'cut' : 'broken'
      // `12.` reads as 12 and a dot.
      if (at < text.length && !/[\s,\]}]/.test(text[at] as string)) return take(rest) ? 'cut' : 'broken'
      expected = 'next'
    }
    fresh = false
  }
}

/** What may stand behind the digits of a number that was cut. */
const rest = /(?:\.|[eE][+-]?)$/y
