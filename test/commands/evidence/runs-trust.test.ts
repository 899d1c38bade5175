import assert from 'node:assert/strict'
import { appendFile, cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { newKey, openPrivateKey, sign } from '../../../src/approval/keys.ts'
import { runs } from '../../../src/commands/evidence/runs.ts'
import { anchorOf, type SignedAnchor } from '../../../src/evidence/anchor.ts'
import { checkIndex } from '../../../src/evidence/read-index.ts'
import { indexPath, RunIndex } from '../../../src/evidence/run-index.ts'
import type { RunSummary } from '../../../src/evidence/summary.ts'
import { indexed, summary } from '../../evidence/runs.ts'

const folder = await mkdtemp(join(tmpdir(), 'breakwater-runs-'))
after(() => rm(folder, { recursive: true, force: true }))

let folders = 0
const newFolder = () => join(folder, String(folders++))

async function stateOf(all: readonly RunSummary[]): Promise<string> {
  const state = newFolder()
  await indexed(state, all)
  return state
}

async function run(...args: string[]) {
  const lines: string[] = []
  const errors: string[] = []
  const out = { stdout: (line: string) => lines.push(line), stderr: (line: string) => errors.push(line) }
  const code = await runs(args, out, {})
  return { code, said: lines.join('\n'), errors: errors.join('\n') }
}

interface Listed {
  readonly runs: readonly { readonly id: string }[]
  readonly grades: readonly { readonly plan: string; readonly grade: string; readonly runs: number }[]
}

const listed = async (...args: string[]) => JSON.parse((await run('list', '--json', ...args)).said) as Listed

test('a choice by verdict chooses runs, and never the grade', async () => {
  const state = await stateOf(
    Array.from({ length: 100 }, (_, at) => summary(at, { verdict: at % 2 === 0 ? 'passed' : 'failed' })),
  )
  const all = await listed('--state', state, '--last', '80')
  const passed = await listed('--state', state, '--last', '80', '--verdict', 'passed')
  assert.deepEqual([all.runs.length, passed.runs.length], [80, 50])
  assert.equal(all.grades[0]!.grade, 'D')
  assert.deepEqual(passed.grades, all.grades)
})

test('a number of last runs counts for the grade of each plan', async () => {
  const plans = ['first', 'second'].flatMap((name, plan) =>
    Array.from({ length: 10 }, (_, at) => summary(plan * 10 + at, { name })),
  )
  const { runs: last, grades } = await listed('--state', await stateOf(plans), '--last', '5')
  assert.deepEqual(
    last.map(({ id }) => id),
    ['run-15', 'run-16', 'run-17', 'run-18', 'run-19'],
  )
  assert.deepEqual(
    grades.map(({ plan, runs: counted }) => [plan, counted]),
    [
      ['first', 5],
      ['second', 5],
    ],
  )
})

test('a plan with the id of another run as its name does not stand for the run', async () => {
  const state = await stateOf([summary(0, { verdict: 'failed' }), summary(1, { name: 'run-0' })])
  assert.match((await run('show', 'run-0', '--state', state)).said, /^plan drill, run run-0\n.*failed/)
  assert.match((await run('show', 'drill', '--state', state)).said, /^plan drill, run run-0\n.*failed/)
})

test('a line break in a name forges no line of an answer', async () => {
  const names = { name: 'a\nb', by: 'ops\nforged', approver: 'boss\nforged' }
  const { said } = await run('show', 'run-0', '--state', await stateOf([summary(0, names)]))
  assert.match(
    said,
    /^plan a\\nb, run run-0\n[^]*by ops\\nforged, approved by boss\\nforged \(proof: claimed\)\n/,
  )
})

test('a damaged index is told with each answer, and is never a success for cron', async () => {
  const state = await stateOf([summary(0, { everyMs: 1e13 }), summary(1, { everyMs: 1e13 })])
  const whole = await run('due', '--state', state)
  assert.deepEqual([whole.code, whole.errors], [0, ''])
  const lines = (await readFile(indexPath(state), 'utf8')).split('\n')
  await writeFile(indexPath(state), [...lines.slice(0, 2), ''].join('\n'))
  for (const name of ['list', 'coverage', 'recovery', 'estimates', 'due', 'regressions']) {
    const { code, errors } = await run(name, '--state', state)
    assert.match(errors, /^breakwater: the index of runs is damaged: .*is older than its head/, name)
    assert.equal(code, name === 'due' || name === 'regressions' ? 1 : 0, name)
  }
  await rm(indexPath(state))
  assert.equal((await run('due', '--state', state)).code, 1)
})

test('a folder without an index is an error, and not a gateway without runs', async () => {
  const empty = newFolder()
  await mkdir(empty)
  for (const state of [empty, join(folder, 'missing')])
    for (const name of ['list', 'due', 'regressions', 'verify']) {
      const { code, said, errors } = await run(name, '--state', state)
      assert.deepEqual([code, said], [1, ''], name)
      assert.match(errors, /has no index of runs|does not exist/, name)
    }
})

const PASSPHRASE = 'a passphrase of tests'
const alice = newKey(PASSPHRASE)
const aliceKey = openPrivateKey(alice.pem, PASSPHRASE)!
const trust = `--trust=alice=${alice.publicText}`

async function anchorOn(state: string): Promise<SignedAnchor> {
  const anchor = anchorOf(await checkIndex(state), 0)!
  return { anchor, signature: sign('anchor', anchor, aliceKey, 'alice') }
}

test('anchors that cannot be read are no missing anchors', async () => {
  const state = await stateOf([summary(0)])
  await mkdir(join(state, 'runs.anchors.jsonl'))
  const { code, errors } = await run('verify', '--state', state)
  assert.equal(code, 1)
  assert.match(errors, /the anchors in .* cannot be read: .* is no regular file/)
})

test('a copy of an anchor elsewhere finds an index that somebody with the key of the folder wrote anew', async () => {
  const state = await stateOf([summary(0, { verdict: 'failed' }), summary(1)])
  const copy = join(folder, 'copy.jsonl')
  await writeFile(copy, `${JSON.stringify(await anchorOn(state))}\n`)
  const proved = await run('verify', '--state', state, trust, '--anchors', copy)
  assert.deepEqual(
    [proved.code, proved.said],
    [
      0,
      '2 runs: no line of the index was changed, removed or inserted\nanchored by alice at 1970-01-01T00:00:00.000Z: the first 2 runs',
    ],
  )
  // The forger has the key, and leaves no anchor in the folder.
  const forged = newFolder()
  await cp(state, forged, { recursive: true })
  await rm(indexPath(forged))
  await rm(join(forged, 'runs.head'))
  const { index } = await RunIndex.open(forged, 0)
  await index.addRuns([summary(0), summary(1)], 0)
  await index.close()
  assert.equal((await run('verify', '--state', forged)).code, 0)
  const found = await run('verify', '--state', forged, trust, '--anchors', copy)
  assert.equal(found.code, 1)
  assert.match(found.said, /^line 1 of .*copy\.jsonl: a line before the anchor .* was changed/)
  await writeFile(copy, '\n')
  const none = await run('verify', '--state', state, trust, '--anchors', copy)
  assert.deepEqual([none.code, /copy\.jsonl holds no anchor$/.test(none.errors)], [1, true])
})

test('whoever names a trusted key gets no success without an anchor of this key', async () => {
  const state = await stateOf([summary(0)])
  assert.equal((await run('verify', '--state', state)).code, 0)
  const { code, said } = await run('verify', '--state', state, trust)
  assert.deepEqual([code, said], [1, 'no anchor of a trusted person proves a line\n1 problem'])
  assert.equal((await run('verify', '--state', state, trust, trust)).code, 2, 'a name with two keys')
  await appendFile(join(state, 'runs.anchors.jsonl'), '{"anchor": 1}\n')
  assert.match(
    (await run('verify', '--state', state)).said,
    /line 1 of runs.anchors.jsonl: this is no anchor/,
  )
})

test('the trusted keys of the config count, and a wrong config is an error', async () => {
  const state = await stateOf([summary(0)])
  await writeFile(join(state, 'runs.anchors.jsonl'), `${JSON.stringify(await anchorOn(state))}\n`)
  const config = join(folder, 'breakwater.yaml')
  const written = (key: string) =>
    writeFile(
      config,
      JSON.stringify({
        gateway: {
          stateDir: state,
          controlMcp: {
            tokens: [{ name: 'reader', sha256: 'ab'.repeat(32) }],
            trust: [{ name: 'alice', key }],
          },
        },
        servers: {},
      }),
    )
  await written(alice.publicText)
  assert.deepEqual(await run('verify', '--config', config), {
    code: 0,
    said: '1 run: no line of the index was changed, removed or inserted\nanchored by alice at 1970-01-01T00:00:00.000Z: the first 1 run',
    errors: '',
  })
  await written('short')
  const { code, errors } = await run('verify', '--config', config, '--state', state)
  assert.deepEqual([code, /breakwater\.yaml/.test(errors)], [1, true], errors)
})
