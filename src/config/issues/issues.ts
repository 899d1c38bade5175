import type { ConfigPath } from '../files/path.ts'

/** Something wrong with a config (`error`: it cannot be used), or doubtful about it (`warning`). */
export interface ConfigIssue {
  readonly severity: 'error' | 'warning'
  /** The file to look in, as its reader knows it. */
  readonly file: string
  /** The key in question, such as `mcpServers.search.timeouts.connect`; empty for the file as a whole. */
  readonly path: string
  /** From 1; absent when the file could not be read at all. */
  readonly line?: number | undefined
  /** From 1. */
  readonly column?: number | undefined
  /** What was found and what is allowed. Holds no secret. */
  readonly message: string
}

/** Longest path and message that a line shows, in characters: either may hold names, and a name may be as long as its file. */
const LONGEST_PATH = 400
const LONGEST_MESSAGE = 2_000

const clipped = (text: string, most: number) => (text.length <= most ? text : `${text.slice(0, most)}…`)

/** One line: `config/gateway.yaml:12:7  mcpServers.search.urlz  unknown key "urlz"; did you mean "url"?` */
export function formatIssue({ severity, file, path, line, column, message }: ConfigIssue): string {
  const place = line === undefined ? file : `${file}:${line}:${column ?? 1}`
  const said = clipped(message, LONGEST_MESSAGE)
  const text = severity === 'warning' ? `warning: ${said}` : said
  return [place, clipped(path, LONGEST_PATH), text].filter((part) => part !== '').join('  ')
}

/** Orders issues as a reader meets them: file by file, from top to bottom. */
export function sortIssues(issues: readonly ConfigIssue[], files: readonly string[]): ConfigIssue[] {
  return issues.toSorted(
    (a, b) =>
      files.indexOf(a.file) - files.indexOf(b.file) ||
      (a.line ?? 0) - (b.line ?? 0) ||
      (a.column ?? 0) - (b.column ?? 0),
  )
}

/** Something about keys that are right one by one. */
export interface ConfigFinding {
  readonly path: ConfigPath
  /** Whether the name of the key is at fault, or its value. */
  readonly at: 'key' | 'value'
  readonly message: string
}
