import assert from 'node:assert/strict'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { newKey, openPrivateKey, sign } from '../../../src/approval/keys.ts'
import { openKey } from '../../../src/chaos/journal/head.ts'
import { gameday } from '../../../src/commands/break/gameday.ts'
import { shownDocument } from '../../../src/commands/evidence/documents.ts'
import { evidence } from '../../../src/commands/evidence/evidence.ts'
import type { Run } from '../../../src/commands/listed.ts'
import { Terminal } from '../../../src/commands/shared/terminal.ts'
import { RunJournal } from '../../../src/evidence/journal.ts'
import { documentFormats, type Signed, signedPart } from '../../../src/evidence/signed-document.ts'
import type { GameDayRecord } from '../../../src/gamedays/record.ts'
import { gameDayDocument } from '../../../src/gamedays/report-html.ts'
import type { GameDayReport } from '../../../src/gamedays/report-shape.ts'
import { GameDayStore } from '../../../src/gamedays/store.ts'
import { BEGAN, gameDayOf, planOf, reportOf, runOf } from '../../gamedays/report-fixtures.ts'

const folder = await mkdtemp(join(tmpdir(), 'breakwater-gameday-'))
after(() => rm(folder, { recursive: true }))

async function ran(run: Run, ...args: string[]) {
  const said = { stdout: '', stderr: '' }
  const screen = (name: keyof typeof said) => ({ write: (text: string) => (said[name] += text) })
  const code = await run(args, new Terminal(screen('stdout'), screen('stderr'), {}), {})
  return { code, ...said }
}

const state = join(folder, 'state')
const days: readonly GameDayRecord[] = [
  gameDayOf({ id: 'gd-a-00000001', startedAt: BEGAN }),
  gameDayOf({ id: 'gd-a-00000002', startedAt: BEGAN + 1_000, plan: planOf({ name: 'another' }) }),
  gameDayOf({ id: 'gd-a-00000003', startedAt: BEGAN + 2_000 }),
  gameDayOf({ id: 'gd-a-00000004', startedAt: BEGAN + 3_000, state: 'paused', endedAt: undefined }),
]
await mkdir(state)
const store = await GameDayStore.open(state)
for (const day of days) await store.write(day)
const { journal } = await RunJournal.open(join(state, 'experiments'), await openKey(state))
await journal.write(runOf('run-1', 'slow'))
await journal.write(runOf('run-2', 'gone'))

const report = async (...args: string[]) => {
  const { code, stdout, stderr } = await ran(gameday, 'report', ...args, '--state', state, '--format', 'json')
  assert.deepEqual([code, stderr], [0, ''])
  return (JSON.parse(stdout) as Signed<GameDayReport>).report
}

test('a report is about an id, the latest GameDay of a name, or the latest that is over', async () => {
  assert.equal((await report('gd-a-00000001')).gameDay.id, 'gd-a-00000001')
  assert.equal((await report('another')).gameDay.id, 'gd-a-00000002')
  assert.equal((await report('payments-q4')).gameDay.id, 'gd-a-00000004')
  const last = await report()
  assert.equal(last.gameDay.id, 'gd-a-00000003')
  assert.equal(last.comparison?.id, 'gd-a-00000001')
  assert.deepEqual(
    last.experiments.map(({ runs, faults }) => [runs[0]?.record, faults.length]),
    [
      ['journal', 1],
      ['journal', 1],
    ],
  )
})

test('a missing GameDay, an empty folder and wrong arguments are refused with a sentence', async () => {
  const refused = async (...args: string[]) => {
    const { code, stdout, stderr } = await ran(gameday, ...args)
    assert.equal(stdout, '')
    return [code, stderr.split('\n')[0]]
  }
  const of = ['--state', state]
  assert.deepEqual(await refused('report', 'no\u001b[2J', ...of), [
    1,
    `breakwater: ${state} has no GameDay "no\\u001b[2J"`,
  ])
  assert.deepEqual(await refused('report', '--state', folder), [
    1,
    `breakwater: ${folder} has no GameDay that is over`,
  ])
  assert.deepEqual(await refused('report', 'a', 'b', ...of), [
    2,
    'breakwater gameday: unexpected argument "b"',
  ])
  assert.deepEqual(await refused('report', ...of, '--format', 'pdf'), [
    2,
    'breakwater gameday: --format must be one of md, html, json, not "pdf"',
  ])
  assert.deepEqual(await refused('reprt'), [
    2,
    'breakwater gameday: unknown command "reprt"; did you mean report?',
  ])
})

test('a GameDay whose file was changed is left out with its reason', async () => {
  const own = join(folder, 'changed')
  await mkdir(own)
  const changed = await GameDayStore.open(own)
  await changed.write(days[0]!)
  await changed.write(days[1]!)
  const file = join(own, 'gamedays', `${days[1]!.id}.json`)
  await writeFile(file, (await readFile(file, 'utf8')).replace('alice', 'mallo'))
  const { code, stdout, stderr } = await ran(gameday, 'report', '--state', own, '--format', 'json')
  assert.equal(code, 0)
  assert.match(stderr, /a GameDay is left out: .*gd-a-00000002\.json line 1 was changed/)
  assert.equal((JSON.parse(stdout) as Signed<GameDayReport>).report.gameDay.id, 'gd-a-00000001')
})

const PASSPHRASE = 'a passphrase of tests'
const alice = newKey(PASSPHRASE)
const stranger = newKey(PASSPHRASE)
const aliceKey = openPrivateKey(alice.pem, PASSPHRASE)!

function signed(kind: 'gameday' | 'evidence' = 'gameday'): Signed<GameDayReport> {
  const made = reportOf(gameDayOf({ by: 'a <b>person</b>\u202e' }))
  return { report: made, signature: sign(kind, signedPart(made, 'alice'), aliceKey, 'alice') }
}

async function verified(text: string, trust = alice.publicText) {
  const file = join(folder, 'signed')
  await writeFile(file, text)
  const { code, stdout, stderr } = await ran(evidence, 'verify', file, `--trust=${trust}`)
  return { code, said: `${stdout}${stderr}`.trimEnd().replace(`${file} `, '').replace('breakwater: ', '') }
}

for (const format of documentFormats)
  test(`a signed report verifies, and a changed byte does not, as ${format}`, async () => {
    const text = shownDocument(gameDayDocument, signed(), format)
    const good = await verified(text)
    assert.equal(good.code, 0, good.said)
    assert.match(
      good.said,
      /^is unchanged: GameDay payments-q4, gd-\S+, made at 2026-11-30T12:00:00\.000Z, signed by alice with key/,
    )
    assert.equal((await verified(text.trimEnd())).code, 0)
    const wrongKey = await verified(text, stranger.publicText)
    assert.equal(wrongKey.code, 1)
    assert.match(wrongKey.said, /^is signed with the key [0-9a-f]{16}, and you trust the key [0-9a-f]{16}$/)
    const step = Math.max(1, Math.floor(text.length / 150))
    for (let at = 0; at < text.length; at += step) {
      const changed = `${text.slice(0, at)}${text[at] === 'x' ? 'y' : 'x'}${text.slice(at + 1)}`
      assert.equal((await verified(changed)).code, 1, `${at}: ${changed.slice(at - 20, at + 20)}`)
    }
    for (const changed of [`${text}\n`, ` ${text}`, text.replaceAll('alice', 'mallory')])
      assert.equal((await verified(changed)).code, 1)
  })

test('a signature for another kind of document, and an unsigned report, prove nothing', async () => {
  const another = await verified(shownDocument(gameDayDocument, signed('evidence'), 'html'))
  assert.match(another.said, /^was changed: the signature does not match$/)
  const unsigned = shownDocument(gameDayDocument, { ...signed(), signature: null }, 'md')
  assert.equal((await verified(unsigned)).said, 'is not signed')
})

test('the charts of a page belong to the signed data', async () => {
  const page = shownDocument(gameDayDocument, signed(), 'html')
  assert.match(page, /id="chart-data"/)
  const hidden = page.replace(/"errors":\[[^\]]*\]/, '"errors":[]')
  assert.notEqual(hidden, page)
  assert.match(
    (await verified(hidden)).said,
    /^was changed: its text differs from the text of its signed data$/,
  )
})
