import { type Alias, isAlias, isMap, isScalar, isSeq, type Node, type Pair, type YAMLMap } from 'yaml'
import type { ConfigIssue } from '../issues/issues.ts'
import { isPlainMap } from '../schema/plain-map.ts'
import type { SourceDocument } from './document.ts'
import { type Env, interpolate } from './interpolate.ts'
import type { Origins, Position } from './origins.ts'
import { formatPath, type ConfigPath } from './path.ts'
import { placesOf } from './places.ts'

/** No config is this deep; a loop of aliases is. */
const MAX_DEPTH = 32

/** No config holds as many values; a bomb of aliases does. */
const MAX_VALUES = 100_000

/** Nobody made so many mistakes; what was not meant for a config at all is nothing but mistakes. */
const MAX_ISSUES = 5_000

/** What reading a file adds to. */
export interface Reading {
  readonly env: Env
  readonly origins: Origins
  readonly issues: ConfigIssue[]
  /** All text that came out of a variable, which nobody may print. */
  readonly interpolated: Set<string>
  /** Whether references to variables stay as they are. */
  readonly verbatim?: boolean
}

/**
 * Reads `node` to plain values with its variables filled in; notes where each came from, under `at`.
 * Undefined when there is no end to it.
 */
export function readValues(
  file: string,
  source: SourceDocument,
  node: Node | null,
  at: ConfigPath,
  reading: Reading,
): unknown {
  const { env, origins, issues, interpolated, verbatim = false } = reading
  const places = placesOf(file, env)
  let left = MAX_VALUES

  function report(path: ConfigPath, position: Position, message: string): undefined {
    if (issues.length >= MAX_ISSUES) left = -1
    else issues.push({ severity: 'error', file, path: formatPath(path), ...position, message })
  }

  function giveUp(position: Position, message: string): undefined {
    report(at, position, message)
    left = -1
  }

  function read(written: Node | null, path: ConfigPath, key: Position | undefined): unknown {
    if (left < 0) return undefined
    const found = isAlias(written) ? follow(written, path) : written
    const value = found === null ? (key ?? { line: 1, column: 1 }) : source.positionOf(found)
    if (left-- === 0) return giveUp(value, `holds more than ${MAX_VALUES} values, all aliases expanded`)
    if (path.length > MAX_DEPTH) return giveUp(value, `nested deeper than ${MAX_DEPTH} levels`)
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
    if (verbatim) return found.value
    const { text, variables, problems } = interpolate(found.value, env, places)
    if (variables.length > 0 && text !== '') interpolated.add(text)
    origins.set(path, { ...origin, variables })
    for (const problem of problems) report(path, value, problem)
    return text
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
      if (key === undefined || key === '__proto__') {
        report(path, position, 'expected a name as the key of a map')
      } else if (first !== undefined) {
        report([...path, key], position, `duplicate key "${key}"; the first is on line ${first.line}`)
      } else {
        seen.set(key, position)
        values[key] = read(pair.value, [...path, key], position)
      }
    }
    return values
  }

  /** What a `<<` brings in; of several maps the first wins. */
  function merge(value: Node | null, key: Node, path: ConfigPath): object {
    const sources = isSeq(value) ? (value.items as Node[]).toReversed() : [value]
    const maps = sources.map((item) => read(item, path, origins.get(path)?.key))
    if (maps.every(isPlainMap)) return Object.assign({}, ...maps) as object
    report(path, source.positionOf(key), 'expected a map or a list of maps to merge with <<')
    return {}
  }

  const values = read(node, at, undefined)
  return left < 0 ? undefined : values
}

const isMerge = (key: Node) => isScalar(key) && key.value === '<<'
