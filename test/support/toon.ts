import assert from 'node:assert/strict'
import { decode } from '@toon-format/toon'

/** Returns the data after the sentence of an answer in TOON. */
export const toonIn = (text: string): unknown => decode(text.slice(text.indexOf('\n') + 1))

/** Joins tables by the values of a column to rows with this column. */
export const joined = (tables: unknown, column: string): object[] =>
  Object.entries(tables as Record<string, object[]>).flatMap(([value, rows]) =>
    rows.map((row) => ({ ...row, [column]: value })),
  )

/**
 * Asserts that a decoded value tells the same as a JSON value. Null stands for absent values and empty objects, and words
 * or JSON stand for lists. Fractions agree to 4 digits, and times to the second.
 */
export function assertTells(told: unknown, given: unknown, path = 'answer'): void {
  if (Array.isArray(given)) {
    const list = typeof told === 'string' ? listIn(told) : told
    assert.ok(Array.isArray(list), `${path} is no list: ${String(told)}`)
    assert.equal(list.length, given.length, path)
    for (const [at, item] of given.entries()) assertTells(list[at], item, `${path}[${at}]`)
  } else if (typeof given === 'object' && given !== null) {
    const [known, own] = [(told ?? {}) as Readonly<Record<string, unknown>>, Object.entries(given)]
    for (const key of Object.keys(known))
      if (!Object.hasOwn(given, key)) assertTells(known[key], undefined, `${path}.${key}`)
    for (const [key, inner] of own)
      assertTells(Object.hasOwn(known, key) ? known[key] : undefined, inner, `${path}.${key}`)
  } else if (given === undefined) {
    const isNothing = told === null || Object.values(told ?? {}).every((inner) => inner === null)
    assert.ok(isNothing, `${path} is ${JSON.stringify(told)}, not absent`)
  } else if (typeof given === 'number' && !Number.isInteger(given)) {
    const most = Math.abs(given) < 1_000 ? Math.abs(given) * 5.1e-4 : 0.5
    assert.ok(Math.abs((told as number) - given) <= most, `${path} is ${String(told)}, not ${given}`)
  } else if (typeof given === 'string' && time.test(given))
    assert.equal(Date.parse(String(told)), Math.floor(Date.parse(given) / 1_000) * 1_000, path)
  else assert.deepEqual(told, given, path)
}

const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

const listIn = (text: string): unknown =>
  text === '' ? [] : text.startsWith('[') ? JSON.parse(text) : text.split(' ')
