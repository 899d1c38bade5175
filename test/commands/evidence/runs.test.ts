import assert from 'node:assert/strict'
import { appendFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { newKey, openPrivateKey, sign } from '../../../src/approval/keys.ts'
import { evidence } from '../../../src/commands/evidence/evidence.ts'
import { runs } from '../../../src/commands/evidence/runs.ts'
import { Terminal } from '../../../src/commands/shared/terminal.ts'
import { anchorOf } from '../../../src/evidence/anchor.ts'
import { checkIndex } from '../../../src/evidence/read-index.ts'
import { indexPath } from '../../../src/evidence/run-index.ts'
import type { RunSummary } from '../../../src/evidence/summary.ts'
import { dayMs, indexed, summary } from '../../evidence/runs.ts'

const folders: string[] = []
after(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true }))))

async function newFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-runs-'))
  folders.push(folder)
  return folder
}

async function asked(command: typeof runs, ...args: string[]) {
  const said = { stdout: '', stderr: '' }
  const screen = (name: keyof typeof said) => ({ write: (text: string) => (said[name] += text) })
  const code = await command(args, new Terminal(screen('stdout'), screen('stderr'), {}), {})
  return { code, ...said }
}

const claim = (text: string, more: Partial<RunSummary['claims'][number]> = {}) =>
  ({ text, value: null, low: null, high: null, n: 200, status: 'held', ...more }) as const

/** Four runs that passed, an early one that failed, and one that proves nothing. */
const state = await newFolder()
await indexed(state, [
  summary(0, { id: 'early', at: dayMs('2026-09-30'), verdict: 'failed' }),
  ...[1, 2, 3, 4].map((day) => summary(day, { at: dayMs(`2026-10-0${day}`) })),
  summary(5, {
    id: 'doubtful',
    name: 'weak',
    at: dayMs('2026-10-05'),
    verdict: 'held (weak)',
    claims: [
      claim('error_ratio < 5%', { value: 0.004, low: 0.001, high: 0.0123, status: 'proven' }),
      claim('p99 < 6s', { value: 4_585, low: 4_235, high: null }),
      claim('status = up'),
    ],
  }),
  summary(6, {
    id: 'empty',
    name: 'short',
    at: dayMs('2026-10-06'),
    verdict: 'no evidence',
    reasons: ['below_floor'],
  }),
])

const idsIn = (text: string) => (JSON.parse(text) as { runs: { id: string }[] }).runs.map(({ id }) => id)

test('a state folder that does not exist, or has no index, is no folder without runs', async () => {
  const empty = await newFolder()
  for (const question of ['list', 'due', 'verify']) {
    const missing = await asked(runs, question, '--state', join(empty, 'nothing'))
    assert.deepEqual([missing.code, missing.stdout], [1, ''], question)
    assert.match(missing.stderr, /the state folder \S+nothing does not exist/)
    const { code, stderr } = await asked(runs, question, '--state', empty)
    assert.equal(code, 1, question)
    assert.match(stderr, /has no index of runs: a gateway makes the index when it starts/)
  }
  const args = ['report', '--framework', 'dora', '--quarter', '2026Q4', '--state', empty]
  assert.equal((await asked(evidence, ...args)).code, 1)
})

test('a quarter chooses the runs that began in the quarter', async () => {
  const { stdout } = await asked(runs, 'list', '--quarter', '2026Q3', '--state', state, '--json')
  assert.deepEqual(idsIn(stdout), ['early'])
  const days = ['--period', '2026-10-02..2026-10-03']
  assert.deepEqual(idsIn((await asked(runs, 'list', ...days, '--state', state, '--json')).stdout), [
    'run-2',
    'run-3',
  ])
  const both = await asked(runs, 'list', ...days, '--quarter', '2026Q3', '--state', state)
  assert.deepEqual([both.code, /not both/.test(both.stderr)], [2, true])
})

test('the choice of shown runs does not choose the runs of a grade', async () => {
  const gradesOf = async (...args: string[]) => {
    const { stdout } = await asked(runs, 'list', '--plan', 'drill', '--state', state, '--json', ...args)
    const { runs: shown, grades } = JSON.parse(stdout) as {
      runs: unknown[]
      grades: { passed: number; failed: number }[]
    }
    return [shown.length, grades[0]?.passed, grades[0]?.failed]
  }
  assert.deepEqual(await gradesOf(), [5, 4, 1])
  assert.deepEqual(await gradesOf('--verdict', 'failed'), [1, 4, 1])
  const { stdout } = await asked(runs, 'list', '--last', '2', '--state', state, '--json')
  const { runs: shown, grades } = JSON.parse(stdout) as { runs: unknown[]; grades: { passed: number }[] }
  assert.deepEqual([shown.length, grades[0]?.passed], [2, 2], 'the last 2 of each plan')
})

test('a run shows units, the claim without a proof, and the text of each reason', async () => {
  const weak = (await asked(runs, 'show', 'weak', '--state', state)).stdout
  assert.match(weak, /^verdict: held \(weak\)\n {2}not proven: p99 < 6s$/m)
  assert.match(weak, /^error_ratio < 5% +proven +0\.4 % +0\.1 % to 1\.23 % +200$/m)
  assert.match(weak, /^p99 < 6s +held +4\.6s +at least 4\.2s +200$/m)
  const { stdout } = await asked(runs, 'show', 'empty', '--state', state)
  assert.match(stdout, /^ {2}below_floor: the treatment had fewer than 30 calls in a stage$/m)
})

test('nothing is due, and says why, when no plan has an interval', async () => {
  const { code, stdout } = await asked(runs, 'due', '--state', state)
  assert.deepEqual([code, stdout], [0, 'no run of a plan with `every`, so nothing is due\n'])
})

test('each answer from a damaged index warns, and a report says so in its text', async () => {
  const damaged = await newFolder()
  await indexed(damaged, [summary(1, { at: dayMs('2026-10-01'), verdict: 'failed' })])
  const text = await readFile(indexPath(damaged), 'utf8')
  await writeFile(indexPath(damaged), text.replace('"verdict":"failed"', '"verdict":"passed"'))
  const { stderr } = await asked(runs, 'list', '--state', damaged)
  assert.match(stderr, /the index of runs is damaged: line 2 of .+ was changed/)
  assert.match(stderr, /the answer has 0 readable runs only, and runs may be missing/)
  const args = ['report', '--framework', 'dora', '--quarter', '2026Q4', '--state', damaged]
  const report = await asked(evidence, ...args)
  assert.match(report.stdout, /^- The index of runs cannot be trusted, so runs may be missing or wrong: /m)
  assert.doesNotMatch((await asked(evidence, ...args.slice(0, -1), state)).stdout, /cannot be trusted/)
})

test('verify asks for the public key of an unknown signer, and finds trusted keys in the default config', async (t) => {
  const folder = await newFolder()
  await indexed(folder, [summary(1)])
  const { pem, publicText } = newKey('a passphrase of tests')
  const anchor = anchorOf(await checkIndex(folder), dayMs('2026-10-01'))!
  const key = openPrivateKey(pem, 'a passphrase of tests')!
  const signed = { anchor, signature: sign('anchor', anchor, key, 'ops-1') }
  await appendFile(join(folder, 'runs.anchors.jsonl'), `${JSON.stringify(signed)}\n`)
  const unknown = await asked(runs, 'verify', '--state', folder)
  assert.equal(unknown.code, 1)
  assert.match(unknown.stdout, /no public key of ops-1 is known: give --trust ops-1=PUBLICKEY/)
  const trusting = ['verify', '--state', folder, '--trust', `ops-1=${publicText}`]
  const copies = join(await newFolder(), 'copies.jsonl')
  const other = { ...anchor, line: 9 }
  const older = { anchor: other, signature: sign('anchor', other, key, 'ops-1') }
  await writeFile(copies, `${JSON.stringify(older)}\n`)
  const cut = await asked(runs, ...trusting, '--anchors', copies)
  assert.equal(cut.code, 1)
  assert.match(
    cut.stdout,
    /^line 1 of .+copies\.jsonl: the anchor of .+ knows 9 lines, and the index has 2$/m,
  )
  const home = await newFolder()
  const trust = `controlMcp: { tokens: [{ name: a, sha256: ${'a'.repeat(64)} }], trust: [{ name: ops-1, key: ${publicText} }] }`
  await writeFile(
    join(home, 'breakwater.yaml'),
    `gateway: { stateDir: ${folder}, ${trust} }\nmcpServers: {}\n`,
  )
  const before = process.cwd()
  t.after(() => process.chdir(before))
  process.chdir(home)
  const { code, stdout, stderr } = await asked(runs, 'verify')
  assert.equal(code, 0, stdout + stderr)
  assert.match(stdout, /^anchored by ops-1 at 2026-10-01T00:00:00.000Z: the first 1 run$/m)
})
