import assert from 'node:assert/strict'
import { cp, mkdtemp, readFile, rm, truncate, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { openGatewayId } from '../../src/approval/gateway-id.ts'
import { Ledger, type LedgerEntry } from '../../src/approval/ledger.ts'

const folders: string[] = []
after(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true }))))

async function newFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-ledger-'))
  folders.push(folder)
  return folder
}

const entry = (n: number): LedgerEntry => ({
  kind: 'spent',
  at: n,
  proposal: `p-${n}`,
  by: 'writer',
  run: `run-${n}`,
  envelope: 'env-test',
  nonce: undefined,
})

/** Writes ten entries; returns the folder and the file. */
async function written(): Promise<{ readonly folder: string; readonly path: string }> {
  const folder = await newFolder()
  const { ledger } = await Ledger.open(folder, 0)
  for (let n = 1; n <= 10; n++) await ledger.add(entry(n))
  await ledger.close()
  return { folder, path: join(folder, 'approvals.jsonl') }
}

/** Opens the ledger; returns its entries and damage. */
async function reopened(folder: string) {
  const { ledger, entries, damage } = await Ledger.open(folder, 99)
  await ledger.close()
  return { runs: entries.flatMap((one) => (one.kind === 'spent' ? [one.run] : [])), damage }
}

test('a ledger has all its entries after the next opening, and goes on', async () => {
  const { folder } = await written()
  assert.deepEqual((await reopened(folder)).damage, undefined)
  const { ledger } = await Ledger.open(folder, 0)
  await ledger.add(entry(11))
  await ledger.close()
  assert.equal((await reopened(folder)).runs.length, 11)
})

test('a process killed while writing loses at most the entry under way', async () => {
  const copy = await newFolder()
  const { ledger } = await Ledger.open(copy, 0)
  for (let n = 1; n <= 9; n++) await ledger.add(entry(n))
  await ledger.close()
  const whole = await readFile(join(copy, 'approvals.jsonl'))
  const tenth = Buffer.from(`{"hash":"${'0'.repeat(64)}","record":{"kind":"spent","at":10}}`)
  for (let cut = 1; cut < tenth.length; cut += 3) {
    const killed = await newFolder()
    await cp(copy, killed, { recursive: true })
    await rekeyed(copy, killed)
    await writeFile(join(killed, 'approvals.jsonl'), Buffer.concat([whole, tenth.subarray(0, cut)]))
    const { runs, damage } = await reopened(killed)
    assert.equal(damage, undefined)
    assert.equal(runs.length, 9)
  }
})

/** The name of a head depends on the path of its file: renames the copied head. */
async function rekeyed(from: string, to: string): Promise<void> {
  const { headPath } = await import('../../src/chaos/journal/head.ts')
  await cp(headPath(from, join(from, 'approvals.jsonl')), headPath(to, join(to, 'approvals.jsonl')))
}

for (const [what, change] of [
  ['a changed entry', (text: string) => text.replace('run-5', 'run-6')],
  ['a removed entry', (text: string) => text.split('\n').toSpliced(4, 1).join('\n')],
  ['swapped entries', (text: string) => swapped(text)],
  ['a removed end', (text: string) => `${text.split('\n').slice(0, 6).join('\n')}\n`],
  ['no entry at all', () => ''],
] as const)
  test(`a ledger with ${what} is damaged, and stays damaged at the next opening`, async () => {
    const { folder, path } = await written()
    await writeFile(path, change(await readFile(path, 'utf8')))
    assert.notEqual((await reopened(folder)).damage, undefined)
    const { entries } = await Ledger.open(folder, 100)
    assert.ok(entries.some(({ kind }) => kind === 'damaged'))
  })

function swapped(text: string): string {
  const lines = text.split('\n')
  ;[lines[3], lines[4]] = [lines[4]!, lines[3]!]
  return lines.join('\n')
}

test('a ledger that is gone while its head is there is damaged', async () => {
  const { folder, path } = await written()
  await rm(path)
  assert.match((await reopened(folder)).damage ?? '', /is missing/)
})

test('a gateway keeps its id, and a copied or restored folder gets another', async () => {
  const folder = await newFolder()
  const first = await openGatewayId(folder)
  assert.deepEqual(await openGatewayId(folder), { id: first.id, renewed: undefined, isKnown: true })
  const copy = await newFolder()
  await cp(folder, copy, { recursive: true })
  const copied = await openGatewayId(copy)
  assert.notEqual(copied.id, first.id)
  assert.match(copied.renewed ?? '', /was copied or restored/)
  assert.equal((await openGatewayId(copy)).id, copied.id)
  await truncate(join(folder, 'gateway-id.json'), 3)
  assert.notEqual((await openGatewayId(folder)).id, first.id)
})

test('a ledger that is damaged again keeps both damaged files, and all entries that can be read', async () => {
  const { folder, path } = await written()
  for (const [cut, aside] of [
    [8, '.damaged'],
    [4, '.damaged.2'],
  ] as const) {
    const lines = (await readFile(path, 'utf8')).split('\n')
    const damaged = [...lines.slice(0, cut), 'no line', ''].join('\n')
    await writeFile(path, damaged)
    const { runs, damage } = await reopened(folder)
    assert.match(String(damage), /is no line of a journal/)
    assert.equal(runs.length, cut - 1)
    assert.equal(await readFile(`${path}${aside}`, 'utf8'), damaged)
  }
})
