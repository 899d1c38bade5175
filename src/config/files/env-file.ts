/** A mistake in a line. The message does not quote the line, which may be a secret. */
export interface EnvFileProblem {
  /** Line number, from 1. */
  readonly line: number
  readonly message: string
}

export interface EnvFile {
  readonly variables: ReadonlyMap<string, string>
  readonly problems: readonly EnvFileProblem[]
}

const ASSIGNMENT = /^\s*(?:export\s+)?([A-Za-z_][\w.-]*)\s*=[^\S\n]*/

const escapes: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t' }

/**
 * Reads lines of `KEY=value`, optionally with `export`, and comments. A value in single quotes is literal; double
 * quotes allow `\n`, `\r`, `\t`, `\"` and `\\`; both may span several lines. An unquoted value ends before ` #`. Values
 * are not interpolated: `$` is a dollar sign. If a key occurs twice, its last value counts.
 */
export function parseEnvFile(text: string): EnvFile {
  const variables = new Map<string, string>()
  const problems: EnvFileProblem[] = []
  const plain = text.replace(/^\uFEFF/, '').replace(/\r\n?/g, '\n')
  const lines = plain.split('\n')
  /** Start of the line, in characters: the search for quoted values uses the whole text, to avoid a copy per line. */
  let begin = 0
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at] ?? ''
    const from = begin
    begin += line.length + 1
    if (/^\s*(#|$)/.test(line)) continue
    const [head, name] = ASSIGNMENT.exec(line) ?? []
    if (head === undefined || name === undefined) {
      problems.push({ line: at + 1, message: 'expected KEY=value, a comment, or nothing' })
      continue
    }
    const rest = line.slice(head.length)
    const quote = rest[0]
    if (quote !== '"' && quote !== "'") {
      variables.set(name, rest.replace(/(^|\s)#.*$/, '').trim())
      continue
    }
    const quoted = quotedAt(plain, from + head.length, quote)
    if (quoted === undefined) {
      problems.push({ line: at + 1, message: `the ${quote} that begins here has no end` })
      break
    }
    for (let more = quoted.split('\n').length - 1; more > 0; more--) begin += (lines[++at] ?? '').length + 1
    variables.set(name, quote === "'" ? quoted : unescape(quoted))
  }
  return { variables, problems }
}

/** Returns the text in the quotes that begin at `at`; undefined when unclosed. Only double quotes allow escapes. */
function quotedAt(text: string, at: number, quote: '"' | "'"): string | undefined {
  const pattern = quote === '"' ? /"((?:[^"\\]|\\[^])*)"/y : /'([^']*)'/y
  pattern.lastIndex = at
  return pattern.exec(text)?.[1]
}

function unescape(text: string): string {
  return text.replace(/\\([nrt"\\])/g, (_, letter: string) => escapes[letter] ?? letter)
}
