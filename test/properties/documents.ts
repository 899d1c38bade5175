import assert from 'node:assert/strict'
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import { parse, stringify } from 'yaml'
import { hasUnprintable } from '../../src/telemetry/printable.ts'
import { damaged } from './arbitraries.ts'

/** An operator's file: a shipped file, a damaged copy, or something else entirely. */
export interface Written {
  readonly text: string
  /** The value of the text, if its characters are undamaged. */
  readonly value?: unknown
}

const shipped = fileURLToPath(new URL('../../../config/', import.meta.url))

/** Returns all or some files of a folder of `config/` as values. */
export function shippedValues(folder: string, only: (name: string) => boolean = () => true): unknown[] {
  return readdirSync(join(shipped, folder))
    .filter((name) => name.endsWith('.yaml') && only(name))
    .map((name) => parse(readFileSync(join(shipped, folder, name), 'utf8')) as unknown)
}

/** Values of unexpected types, including references and names with a meaning elsewhere. */
const odd: fc.Arbitrary<unknown> = fc.oneof(
  fc.constantFrom<unknown>(null, true, -1, 0, 1.5, 1e300, '', [], {}, [[]], [null]),
  fc.constantFrom('__proto__', 'constructor', 'toString', 'hasOwnProperty', 'a.b', 'a[0]', '*', '?', '**'),
  fc.constantFrom('${SECRET}', '${UNSET}', '${UNSET:-x}', '${', '$${', '${a${b}}', '${values.x}', '${n}'),
  fc.constantFrom('10%', '250ms', '5m', '1e3ms', '-1s', '10/s', '4MiB', '0/0', '99999999999d', 'p95 < 1s'),
  fc.constantFrom('http://[', 'http://u:p@h/x', 'ftp://h', '127.0.0.1:99999', '\ud800', '\u0000', '\u202e'),
  fc.constantFrom('default', 'read_only', 'upstream', 'client', 'legacy', 'conn.latency', 'mean_ms', 'every'),
  fc.constant('x'.repeat(3_000)),
  fc.jsonValue({ maxDepth: 2 }),
)

/** Names from `Object.prototype`, and keys that are unknown at their place. */
const oddKeys = fc.constantFrom(
  ...['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'valueOf', 'length', '', '0', '-1', 'a.b'],
  ...['$schema', '<<', 'file', 'name', 'type', 'match', 'faults', 'server', 'steps', 'x'.repeat(500)],
)

interface Edit {
  readonly what: 'replace' | 'remove' | 'rename' | 'add' | 'double' | 'move'
  /** Index among all places of the value. */
  readonly at: number
  readonly put: unknown
  readonly key: string
}

const edit: fc.Arbitrary<Edit> = fc.record({
  what: fc.constantFrom(...(['replace', 'replace', 'remove', 'rename', 'add', 'double', 'move'] as const)),
  at: fc.nat(),
  put: odd,
  key: oddKeys,
})

/** Maps and lists of a value, outermost first. */
function collectionsIn(value: unknown): (Map<string, unknown> | unknown[])[] {
  if (!(value instanceof Map) && !Array.isArray(value)) return []
  return [value, ...[...(value.values() as Iterable<unknown>)].flatMap(collectionsIn)]
}

/** Returns a value with `Map`s, so that any name can be a key. */
function thawed(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(thawed)
  if (typeof value !== 'object' || value === null) return value
  return new Map(Object.entries(value).map(([key, held]) => [key, thawed(held)]))
}

function apply(whole: unknown, { what, at, put, key }: Edit): void {
  const all = collectionsIn(whole)
  const one = all[at % Math.max(1, all.length)]
  if (one === undefined) return
  const keys = [...one.keys()]
  const which = keys[Math.floor(at / all.length) % Math.max(1, keys.length)]
  if (what === 'add' || which === undefined) {
    if (one instanceof Map) one.set(key, thawed(put))
    else one.push(thawed(put))
    return
  }
  const held: unknown = one instanceof Map ? one.get(which as string) : one[which as number]
  const set = (name: string | number, value: unknown) =>
    one instanceof Map ? void one.set(String(name), value) : void (one[Number(name)] = value)
  const drop = () =>
    one instanceof Map ? void one.delete(which as string) : void one.splice(which as number, 1)
  if (what === 'replace') set(which, thawed(put))
  else if (what === 'remove') drop()
  else if (what === 'rename' && one instanceof Map) {
    drop()
    one.set(key, held)
  } else if (what === 'double' && Array.isArray(one)) one.push(structuredClone(held))
  else if (what === 'move') set(which, structuredClone(all[Math.floor(at / 7) % all.length]))
}

/** Like `JSON.stringify`, for maps too, with any name as a key. */
export function jsonText(value: unknown): string {
  if (value instanceof Map)
    return `{${[...(value as Map<string, unknown>)].map(([key, held]) => `${JSON.stringify(key)}: ${jsonText(held)}`).join(', ')}}`
  if (Array.isArray(value)) return `[${value.map(jsonText).join(', ')}]`
  return JSON.stringify(value) ?? 'null'
}

/** Beginnings of text with a special meaning in YAML or JSON, or nearly. */
const piece = fc.constantFrom(
  ...[
    '&a ',
    '*a',
    '<<: *a\n',
    '- ',
    '? ',
    ': ',
    '{',
    '}',
    '[',
    ']',
    '"',
    "'",
    '|\n',
    '>-\n',
    '#',
    '%TAG ! x\n',
  ],
  ...[
    '---\n',
    '...\n',
    '!!binary ',
    '!x ',
    '\t',
    '\n  ',
    '\r',
    '\u2028',
    '\ufeff',
    '\0',
    '${',
    '}',
    '${A:-',
    ', ',
  ],
  ...['name: ', 'a: 1\na: 1\n', '0x1F', '1e400', '.inf', '~', '// x\n', '/* x */', '__proto__: {x: 1}\n'],
)

/** Repeated pieces, up to some kilobytes, to reveal costs that are not linear in the length. */
const repeated = fc
  .tuple(fc.array(piece, { minLength: 1, maxLength: 3 }), fc.integer({ min: 1, max: 4_000 }), piece)
  .map(([pieces, times, last]) => pieces.join('').repeat(times) + last)

/** Arbitrary contents of files similar to these examples. */
export function documents(examples: readonly unknown[]): fc.Arbitrary<Written> {
  const value = fc
    .tuple(fc.constantFrom(...examples), fc.array(edit, { maxLength: 3 }))
    .map(([example, edits]) => {
      const whole = thawed(example)
      for (const one of edits) apply(whole, one)
      return whole
    })
  const whole = fc.tuple(value, fc.boolean()).map(([value, isJson]): Written => {
    return { text: isJson ? jsonText(value) : stringify(value), value }
  })
  const bent = fc
    .tuple(whole, fc.nat(), fc.nat({ max: 6 }), fc.array(piece, { maxLength: 3 }))
    .map(([{ text }, at, cut, put]): Written => {
      const place = at % (text.length + 1)
      return { text: text.slice(0, place) + put.join('') + text.slice(place + cut) }
    })
  return fc.oneof(
    { weight: 12, arbitrary: whole },
    { weight: 6, arbitrary: bent },
    { weight: 1, arbitrary: repeated.map((text): Written => ({ text })) },
    { weight: 1, arbitrary: damaged.map((text): Written => ({ text })) },
  )
}

let folder: string | undefined

/** Writes a file with this text, at the same path for each case. Concurrent runs need different names. */
export function fileWith(name: string, text: string | Buffer): string {
  if (folder === undefined) {
    folder = mkdtempSync(join(tmpdir(), 'breakwater-properties-'))
    const own = folder
    process.once('exit', () => rmSync(own, { recursive: true, force: true }))
  }
  const file = join(folder, name)
  writeFileSync(file, text)
  return file
}

/** Longest time to read any file of an operator, in milliseconds, on a busy machine. */
const LONGEST_MS = 5_000

const pristine = Reflect.ownKeys(Object.prototype).length

/** Runs a reader of files. The reader has to end in time and leave `Object.prototype` unchanged. */
export async function withinBounds<Result>(read: () => Promise<Result>): Promise<Result> {
  const since = performance.now()
  const result = await read()
  const tookMs = performance.now() - since
  assert.ok(tookMs < LONGEST_MS, `took ${tookMs.toFixed(0)} ms`)
  assert.equal(Reflect.ownKeys(Object.prototype).length, pristine, 'Object.prototype is unchanged')
  return result
}

/** Checks that each line names a file with a line, or with the reason why the file is unreadable. */
export function sayWhere(problems: readonly string[], file: string): void {
  assert.ok(problems.length > 0, 'reports a problem')
  for (const problem of problems) {
    const isOfAnother = /^\/.+ {2}\S/.test(problem)
    const place = problem.startsWith(file) ? problem.slice(file.length) : undefined
    assert.ok(place === undefined ? isOfAnother : /^(:\d+:\d+ {2}| {1,2})\S/.test(place), problem)
    assert.ok(problem.length < 20_000, `a problem of ${problem.length} characters`)
    assert.ok(!hasUnprintable(problem), `${JSON.stringify(problem)} holds only printable characters`)
    assert.ok(!problem.includes(SECRET), 'shows the value of a variable')
  }
}

/** The value of the variable SECRET; nothing may print the value. */
export const SECRET = 'hunter2-hunter2-hunter2'
