import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, readlink, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { junitOf } from '../../src/commands/break/scenario/junit.ts'
import { exitCodeOf, type Result, statusOf } from '../../src/commands/break/scenario/result.ts'
import { unwritable, writeReport } from '../../src/commands/shared/report-file.ts'
import { counts } from './scenario-gateway.ts'
import { parseXml } from './xml.ts'

const pass = { name: 'a', verdict: 'pass', measured: '1' } as const
const fail = { name: 'b', verdict: 'fail', measured: '2' } as const
const undecided = { name: 'c', verdict: 'undecided', measured: 'not decided' } as const
const skipped = { name: 'd', verdict: 'skipped', measured: 'no other server' } as const

function result(of: Partial<Result> = {}): Result {
  return {
    scenario: 'hang',
    description: 'Nothing comes back.',
    checks: [pass],
    flaws: [],
    faults: [{ name: 'hang', id: 'fault-1', counts: { ...counts, id: 'fault-1' }, whenCleared: undefined }],
    traffic: { calls: 12, endings: { result: 10, 'tool error': 2 } },
    seed: 42,
    durationMs: 10_000,
    servers: ['search'],
    startedAt: Date.UTC(2026, 0, 1),
    tookMs: 12_345,
    ...of,
  }
}

test('a scenario is a suite and an assertion a case, with what was counted', () => {
  const suites = parseXml(junitOf([result({ checks: [pass, fail, undecided, skipped] }), result()]))
  assert.deepEqual(
    [suites.name, suites.attributes.tests, suites.attributes.failures, suites.attributes.errors],
    ['testsuites', '5', '1', '1'],
  )
  const [suite] = suites.children
  assert.ok(suite)
  assert.deepEqual(suite.attributes, {
    name: 'hang',
    tests: '4',
    failures: '1',
    errors: '1',
    skipped: '1',
    time: '12.345',
    timestamp: '2026-01-01T00:00:00.000',
  })
  const [properties, ...cases] = suite.children
  const values = Object.fromEntries(
    (properties?.children ?? []).map(({ attributes }) => [attributes.name, attributes.value]),
  )
  assert.equal(values.seed, '42')
  assert.equal(values.durationMs, '10000')
  assert.equal(values.calls, '12')
  assert.equal(values['calls.tool error'], '2')
  assert.equal(values['fault.hang.injected'], '5')
  assert.deepEqual(
    cases.map(({ attributes, children: [inside] }) => [
      attributes.classname,
      attributes.name,
      inside?.name,
      inside?.attributes.message,
    ]),
    [
      ['breakwater.scenario.hang', 'a', 'system-out', undefined],
      ['breakwater.scenario.hang', 'b', 'failure', '2'],
      ['breakwater.scenario.hang', 'c', 'error', 'not decided'],
      ['breakwater.scenario.hang', 'd', 'skipped', 'no other server'],
    ],
  )
})

test('a run that proves nothing is an error, and one that was left out is skipped', () => {
  const [invalid, left] = parseXml(
    junitOf([result({ checks: [], flaws: ['no traffic'] }), result({ checks: [], skipped: 'needs http' })]),
  ).children
  assert.equal(invalid?.attributes.errors, '1')
  assert.equal(invalid?.children[1]?.children[0]?.attributes.message, 'no traffic')
  assert.equal(left?.attributes.skipped, '1')
  assert.equal(left?.attributes.failures, '0')
})

test('the report is valid XML for any text of a gateway or a file', () => {
  const nasty = `<b a="1" b='2'>&amp; ]]> \u0000\u0007\u001b[31m\u202e\n\t\ud800 \uffff \u{1f600}</b>`
  const check = { name: nasty, verdict: 'fail', measured: nasty } as const
  const traffic = { calls: 1, endings: { [nasty]: 1 } }
  const suites = parseXml(
    junitOf([
      result({ scenario: nasty, checks: [check, { ...check, verdict: 'pass' }], traffic, servers: [nasty] }),
    ]),
  )
  const [suite] = suites.children
  const [, failed] = suite?.children ?? []
  const message = failed?.children[0]?.attributes.message ?? ''
  assert.ok(message.startsWith(`<b a="1" b='2'>&amp; ]]> \\u0000\\u0007\\u001b[31m\\u202e\\n\\t`), message)
  assert.ok(message.endsWith('\u{1f600}</b>'), message)
})

test('the file appears as a whole, in place of an older one, and a failure leaves nothing behind', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-junit-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  const path = join(folder, 'report.xml')
  await writeFile(path, 'older')
  await writeReport(path, junitOf([result()]))
  assert.equal(await readFile(path, 'utf8'), junitOf([result()]))
  await mkdir(join(folder, 'taken.xml', 'full'), { recursive: true })
  await assert.rejects(writeReport(join(folder, 'taken.xml'), junitOf([result()])))
  assert.deepEqual((await readdir(folder)).sort(), ['report.xml', 'taken.xml'])
})

test('links stay: the file that they lead to is written', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-junit-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  const written = junitOf([result()])
  await mkdir(join(folder, 'real'))
  await writeFile(join(folder, 'real', 'old.xml'), 'older')
  for (const target of ['old.xml', 'new.xml']) {
    const link = join(folder, target)
    await symlink(join('real', target), link)
    await writeReport(link, junitOf([result()]))
    assert.equal(await readlink(link), join('real', target))
    assert.equal(await readFile(join(folder, 'real', target), 'utf8'), written)
  }
  assert.deepEqual((await readdir(join(folder, 'real'))).sort(), ['new.xml', 'old.xml'])
})

test('a report to a pipe is written directly', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-junit-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  const pipe = join(folder, 'pipe')
  execFileSync('mkfifo', [pipe])
  const [read] = await Promise.all([readFile(pipe, 'utf8'), writeReport(pipe, junitOf([result()]))])
  assert.equal(read, junitOf([result()]))
  assert.ok((await stat(pipe)).isFIFO())
})

test('where no report can be written is known before a run', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-junit-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  assert.equal(await unwritable(join(folder, 'report.xml')), undefined)
  assert.equal(await unwritable(folder), 'it is a folder')
  assert.match((await unwritable(join(folder, 'none', 'report.xml'))) ?? '', /ENOENT/)
})

test('the exit code is 0 if all assertions hold, 1 if an assertion fails, and 2 if the result is undecided', () => {
  const passed = result()
  const failed = result({ checks: [pass, fail, undecided] })
  const open = result({ checks: [pass, undecided] })
  const invalid = result({ checks: [], flaws: ['nothing was injected'] })
  const left = result({ checks: [], skipped: 'needs http' })
  assert.deepEqual([passed, failed, open, invalid, left].map(statusOf), [
    'passed',
    'failed',
    'undecided',
    'invalid',
    'skipped',
  ])
  assert.equal(statusOf(result({ checks: [pass, skipped] })), 'passed')
  assert.equal(statusOf(result({ checks: [skipped] })), 'undecided', 'an unproven assertion is no pass')
  assert.equal(statusOf(result({ checks: [fail], flaws: ['stopped'] })), 'invalid')
  for (const [results, code] of [
    [[passed], 0],
    [[passed, left], 0],
    [[left], 2],
    [[passed, open], 2],
    [[passed, invalid], 2],
    [[invalid, failed], 1],
    [[], 2],
  ] as const)
    assert.equal(exitCodeOf(results), code)
})
