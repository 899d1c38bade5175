import { type Alias, type Document, isNode, Lexer, LineCounter, type Node, parseDocument, visit } from 'yaml'
import { isJson, isNamedJson, jsonMistake, type JsonMistake } from './json-mistakes.ts'
import type { Position } from './places.ts'

/** Maximum number of errors reported of a broken file; further errors usually follow from the first. */
const MAX_ERRORS = 10

/** Maximum number of values in a config, with all aliases expanded. */
export const MAX_VALUES = 100_000

/** Maximum number of scalars: each value has at most two, its key and itself. */
const MAX_SCALARS = 2 * MAX_VALUES

/**
 * Tokens of the lexer that are not text of the file: the mark of a scalar, of a document's start, and of an error in a
 * flow.
 */
const PLAIN = '\x1f'
const MARKS: ReadonlySet<string> = new Set([PLAIN, '\x02', '\x18'])

/** A parsed file: its nodes keep their positions. */
export interface SourceDocument {
  readonly root: Node | null
  readonly problems: readonly { readonly position: Position; readonly message: string }[]
  positionOf(node: Node): Position
  /** Returns the node of an alias; undefined when no anchor above the alias has its name. */
  targetOf(alias: Alias): Node | undefined
}

/** Parses YAML, or JSON with comments when `file` has a JSON name or the text begins as an object. */
export function parseSource(file: string, text: string): SourceDocument {
  const lines = new LineCounter()
  const deepAt = tooDeepAt(text)
  if (deepAt !== undefined) return unreadable(text, deepAt, 'not valid YAML: nested too deeply')
  const mistake = isJson(file, text) && text.trim() !== '' ? jsonMistake(text) : undefined
  const isUnreadable = ({ offset, message }: JsonMistake) =>
    unreadable(text, offset, `not valid JSON: ${message}`)
  // Invalid JSON is reported here, because the YAML parser accepts much of it and reports the rest in terms of YAML.
  if (mistake !== undefined && isNamedJson(file)) return isUnreadable(mistake)
  const yaml = isJson(file, text) && mistake === undefined ? blankComments(text) : text
  const fullAt = tooManyAt(yaml)
  if (fullAt !== undefined) return unreadable(text, fullAt, `holds more than ${MAX_VALUES} values`)
  const document = withoutTraces(() =>
    parseDocument(yaml, {
      lineCounter: lines,
      // Pretty errors of the parser quote the file, which may contain secrets.
      prettyErrors: false,
      // `readValues` reports duplicate keys, with both lines.
      uniqueKeys: false,
    }),
  )
  const at = (offset: number): Position => {
    const { line, col } = lines.linePos(offset)
    return { line: Math.max(line, 1), column: Math.max(col, 1) }
  }
  if (mistake !== undefined && document.errors.length > 0) return isUnreadable(mistake)
  const targets = document.errors.length === 0 ? aliasTargets(document) : new Map<Alias, Node>()
  return {
    root: document.contents,
    problems: told(
      [...document.errors, ...document.warnings]
        .slice(0, MAX_ERRORS)
        .map(({ pos, code, message }) => ({ position: at(pos[0]), message: syntaxMessage(code, message) })),
    ),
    positionOf: (node) => at(node.range?.[0] ?? 0),
    targetOf: (alias) => targets.get(alias),
  }
}

/**
 * Returns the offset of the first scalar beyond the limit, before the parser uses some 500 bytes for each. A full heap
 * may end the whole process, even when a thread with its own limit fills the heap.
 */
function tooManyAt(yaml: string): number | undefined {
  if (yaml.length < 2 * MAX_SCALARS) return undefined
  let offset = 0
  let left = MAX_SCALARS
  for (const token of new Lexer().lex(yaml)) {
    // The lexer emits an extra token before plain and block scalars; this token is not in the text.
    if (token === PLAIN || token[0] === '"' || token[0] === "'") left--
    if (left < 0) return offset
    if (!MARKS.has(token)) offset += token.length
  }
  return undefined
}

/** Removes duplicate problems: for nested unclosed maps the parser repeats the same message at the same place. */
function told(problems: SourceDocument['problems']): SourceDocument['problems'] {
  const key = ({ position: { line, column }, message }: SourceDocument['problems'][number]) =>
    `${line}:${column} ${message}`
  return [...new Map(problems.map((problem) => [key(problem), problem])).values()]
}

/**
 * Runs `work` without stack traces of errors. In a file with many errors, stack traces would take four fifths of the
 * time and most of the memory.
 */
function withoutTraces<Result>(work: () => Result): Result {
  const { stackTraceLimit } = Error
  Error.stackTraceLimit = 0
  try {
    return work()
  } finally {
    Error.stackTraceLimit = stackTraceLimit
  }
}

/** Returns a document with a single problem, for a file that is not parsed. */
function unreadable(text: string, offset: number, message: string): SourceDocument {
  const before = text.slice(0, offset).split('\n')
  const position = { line: before.length, column: (before.at(-1)?.length ?? 0) + 1 }
  return {
    root: null,
    problems: [{ position, message }],
    positionOf: () => position,
    targetOf: () => undefined,
  }
}

/** Finds the targets of all aliases in a single pass; a pass per alias would be slow. */
function aliasTargets(document: Document): Map<Alias, Node> {
  const anchors = new Map<string, Node>()
  const targets = new Map<Alias, Node>()
  visit(document, {
    Alias(_, alias) {
      const target = anchors.get(alias.source)
      if (target !== undefined) targets.set(alias, target)
    },
    Value(_, node) {
      if (isNode(node) && node.anchor !== undefined) anchors.set(node.anchor, node)
    },
  })
  return targets
}

/** Returns a message for a syntax error. It does not quote the text of the file, which may be a secret. */
function syntaxMessage(code: string, message: string): string {
  switch (code) {
    case 'MULTIPLE_DOCS':
      return 'a second document begins here; a config is one document'
    case 'TAG_RESOLVE_FAILED':
      return 'tags such as !secret have no meaning in a config'
    case 'BAD_DQ_ESCAPE':
      return 'not valid YAML: unknown escape sequence; write \\\\ for a backslash, or use single quotes'
    case 'UNEXPECTED_TOKEN':
      return `not valid YAML: ${message.split(': ')[0]}`
    default:
      return `not valid YAML: ${message}`
  }
}

/** Maximum nesting depth that is parsed: more than any config needs, and less than the parser's stack allows. */
const MOST = 500

/**
 * Returns the offset at which a text nests too deeply to parse; undefined if none. Parsers recurse, and a stack
 * overflow inside a regular expression would end the process. Looks only at characters: open brackets, and markers of
 * lists in lists (`- - -`), wherever they appear.
 */
function tooDeepAt(text: string): number | undefined {
  let open = 0
  let markers = 0
  for (let at = 0; at < text.length; at++) {
    const unit = text[at]
    if (unit === '[' || unit === '{') open++
    else if ((unit === ']' || unit === '}') && open > 0) open--
    if (unit === '-' || unit === '?' || unit === ':') markers++
    else if (unit !== ' ' && unit !== '\t') markers = 0
    if (open > MOST || markers > MOST) return at
  }
  return undefined
}

const COMMENT_OR_STRING = /"(?:[^"\\]|\\.)*"|\/\/[^\n\r]*|\/\*[\s\S]*?\*\//g

/** Returns a JSON text with spaces in place of comments, so the YAML parser can read it and positions do not change. */
function blankComments(json: string): string {
  return json.replace(COMMENT_OR_STRING, (match) =>
    match.startsWith('"') ? match : match.replace(/[^\n\r]/g, ' '),
  )
}
