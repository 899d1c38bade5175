import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import {
  canHit,
  faultsEnd,
  lasting,
  readScenario,
  type Scenario,
} from '../../src/commands/break/scenario/library.ts'

/** Reads a scenario from its own file, with these lines under `assert`. */
const reading = (t: TestContext, ...lines: readonly string[]) =>
  readingLines(t, ['faults:', '  - { name: mine, type: conn.refused, rate: 1, ttl: 1m }', ...lines])

async function readingLines(t: TestContext, lines: readonly string[]) {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-scenario-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  const file = join(folder, 'mine.yaml')
  const head = ['name: mine', 'description: Mine.', 'duration: 10s']
  await writeFile(file, [...head, ...lines].join('\n'))
  const read = await readScenario(file)
  return read.ok
    ? read
    : { ok: false, problems: read.problems.map((line) => line.replace(file, 'mine.yaml')) }
}

async function problemsOf(t: TestContext, ...lines: readonly string[]): Promise<readonly string[]> {
  const read = await reading(t, ...lines)
  return 'problems' in read ? read.problems : []
}

async function problemsOfFaults(t: TestContext, faults: readonly string[]): Promise<readonly string[]> {
  const lines = faults.map((fault) => `  - ${fault}`)
  const read = await readingLines(t, ['assert:', '  lists: kept', 'faults:', ...lines])
  return 'problems' in read ? read.problems : []
}

test('a mistake in an assertion gives its line and a suggestion', async (t) => {
  for (const [line, problem] of [
    [
      '  braker: { opens: never }',
      /^mine\.yaml:7:3 {2}assert\.braker {2}unknown key "braker"; did you mean "breaker"\?$/,
    ],
    ['  breaker: { opens: { withinCall: 5 } }', /^mine\.yaml:7:23 .*did you mean "withinCalls"\?$/],
    ['  breaker: { opens: sometimes }', /^mine\.yaml:7:21 {2}assert\.breaker\.opens {2}expected .*never/],
    ['  calls: { succeed: { atLeast: 2 } }', /^mine\.yaml:7:32 .*expected a number from 0 to 1, found 2$/],
    ['  calls: { p95: { atMost: soon } }', /^mine\.yaml:7:27 .*expected a duration .*found "soon"$/],
    ['  calls: { from: 1s }', /^mine\.yaml:7:\d+ .*expected succeed, p95 or both/],
    ['  calls: [{ to: 1s, sucseed: { atMost: 0 } }]', /^mine\.yaml:7:21 .*did you mean "succeed"\?$/],
    ['  fates: { escapd: none }', /^mine\.yaml:7:12 .*did you mean "escaped"\?$/],
    ['  fates: { escaped: { atLeast: -1 } }', /^mine\.yaml:7:32 .*expected a whole number from 0, found -1$/],
    ['  fates: { escaped: {} }', /^mine\.yaml:7:\d+ .*expected atLeast, atMost or both/],
    [
      '  errors: { must: [BW_BRAKER_OPEN] }',
      /^mine\.yaml:7:20 .*there is no error "BW_BRAKER_OPEN"; did you mean "BW_BREAKER_OPEN"\?$/,
    ],
    [
      '  errors: { must: [BW_BREAKER_OPEN, tool error], never: [BW_INTERNAL, tool error] }',
      /^mine\.yaml:7:71 {2}assert\.errors\.never\[1\] {2}can never hold: "tool error" must be seen, by assert\.errors\.must\[1\]$/,
    ],
    ['  rejections: { bulkhed_full: none }', /^mine\.yaml:7:17 .*did you mean "bulkhead_full"\?$/],
    ['  verdicts: { drifts: none }', /^mine\.yaml:7:15 .*did you mean "drift"\?$/],
    ['  recovery: { steddy: 5s }', /^mine\.yaml:7:15 .*did you mean "steady"\?$/],
    ['  claims: [p95 < 1s, tscr > 0.9]', /^mine\.yaml:7:22 {2}assert\.claims\[1\] .*did you mean "tcsr"\?$/],
    ['  recovery: {}', /^mine\.yaml:7:\d+ .*asserts nothing/],
    ['  calls: { succeed: { atLeast: 0 } }', /^mine\.yaml:7:\d+ {2}assert\.calls\.succeed .*can never fail$/],
    ['  calls: { succeed: { atMost: 1 } }', /^mine\.yaml:7:\d+ .*can never fail$/],
    ['  retries: { atLeast: 0 }', /^mine\.yaml:7:\d+ {2}assert\.retries .*can never fail$/],
    ['  attemptsPerCall: { atLeast: 0 }', /^mine\.yaml:7:\d+ .*can never fail$/],
    [
      '  fates: { escaped: { atLeast: 3, atMost: 2 } }',
      /^mine\.yaml:7:\d+ {2}assert\.fates\.escaped .*can never hold/,
    ],
    ['  others: { p95: { atLeast: 2s, atMost: 1s } }', /^mine\.yaml:7:\d+ .*can never hold/],
    [
      '  calls: { from: 5s, to: 5s, succeed: { atMost: 0 } }',
      /^mine\.yaml:7:\d+ {2}assert\.calls\.from .*the phase is empty/,
    ],
    ['  lists: gone', /^mine\.yaml:7:10 .*expected "kept", found "gone"$/],
  ] as const) {
    const problems = await problemsOf(t, 'assert:', line)
    assert.equal(problems.length, 1, problems.join('\n'))
    assert.match(problems[0] ?? '', problem)
  }
})

test('a mistake in a fault gives its line before any injection', async (t) => {
  for (const [fault, ...wanted] of [
    [
      '{ name: a, type: conn.refused, rate: 1, match: [server, x] }',
      /^mine\.yaml:7:45 {2}faults\[0\]\.match {2}expected a map/,
    ],
    [
      '{ name: a, type: conn.refused, rate: 1, match: { server: 5 } }',
      /^mine\.yaml:7:62 {2}faults\[0\]\.match\.server .*expected text, found 5/,
    ],
    [
      '{ name: a, type: conn.refused, rate: 1, match: { server: $servers } }',
      /^mine\.yaml:7:62 .*expected a glob.*"\$servers"/,
    ],
    [
      '{ name: a, type: conn.refused, rate: 1, match: { server: $server, tol: x } }',
      /^mine\.yaml:7:71 .*did you mean "tool"\?$/,
    ],
    [
      '{ name: a, type: conn.refused, rate: 1, matches: { server: $server } }',
      /^mine\.yaml:7:45 .*did you mean "match"\?$/,
    ],
    ['{ type: conn.refused, rate: 1 }', /^mine\.yaml:7:\d+ {2}faults\[0\]\.name {2}missing; expected/],
    [
      '{ name: a, type: conn.refuse, rate: 1 }',
      /^mine\.yaml:7:\d+ .*unknown type "conn\.refuse"; did you mean conn\.refused/,
    ],
    [
      '{ name: a, type: conn.refused, rate: 2 }',
      /^mine\.yaml:7:42 .*expected a number from 0 to 1, found 2$/,
    ],
    [
      '{ name: a, type: conn.refused, rate: 1 }',
      /^mine\.yaml:8:13 .*"a" is already the name of faults\[0\]$/,
    ],
  ] as const) {
    const isTwin = wanted[0].source.includes('already')
    const faults = isTwin ? [fault, fault] : [fault]
    const problems = await problemsOfFaults(t, faults)
    assert.equal(problems.length, 1, `${fault}: ${problems.join('\n')}`)
    assert.match(problems[0] ?? '', wanted[0])
  }
  assert.deepEqual(
    await problemsOfFaults(t, ['{ name: a, type: conn.refused, rate: 1, match: { server: $server } }']),
    [],
  )
})

test('bounds that can fail on one side are bounds', async (t) => {
  for (const line of ['calls: { succeed: { atLeast: 0, atMost: 0 } }', 'retries: { atLeast: 0, atMost: 5 }'])
    assert.deepEqual(await problemsOf(t, 'assert:', `  ${line}`), [])
})

test('a pipe is no scenario, and is not waited for', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-scenario-'))
  t.after(() => rm(folder, { recursive: true, force: true }))
  const pipe = join(folder, 'mine.yaml')
  execFileSync('mkfifo', [pipe])
  const problems = [`${pipe} cannot be read: it is no regular file`]
  assert.deepEqual(await readScenario(pipe), { ok: false, problems })
})

test('a scenario without assertions is refused', async (t) => {
  assert.match((await problemsOf(t)).join(), /assert {2}missing; expected a map$/)
  assert.match((await problemsOf(t, 'assert: {}')).join(), /asserts nothing/)
})

const phased: Scenario = {
  name: 'phased',
  description: 'Two phases.',
  duration: 20_000,
  hits: 'one_server',
  traffic: 20,
  faults: [
    { name: 'one', type: 'conn.refused', when: { window: { to: '10s' }, everyNth: 2 } },
    { name: 'two', type: 'http.status', when: { window: { from: '10s', to: '15s' } } },
  ],
  assert: {
    breaker: { opens: { notBefore: 10_000, within: 12_000 } },
    calls: [
      { to: 10_000, succeed: { atLeast: 1 } },
      { from: 10_000, p95: { atMost: 1_000 } },
    ],
  },
}

test('with another duration the phases of a scenario scale, and its bounds stay', () => {
  const short = lasting(phased, 10_000)
  assert.deepEqual(
    short.faults.map(({ when }) => when),
    [{ window: { to: 5_000 }, everyNth: 2 }, { window: { from: 5_000, to: 7_500 } }],
  )
  assert.deepEqual(short.assert, {
    breaker: { opens: { notBefore: 5_000, within: 12_000 } },
    calls: [
      { to: 5_000, succeed: { atLeast: 1 } },
      { from: 5_000, p95: { atMost: 1_000 } },
    ],
  })
  assert.equal(faultsEnd(phased, 20_000), 15_000)
  assert.equal(faultsEnd(short, 10_000), 7_500)
  const [first] = phased.faults
  assert.equal(faultsEnd({ faults: [{ ...first, when: {} }] }, 20_000), 20_000)
})

test('the time after which a credential expires is a phase as well', () => {
  const expiring = { ...phased, faults: [{ name: 'one', type: 'auth.expired', after: '5s' }] }
  const long = lasting(expiring, 40_000)
  assert.equal(long.faults[0]?.after, 10_000)
  assert.deepEqual(long.assert.calls, [
    { to: 20_000, succeed: { atLeast: 1 } },
    { from: 20_000, p95: { atMost: 1_000 } },
  ])
})

test('if no fault has phases, the phases of the assertions stay', () => {
  // Its `after` counts from the start of each process.
  const constant = { ...phased, faults: [{ name: 'one', type: 'proc.crash_loop', after: '5s' }] }
  assert.deepEqual(lasting(constant, 40_000), { ...constant, duration: 40_000 })
})

test('a scenario can hit a server when all of its faults can', () => {
  assert.equal(canHit(phased, 'http'), true)
  assert.equal(canHit(phased, 'stdio'), false)
  assert.equal(canHit(phased, undefined), true, 'the result is unknown yet')
  assert.equal(canHit({ faults: phased.faults.slice(0, 1) }, 'stdio'), true)
  assert.equal(canHit({ faults: [{ type: 'http.status', side: 'client' }] }, 'stdio'), true)
})
