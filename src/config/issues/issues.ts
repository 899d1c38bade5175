import { printable } from '../../telemetry/printable.ts'
import type { ConfigPath } from '../files/places.ts'

/** A mistake in a config (`error`: the config is unusable), or a doubtful part (`warning`). */
export interface ConfigIssue {
  readonly severity: 'error' | 'warning'
  /** Path of the file, as the user gave it. */
  readonly file: string
  /** Path of the wrong key, for example `mcpServers.search.timeouts.connect`; empty for the file as a whole. */
  readonly path: string
  /** Line number, from 1; absent when the file could not be read at all. */
  readonly line?: number | undefined
  /** Column number, from 1. */
  readonly column?: number | undefined
  /** The value found and the values allowed. Holds no secret. */
  readonly message: string
}

/** Longest parts shown in a line, in characters: any part may hold names, and a name may be as long as its file. */
const LONGEST = { file: 1_000, path: 400, message: 2_000 }

/**
 * Formats an issue in one line: `config/gateway.yaml:12:7  mcpServers.search.urlz  unknown key "urlz"; did you mean
 * "url"?`
 */
export function formatIssue({ severity, file, path, line, column, message }: ConfigIssue): string {
  const named = printable(file, LONGEST.file)
  const place = line === undefined ? named : `${named}:${line}:${column ?? 1}`
  const said = printable(message, LONGEST.message)
  const text = severity === 'warning' ? `warning: ${said}` : said
  return [place, printable(path, LONGEST.path), text].filter((part) => part !== '').join('  ')
}

/** Orders issues for a reader: file by file, from top to bottom. */
export function sortIssues(issues: readonly ConfigIssue[], files: readonly string[]): ConfigIssue[] {
  return issues.toSorted(
    (a, b) =>
      files.indexOf(a.file) - files.indexOf(b.file) ||
      (a.line ?? 0) - (b.line ?? 0) ||
      (a.column ?? 0) - (b.column ?? 0),
  )
}

export interface ConfigFinding {
  readonly path: ConfigPath
  /** `key` if the name of the key is wrong, `value` if its value is wrong. */
  readonly at: 'key' | 'value'
  readonly message: string
}
