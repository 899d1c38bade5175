import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { readExperiment } from '../../../src/gateway/guarded/file.ts'
import { claimsDuring, shapeOf } from '../../../src/experiments/guarded/spec.ts'

const good = `name: drill
owner: platform
reason: to know
hypothesis:
  steadyState: [p95 < 500ms, status = up]
targets: { server: memory }
faults:
  - { name: slow, type: conn.latency, rate: 0.5, distribution: { kind: fixed, delay: 1s } }
stages:
  - { share: 10%, duration: 1m }
  - { share: 25%, duration: 1m }
gate:
  rollbackOn:
    - { metric: error_ratio, above: 5%, for: 2s }
`

async function read(t: TestContext, text: string) {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-spec-'))
  t.after(() => rm(folder, { recursive: true }))
  const file = join(folder, 'drill.yaml')
  await writeFile(file, text)
  const found = await readExperiment(file)
  return found.ok
    ? found
    : { ok: false, problems: found.problems.map((line) => line.replace(`${folder}/`, '')) }
}

async function problems(t: TestContext, from: string | RegExp, to: string): Promise<readonly string[]> {
  const text = good.replace(from, to)
  assert.notEqual(text, good, 'the text differs')
  const found = await read(t, text)
  assert.ok('problems' in found, 'the spec is refused')
  return found.problems
}

test('a spec is read, with its defaults', async (t) => {
  const found = await read(t, good)
  assert.ok('spec' in found && found.ok, JSON.stringify(found))
  const { spec } = found
  assert.deepEqual(spec.gate.rollbackOn, [
    { metric: 'error_ratio', above: 0.05, of: 'treatment', for: 2_000 },
  ])
  assert.deepEqual([spec.gate.over, spec.gate.minimum, spec.baseline.duration], [5_000, 10, 30_000])
  assert.deepEqual(
    claimsDuring(spec).map(({ text }) => text),
    ['p95 < 500ms'],
    'status cannot be claimed of calls',
  )
})

test('without stages there are 10, 25 and 50 percent', async (t) => {
  const found = await read(t, good.replace(/stages:\n.*\n.*\n/, ''))
  assert.ok('spec' in found && found.ok)
  assert.deepEqual(
    found.spec.stages.map(({ share }) => share),
    [0.1, 0.25, 0.5],
  )
})

test('no gate is refused, with its place', async (t) => {
  const [line] = await problems(t, /gate:[^]*$/, '')
  assert.match(line!, /^drill\.yaml:1:1 {2}gate {2}missing; expected a map/)
})

test('a gate without a number is refused, with its line', async (t) => {
  const [line] = await problems(t, 'above: 5%', 'above: lots')
  assert.match(
    line!,
    /^drill\.yaml:14:37 {2}gate\.rollbackOn\[0\]\.above {2}expected a share such as 1% or 0\.01, found "lots"/,
  )
  assert.match(
    (await problems(t, ', above: 5%', ''))[0]!,
    /gate\.rollbackOn\[0\]\.above {2}missing; expected a number/,
  )
})

test('a gate about a duration that no stage is long enough for is refused', async (t) => {
  const [line] = await problems(t, 'metric: error_ratio, above: 5%', 'metric: p95, above: 9h')
  assert.match(line!, /gate\.rollbackOn\[0\]\.above {2}expected less than the length of all stages/)
})

test('an empty gate is refused', async (t) => {
  const [line] = await problems(t, /rollbackOn:\n.*\n/, 'rollbackOn: []\n')
  assert.match(line!, /gate\.rollbackOn {2}expected at least one rule/)
})

test('stages that shrink are refused, with their line', async (t) => {
  const [line] = await problems(t, 'share: 25%', 'share: 5%')
  assert.match(
    line!,
    /^drill\.yaml:11:14 {2}stages\[1\]\.share {2}stages must not shrink: stage 1 has 10%, and the next stage 5%/,
  )
})

test('a stage of everything is refused: there would be no control', async (t) => {
  assert.match((await problems(t, 'share: 25%', 'share: 100%'))[0]!, /expected a share above 0 and up to 90%/)
})

test('faults that aim themselves, unknown types and doubled names are refused', async (t) => {
  const aimed = await problems(t, 'rate: 0.5', 'rate: 0.5, match: { server: other }')
  assert.match(aimed[0]!, /faults\[0\]\.match\.server {2}not allowed here: the run sets server/)
  assert.match(
    (await problems(t, 'conn.latency', 'conn.latenzy'))[0]!,
    /drill\.yaml:8:25 .*unknown type "conn\.latenzy"/,
  )
  assert.match((await problems(t, 'rate: 0.5, ', ''))[0]!, /faults\[0\]\.rate {2}missing/)
})

test('an experiment that changes nothing is refused', async (t) => {
  const [line] = await problems(t, /faults:\n.*\n/, '')
  assert.match(line!, /faults {2}.*expected faults, or two policy sets/)
})

test('claims are checked, with their line', async (t) => {
  const [line] = await problems(t, 'p95 < 500ms', 'p95 below 500ms')
  assert.match(line!, /^drill\.yaml:5:17 {2}hypothesis\.steadyState\[0\] {2}expected a claim/)
})

test('the shape of a run does not depend on its words', async (t) => {
  const one = await read(t, good)
  const other = await read(
    t,
    good.replace('to know', 'to know it better').replace('name: drill', 'name: other'),
  )
  const wider = await read(t, good.replace('share: 25%', 'share: 50%'))
  assert.ok('spec' in one && one.ok && 'spec' in other && other.ok && 'spec' in wider && wider.ok)
  assert.equal(shapeOf(one.spec), shapeOf(other.spec))
  assert.notEqual(shapeOf(one.spec), shapeOf(wider.spec))
})

test('a gate that could never trigger, and a recovery without time, are refused', async (t) => {
  const rule = 'metric: error_ratio, above: 5%, for: 2s'
  const withGate = (rules: string) => problems(t, rule, rules)
  assert.match((await withGate('metric: error_ratio, above: 100%'))[0]!, /expected a share below 100%/)
  assert.match(
    (await withGate('metric: attempts_per_call, above: 900'))[0]!,
    /expected less than 100 attempts/,
  )
  assert.match((await withGate(`metric: p95, above: ${'9'.repeat(400)}`))[0]!, /expected a number/)
  assert.match((await withGate('metric: p95, above: 1s, for: 10m'))[0]!, /expected less than the length of/)
  assert.match(
    (await withGate('metric: p95, above: 1s, of: control'))[0]!,
    /expected a rule about the treatment/,
  )
  const [slow] = await problems(
    t,
    'name: drill',
    'name: drill\nbaseline: { learn: [{ method: sigma, metric: p95, for: 10m }] }',
  )
  assert.match(slow!, /baseline\.learn\[0\]\.for {2}expected less than the length of all stages together/)
  const [late] = await problems(t, 'name: drill', 'name: drill\nrecovery: { within: 2s, over: 3s }')
  assert.match(late!, /recovery\.within {2}expected more than "over"/)
})

for (const { where, from, to } of [
  { where: 'owner', from: 'owner: platform', to: 'owner: "platform\\n# Approved"' },
  { where: 'title', from: 'owner: platform', to: 'owner: platform\ntitle: "a\\u001b[2Jb"' },
  { where: 'hypothesis.title', from: 'hypothesis:', to: 'hypothesis:\n  title: "a\\u2028b"' },
])
  test(`${where} is one line without control characters`, async (t) => {
    const [problem = '', ...more] = await problems(t, from, to)
    assert.match(problem, new RegExp(`${where}.*expected one line without control characters`))
    assert.deepEqual(more, [])
  })

test('a reason may have several lines, and a title blanks around it', async (t) => {
  const text = good.replace('reason: to know', 'title: >\n  folded\n  lines\nreason: |\n  one\n  two')
  assert.equal((await read(t, text)).ok, true)
})

test('a spec that is no regular file is refused without waiting', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-spec-'))
  t.after(() => rm(folder, { recursive: true }))
  const pipe = join(folder, 'pipe')
  execFileSync('mkfifo', [pipe])
  assert.deepEqual(await readExperiment(pipe), { ok: false, problems: [`${pipe}  it is no regular file`] })
})
