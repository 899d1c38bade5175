import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { reasons } from '../../src/mesh/errors.ts'
import type { Policy } from '../../src/mesh/policy.ts'
import { policies } from '../../src/policies/index.ts'

const root = fileURLToPath(new URL('../../../src', import.meta.url))

const sources = readdirSync(root, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.ts'))
  .map((file) => ({ file, text: readFileSync(join(root, file), 'utf8') }))

/**
 * Places that compile regular expressions from texts: our own texts, and the schemas of servers. Schemas' patterns are
 * charged for their possible cost before each match; patterns of `registry/client-schema` never match anything.
 */
const known = [
  'policies/state/schemas/compile.ts',
  'policies/state/schemas/pattern-cost.ts',
  'protocol/overlong.ts',
  'registry/client-schema.ts',
  'telemetry/printable.ts',
  'units/quantity.ts',
]

test('regular expressions are compiled only from texts of known origin', () => {
  const makers = sources.filter(({ text }) => /\bRegExp\(/.test(text)).map(({ file }) => file)
  assert.deepEqual(makers.sort(), known)
})

/** Returns the matches of a pattern with their files. */
const found = (pattern: RegExp) =>
  sources.flatMap(({ file, text }) => [...text.matchAll(pattern)].map(([, name = '']) => ({ file, name })))

test('a reason that a policy or the data path decides by is one that there is', () => {
  const own = Object.values(policies as Readonly<Record<string, Pick<Policy<never>, 'reasons'>>>).flatMap(
    ({ reasons = [] }) => reasons.map(({ name }) => name),
  )
  const all = new Set([...Object.keys(reasons), ...own])
  const isOfCalls = ({ file }: { file: string }) =>
    /^(mesh|policies|upstreams|registry)\//.test(file) && !file.startsWith('policies/state/schemas')
  const compared = found(/(?<!typeof )\b(?:\w+\.)*(?<!typeof )\breason (?:===|!==) '(\w+)'/g)
  const cases = sources.flatMap(({ file, text }) =>
    [...text.matchAll(/switch \([\w.]*\breason\) \{(.*?)\n {2,6}\}/gs)].flatMap(([, body = '']) =>
      [...body.matchAll(/case '(\w+)'/g)].map(([, name = '']) => ({ file, name })),
    ),
  )
  const decided = [...compared, ...cases].filter(isOfCalls)
  assert.ok(decided.length > 20, `${decided.length} found`)
  assert.deepEqual(
    decided.filter(({ name }) => !all.has(name)),
    [],
  )
})

test('a rejection names a policy that there is', () => {
  const names = found(/kind: 'rejected'[^}]*\bby: '(\w+)'/gs)
  assert.ok(names.length >= 8, `${names.length} found`)
  assert.deepEqual(
    names.filter(({ name }) => !Object.hasOwn(policies, name)),
    [],
  )
})

test('no comment begins with a pronoun, which would leave its subject to the reader', () => {
  const pronouns = /^ *(?:\/\*\*|\*|\/\/) (What|Who|Those|Of|That|Whose|Which|Whoever|Whatever)\b/gm
  assert.equal([...'/** What became of it. */'.matchAll(pronouns)].length, 1)
  assert.deepEqual(found(pronouns), [])
})
