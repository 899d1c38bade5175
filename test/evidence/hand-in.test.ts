import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { addHandedIn, handIn, newRunId, receivedRun } from '../../src/evidence/hand-in.ts'
import { readIndex } from '../../src/evidence/read-index.ts'
import { indexPath, RunIndex } from '../../src/evidence/run-index.ts'
import { runSummary } from '../../src/evidence/summary.ts'
import { armOf, BEGAN_AT, claimOf, pairedOf, scenarioOf } from './documents.ts'
import { summary } from './runs.ts'

const folder = await mkdtemp(join(tmpdir(), 'breakwater-hand-in-'))
after(() => rm(folder, { recursive: true, force: true }))

let folders = 0
const opened = async () => {
  const own = join(folder, String(folders++))
  return { own, ...(await RunIndex.open(own, 0)) }
}

const now = BEGAN_AT + 3_600_000
const receiver = { gateway: null, bootId: 'boot', by: 'control token', now }

test('the receiver judges a document, and names itself and the credential', () => {
  const run = receivedRun(scenarioOf({ claims: [claimOf({ status: 'failed' })] }), receiver)
  assert.deepEqual(runSummary.parse(JSON.parse(JSON.stringify(run))), run)
  assert.deepEqual(
    [run.verdict, run.measuredBy, run.by, run.bootId, run.approver, run.document?.length],
    ['failed', 'client', 'control token', 'boot', null, 64],
  )
})

test('a document cannot say what only the receiver knows', () => {
  const claims = {
    verdict: 'passed',
    by: 'the boss',
    approver: 'the boss',
    approverProof: 'key',
    gateway: 'gateway-1',
    bootId: 'boot',
    measuredBy: 'gateway',
    document: 'd'.repeat(64),
  }
  for (const [field, value] of Object.entries(claims)) {
    const read = handIn.safeParse({ ...scenarioOf(), [field]: value })
    assert.equal(read.success, false, field)
  }
})

test('a document is refused when its kind, its id or its counts cannot be right', () => {
  const [fault] = scenarioOf().faults
  const [window] = scenarioOf().windows
  const wrong: Record<string, object> = {
    'a guarded run': { ...scenarioOf(), kind: 'guarded', id: 'guarded-1' },
    'a comparison by the gateway': { ...scenarioOf(), kind: 'comparison', id: 'comparison-1' },
    'a GameDay': { ...scenarioOf(), kind: 'gameday', id: 'gameday-1' },
    // The id of a guarded run: it would keep this run out of the index.
    'the id of a guarded run': { ...scenarioOf(), id: 'mx3q4cgo-1dea0915' },
    'the id of another kind': { ...scenarioOf(), id: 'paired-1' },
    'more good calls than calls': {
      ...scenarioOf(),
      arms: [{ ...armOf('treatment', 'default'), good: 301 }],
    },
    'more failed calls than calls': { ...scenarioOf(), windows: [{ ...window, failed: 1 }] },
    'a window that ends before its start': { ...scenarioOf(), windows: [{ ...window, fromMs: 60_001 }] },
    'more effects than injections': { ...scenarioOf(), faults: [{ ...fault, drawn: 49 }] },
    'more fates than effects': { ...scenarioOf(), faults: [{ ...fault, escaped: 1 }] },
    'a value outside of its interval': { ...scenarioOf(), claims: [claimOf({ value: 0.5 })] },
    'a state of guarded runs': { ...scenarioOf(), state: 'deviated' },
    'too many claims': { ...scenarioOf(), claims: Array.from({ length: 65 }, () => claimOf()) },
    'another format': { ...scenarioOf(), format: 2 },
  }
  for (const [name, document] of Object.entries(wrong))
    assert.equal(handIn.safeParse(document).success, false, name)
  assert.equal(handIn.safeParse(scenarioOf({ id: newRunId('scenario', BEGAN_AT) })).success, true)
})

test('an index takes a document once, and refuses another document with its id', async () => {
  const { own, index } = await opened()
  const first = await addHandedIn(index, scenarioOf(), receiver)
  assert.deepEqual([first.ok, first.ok && first.isNew], [true, true])
  // Keys in another order make no other document.
  const reversed = handIn.parse(Object.fromEntries(Object.entries(scenarioOf()).reverse()))
  const again = await addHandedIn(index, reversed, { ...receiver, bootId: 'another boot' })
  assert.deepEqual([again.ok, again.ok && again.isNew], [true, false])
  const other = await addHandedIn(index, scenarioOf({ claims: [claimOf({ status: 'held' })] }), receiver)
  assert.deepEqual(other, { ok: false, code: 'taken', message: 'the index has another run scenario-one' })
  await index.close()

  // The next process knows the documents of the process before.
  const next = await RunIndex.open(own, 0)
  const repeated = await addHandedIn(next.index, scenarioOf(), receiver)
  assert.deepEqual([repeated.ok, repeated.ok && repeated.isNew], [true, false])
  assert.equal((await addHandedIn(next.index, scenarioOf({ seed: '2' }), receiver)).ok, false)
  await next.index.close()
  const { runs, problems } = await readIndex(own)
  assert.deepEqual([runs.map(({ id }) => id), problems], [['scenario-one'], []])
})

test('a run of the future, and one before the year 2000, is refused', async () => {
  const { index } = await opened()
  const codeAt = async (at: number) => {
    const taken = await addHandedIn(index, scenarioOf({ id: `scenario-${at}`, at }), receiver)
    return taken.ok ? 'taken in' : taken.code
  }
  assert.equal(await codeAt(now + 1), 'implausible')
  // The run takes a minute, and a clock may be ahead by a minute.
  assert.equal(await codeAt(now), 'taken in')
  assert.equal(await codeAt(Date.UTC(2000) - 1), 'implausible')
  assert.equal(await codeAt(Date.UTC(2000)), 'taken in')
  await index.close()
})

test('a full index takes no more runs of clients', async () => {
  const full = {
    has: () => false,
    documentOf: () => null,
    bytes: 512 * 1024 ** 2,
    addRuns: () => assert.fail(),
  }
  const taken = await addHandedIn(full, scenarioOf(), receiver)
  assert.deepEqual(taken.ok || taken.code, 'full')
})

test('a document that the disk did not take is not known, and can be handed in again', async () => {
  const { own, index } = await opened()
  await index.close()
  const failed = await addHandedIn(index, scenarioOf(), receiver)
  assert.deepEqual(failed.ok || failed.code, 'unwritten')
  assert.equal(index.has('scenario-one'), false)
  const next = await RunIndex.open(own, 0)
  assert.equal((await addHandedIn(next.index, scenarioOf(), receiver)).ok, true)
  await next.index.close()
})

test('lines of an earlier build are runs that the gateway measured', async () => {
  const { own, index } = await opened()
  const { measuredBy: _, document: __, ...old } = summary(1)
  await index.addRuns([old as never, receivedRun(pairedOf(), receiver)], 5)
  await index.close()
  assert.ok(!(await readFile(indexPath(own), 'utf8')).split('\n')[1]!.includes('measuredBy'))
  const { runs, problems } = await readIndex(own)
  assert.deepEqual([runs.map(({ measuredBy }) => measuredBy), problems], [['gateway', 'client'], []])
  const next = await RunIndex.open(own, 0)
  assert.equal(next.problem, undefined)
  await next.index.close()
})
