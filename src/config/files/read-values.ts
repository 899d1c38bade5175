import { type Alias, isAlias, isMap, isScalar, isSeq, type Node, type Pair, type YAMLMap } from 'yaml'
import type { ConfigIssue } from '../issues/issues.ts'
import type { Millis } from '../../mesh/clock.ts'
import { isPlainMap } from '../schema/server-names.ts'
import { MAX_VALUES, type SourceDocument } from './document.ts'
import { type Env, interpolate } from './interpolate.ts'
import { type Origins, type Position, placesOf, formatPath, type ConfigPath } from './places.ts'
import { readText, type TextFile } from './read-text.ts'

/** No config is this deep; a loop of aliases is. */
const MAX_DEPTH = 32

/**
 * Most text of a config, in characters; names count each time they stand over values. A bomb of long texts has more.
 */
const MAX_TEXT = 4 * 1024 ** 2

/** No name is this long, in characters: each of its values is referred to by the name. */
const LONGEST_NAME = 1_000

/** Nobody makes this many mistakes; a file not meant as a config does. */
const MAX_ISSUES = 5_000

/** Thrown when there is more to read than time allows. */
export class TooMuch extends Error {}

/** How much may still be read without a pause. */
export interface Allowance {
  /** In characters of files. */
  text: number
  /** All aliases expanded. */
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
  /** All text that came from a variable, which nobody may print. */
  readonly interpolated: Set<string>
  /** Whether references to variables stay as written. */
  readonly verbatim?: boolean
  /** Unlimited by default. */
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

/** Reads `node` to plain values, fills variables in, and notes each origin under `at`. Undefined for endless values. */
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

  /** Whether this much more text is allowed. */
  function mayHold(length: number, position: Position): boolean {
    textLeft -= length
    if (textLeft < 0 && left >= 0)
      giveUp(position, `holds more than ${MAX_TEXT} characters, all aliases expanded and variables filled in`)
    return textLeft >= 0
  }

  /** Depth of the reading: merged values have the path of the map they are merged into. */
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

  /** Returns the entries that a `<<` merges in; of several maps the first wins. */
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
