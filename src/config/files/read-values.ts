import { type Alias, isAlias, isMap, isScalar, isSeq, type Node, type Pair, type YAMLMap } from 'yaml'
import type { ConfigIssue } from '../issues/issues.ts'
import type { Millis } from '../../mesh/clock.ts'
import { isPlainMap } from '../schema/server-names.ts'
import { MAX_VALUES, type SourceDocument } from './document.ts'
import { type Env, interpolate } from './interpolate.ts'
import { type Origins, type Position, placesOf, formatPath, type ConfigPath } from './places.ts'
import { readText, type TextFile } from './read-text.ts'

/** Maximum nesting depth: more than any config needs, so only a loop of aliases exceeds it. */
const MAX_DEPTH = 32

/**
 * Maximum total length of keys and texts in a config, in characters, with all aliases expanded. Stops a small file that
 * expands to a huge config.
 */
const MAX_TEXT = 4 * 1024 ** 2

/** Maximum length of a key, in characters: the path of each value below repeats the key. */
const LONGEST_NAME = 1_000

/** Maximum number of reported issues: a file with more is not meant as a config. */
const MAX_ISSUES = 5_000

/** Thrown when a config is larger than the allowance. */
export class TooMuch extends Error {}

/** The amount that may still be read before `TooMuch` is thrown. */
export interface Allowance {
  /** Characters of files that may still be read. */
  text: number
  /** Values that may still be read, with all aliases expanded. */
  values: number
}

/** Uses up `count` of the allowance; throws `TooMuch` when less is left. */
function spend(allowance: Allowance | undefined, what: keyof Allowance, count: number): void {
  if (allowance === undefined) return
  allowance[what] -= count
  if (allowance[what] < 0) throw new TooMuch()
}

/** State used and extended by reading a file. */
export interface Reading {
  readonly env: Env
  readonly origins: Origins
  readonly issues: ConfigIssue[]
  /** All texts that came from variables; they must not be printed. */
  readonly interpolated: Set<string>
  /** True if references to variables stay as written. Default: false. */
  readonly verbatim?: boolean
  /** The limits of the reading; unlimited by default. */
  readonly allowance?: Allowance | undefined
  /** How long a pipe may take, in milliseconds; see `readText`. */
  readonly patience?: Millis | undefined
  /** The files already read, by path: a pipe can be read only once. */
  readonly texts?: Map<string, TextFile> | undefined
}

export async function readFile(path: string, { allowance, patience, texts }: Bounds): Promise<TextFile> {
  const read = texts?.get(path) ?? (await readText(path, patience))
  texts?.set(path, read)
  if ('text' in read) spend(allowance, 'text', read.text.length)
  return read
}

/** The limits of a reading, and the files already read. */
export type Bounds = Pick<Reading, 'allowance' | 'patience' | 'texts'>

/**
 * Returns the plain values of `node` with variables filled in, and records the origin of each value under `at`.
 * Undefined for endless values.
 */
export function readValues(
  file: string,
  source: SourceDocument,
  node: Node | null,
  at: ConfigPath,
  reading: Reading,
): unknown {
  const { env, origins, issues, interpolated, verbatim = false, allowance } = reading
  const places = placesOf(file, env)
  let left = MAX_VALUES
  let textLeft = MAX_TEXT

  function report(path: ConfigPath, position: Position, message: string): undefined {
    if (issues.length >= MAX_ISSUES) left = -1
    else issues.push({ severity: 'error', file, path: formatPath(path), ...position, message })
  }

  function giveUp(position: Position, message: string): undefined {
    report(at, position, message)
    left = -1
  }

  /** Counts the text, and returns true if it is within the limit; otherwise reports an issue. */
  function mayHold(length: number, position: Position): boolean {
    textLeft -= length
    if (textLeft < 0 && left >= 0)
      giveUp(position, `holds more than ${MAX_TEXT} characters, all aliases expanded and variables filled in`)
    return textLeft >= 0
  }

  /**
   * Current nesting depth. The path does not show it, because merged values have the path of the map that they are
   * merged into.
   */
  let depth = 0

  function read(written: Node | null, path: ConfigPath, key: Position | undefined): unknown {
    depth++
    const value = readHere(written, path, key)
    depth--
    return value
  }

  function readHere(written: Node | null, path: ConfigPath, key: Position | undefined): unknown {
    if (left < 0) return undefined
    const found = isAlias(written) ? follow(written, path) : written
    const value = found === null ? (key ?? { line: 1, column: 1 }) : source.positionOf(found)
    if (left-- === 0) return giveUp(value, `holds more than ${MAX_VALUES} values, all aliases expanded`)
    spend(allowance, 'values', 1)
    if (depth > MAX_DEPTH + 1) return giveUp(value, `nested deeper than ${MAX_DEPTH} levels`)
    const origin = {
      file,
      key,
      value,
      collection: isMap(found) || isSeq(found),
      variables: [] as readonly string[],
    }
    origins.set(path, origin)
    if (isSeq(found)) return found.items.map((item, index) => read(item as Node, [...path, index], undefined))
    if (isMap(found)) {
      const values = readMap(found, path)
      origins.set(path, origin)
      return values
    }
    if (!isScalar(found) || typeof found.value !== 'string') return isScalar(found) ? found.value : null
    if (!mayHold(found.value.length, value)) return undefined
    if (verbatim) return found.value
    const { text, variables, problems } = interpolate(found.value, env, places)
    if (variables.length > 0 && text !== '') interpolated.add(text)
    origins.set(path, { ...origin, variables })
    for (const problem of problems) report(path, value, problem)
    return mayHold(text.length - found.value.length, value) ? text : undefined
  }

  function follow(alias: Alias, path: ConfigPath): Node | null {
    const target = source.targetOf(alias)
    if (target === undefined)
      report(path, source.positionOf(alias), `*${alias.source} names no anchor above it`)
    return target ?? null
  }

  function readMap(map: YAMLMap, path: ConfigPath): Record<string, unknown> {
    const pairs = map.items as Pair<Node, Node | null>[]
    const values: Record<string, unknown> = {}
    for (const { key, value } of pairs) if (isMerge(key)) Object.assign(values, merge(value, key, path))
    const seen = new Map<string, Position>()
    for (const pair of pairs) {
      if (left < 0) break
      if (isMerge(pair.key)) continue
      const position = source.positionOf(pair.key)
      const name = isScalar(pair.key) ? (pair.key.value as string | number | boolean | null) : null
      const key = name === null ? undefined : String(name)
      const first = key === undefined ? undefined : seen.get(key)
      if (key === undefined) {
        const found = isScalar(pair.key) ? 'null; put it in quotes' : isMap(pair.key) ? 'a map' : 'a list'
        report(path, position, `expected a name as the key of a map, found ${found}`)
      } else if (key === '__proto__') {
        report(path, position, '"__proto__" is not allowed as a key: JavaScript reserves it')
      } else if (key.length > LONGEST_NAME) {
        report(path, position, `found a name of ${key.length} characters; the limit is ${LONGEST_NAME}`)
      } else if (first !== undefined) {
        report([...path, key], position, `duplicate key "${key}"; the first is on line ${first.line}`)
      } else {
        seen.set(key, position)
        if (!mayHold(key.length, position)) break
        values[key] = read(pair.value, [...path, key], position)
      }
    }
    return values
  }

  /** Returns the entries that a `<<` merges in; if several maps have the same key, the first map wins. */
  function merge(value: Node | null, key: Node, path: ConfigPath): object {
    const sources = isSeq(value) ? (value.items as Node[]).toReversed() : [value]
    const maps = sources.map((item) => read(item, path, origins.get(path)?.key))
    if (maps.every(isPlainMap)) return Object.assign({}, ...maps) as object
    if (left >= 0) report(path, source.positionOf(key), 'expected a map or a list of maps to merge with <<')
    return {}
  }

  const values = read(node, at, undefined)
  return left < 0 ? undefined : values
}

const isMerge = (key: Node) => isScalar(key) && key.value === '<<'
