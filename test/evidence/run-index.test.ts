import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import {
  appendFile,
  cp,
  mkdtemp,
  readdir,
  readFile,
  rm,
  symlink,
  truncate,
  writeFile,
} from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { promisify } from 'node:util'
import { newKey, openPrivateKey, sign } from '../../src/approval/keys.ts'
import { chainHash, formatLine } from '../../src/chaos/journal/chain.ts'
import { readKey, writeHead } from '../../src/chaos/journal/head.ts'
import { anchorOf, unprovenBy } from '../../src/evidence/anchor.ts'
import { drained } from '../../src/chaos/journal/read-chain.ts'
import { checkIndex, readIndex, readRuns } from '../../src/evidence/read-index.ts'
import { indexPath, RunIndex } from '../../src/evidence/run-index.ts'
import type { RunField, Wanted } from '../../src/evidence/stored-run.ts'
import type { RunSummary } from '../../src/evidence/summary.ts'
import { summary } from './runs.ts'

const folder = await mkdtemp(join(tmpdir(), 'breakwater-index-'))
after(() => rm(folder, { recursive: true, force: true }))

let folders = 0

/** Writes an index of `count` runs in a folder of its own. */
async function written(count: number): Promise<string> {
  const own = join(folder, String(folders++))
  const { index } = await RunIndex.open(own, 0)
  for (let at = 0; at < count; at++) await index.addRuns([summary(at)], at)
  await index.close()
  return own
}

async function copyOf(own: string): Promise<string> {
  const copy = join(folder, String(folders++))
  await cp(own, copy, { recursive: true })
  return copy
}

async function runsOf(own: string): Promise<readonly RunSummary[]> {
  const runs: RunSummary[] = []
  await drained(readRuns(own), (run) => runs.push(run))
  return runs
}

const idsOf = async (own: string) => (await runsOf(own)).map(({ id }) => id)

test('an index keeps runs over processes, each once', async () => {
  const own = await written(3)
  const { index, problem } = await RunIndex.open(own, 0)
  assert.equal(problem, undefined)
  await index.addRuns([summary(1)], 9)
  await index.addRuns([summary(3)], 9)
  await index.close()
  assert.deepEqual(await idsOf(own), ['run-0', 'run-1', 'run-2', 'run-3'])
  assert.deepEqual((await checkIndex(own)).problems, [])
})

test('an index tells each run once, of earlier processes and of a damaged index as well', async () => {
  const own = await written(3)
  const told: string[] = []
  const tell = (run: unknown) => void told.push((run as { id: string }).id)
  const { index } = await RunIndex.open(own, 0, tell)
  await index.addRuns([summary(2), summary(3)], 9)
  await index.close()
  assert.deepEqual(told.splice(0), ['run-0', 'run-1', 'run-2', 'run-3'])
  const lines = (await readFile(indexPath(own), 'utf8')).split('\n')
  await writeFile(indexPath(own), lines.map((line, at) => (at === 3 ? `${line}x` : line)).join('\n'))
  const damaged = await RunIndex.open(own, 0, tell)
  assert.ok(damaged.problem !== undefined)
  await damaged.index.addRuns([summary(4)], 9)
  await damaged.index.close()
  assert.deepEqual(told, ['run-0', 'run-1', 'run-4'])
})

test('a process that ends at any byte of a line loses this line only, and the index says so', async () => {
  const own = await written(4)
  const before = await readFile(indexPath(own))
  const head = await readFile(join(own, 'runs.head'))
  const next = await RunIndex.open(own, 0)
  await next.index.addRuns([summary(4)], 5)
  await next.index.close()
  const { length } = await readFile(indexPath(own))
  for (let cut = 0; cut < 200; cut++) {
    const size = before.length + 1 + Math.floor(((length - before.length - 2) * cut) / 199)
    const copy = await copyOf(own)
    await truncate(indexPath(copy), size)
    await writeFile(join(copy, 'runs.head'), head)
    const torn = await checkIndex(copy)
    assert.equal(torn.problems.length, 1, `cut at ${size}`)
    assert.match(torn.problems[0]!, /cut off in the middle/)
    const opened = await RunIndex.open(copy, 7)
    assert.match(String(opened.problem), /the last line of .* was cut/)
    await opened.index.addRuns([summary(9)], 8)
    await opened.index.close()
    assert.deepEqual(await idsOf(copy), ['run-0', 'run-1', 'run-2', 'run-3', 'run-9'])
    const { cuts, problems } = await checkIndex(copy)
    assert.deepEqual([cuts, problems], [1, []])
    await rm(copy, { recursive: true })
  }
})

test('a changed, removed, swapped or forged line is found', async () => {
  const own = await written(5)
  const lines = (await readFile(indexPath(own), 'utf8')).split('\n')
  const changes: Record<string, (all: string[]) => string[]> = {
    changed: (all) => all.map((line, at) => (at === 2 ? line.replace('passed', 'failed') : line)),
    removed: (all) => all.filter((_, at) => at !== 2),
    swapped: (all) => [all[0]!, all[2]!, all[1]!, ...all.slice(3)],
    forged: (all) => [
      ...all.slice(0, 3),
      all[3]!.replace(/"hash":"\w{8}/, '"hash":"00000000'),
      ...all.slice(4),
    ],
    'without its end': (all) => [...all.slice(0, -2), ''],
  }
  for (const [name, change] of Object.entries(changes)) {
    const copy = await copyOf(own)
    await writeFile(indexPath(copy), change(lines).join('\n'))
    assert.ok((await checkIndex(copy)).problems.length > 0, name)
    const { index, problem } = await RunIndex.open(copy, 0)
    await index.close()
    assert.notEqual(problem, undefined, name)
    assert.match(
      (await checkIndex(copy)).problems.join(),
      /records earlier damage/,
      `${name}: the damage is kept`,
    )
  }
})

test('an anchor finds a change by somebody who has the key of the folder', async () => {
  const own = await written(5)
  const { pem, publicText } = newKey('a passphrase of tests')
  const anchor = anchorOf(await checkIndex(own), 0)!
  const signed = {
    anchor,
    signature: { ...sign('anchor', anchor, openPrivateKey(pem, 'a passphrase of tests')!, 'alice') },
  }
  const trusted = new Map([['alice', publicText]])
  assert.equal(unprovenBy(signed, await checkIndex(own), trusted), undefined)
  // Later runs do not matter.
  const { index } = await RunIndex.open(own, 0)
  await index.addRuns([summary(5)], 5)
  await index.close()
  assert.equal(unprovenBy(signed, await checkIndex(own), trusted), undefined)
  // The forger has the folder with its key, and writes a whole new index.
  const forged = await copyOf(own)
  await rm(indexPath(forged))
  await rm(join(forged, 'runs.head'))
  const other = await RunIndex.open(forged, 0)
  for (let at = 0; at < 6; at++)
    await other.index.addRuns([summary(at, at === 2 ? { verdict: 'failed' } : {})], at)
  await other.index.close()
  const read = await checkIndex(forged)
  assert.deepEqual(read.problems, [], 'the chain alone does not find the forger')
  assert.match(String(unprovenBy(signed, read, trusted)), /a line before the anchor .* was changed/)
  assert.match(String(unprovenBy(signed, await checkIndex(await written(2)), trusted)), /knows 6 lines/)
  assert.match(String(unprovenBy(signed, await checkIndex(own), new Map())), /not trusted/)
  const bad = { ...signed, anchor: { ...anchor, runs: 4 } }
  assert.match(String(unprovenBy(bad, await checkIndex(own), trusted)), /signature of alice is not valid/)
})

test('a line that is no summary is left out of the runs, and is no damage', async () => {
  const own = await written(2)
  const { index } = await RunIndex.open(own, 0)
  await index.addRuns([{ ...summary(2), format: 2 } as never], 3)
  await index.close()
  assert.deepEqual(await idsOf(own), ['run-0', 'run-1'])
  assert.equal((await readIndex(own)).unread, 1)
  await appendFile(indexPath(own), 'no line\n')
  assert.match((await checkIndex(own)).problems.join(), /is no line of a journal/)
})

test('each damaged index is kept: a second damage overwrites no evidence of the first', async () => {
  const own = await written(4)
  const damaged: Buffer[] = []
  for (let time = 0; time < 3; time++) {
    const lines = (await readFile(indexPath(own), 'utf8')).split('\n')
    await writeFile(indexPath(own), [...lines.slice(0, -2), `changed ${time}`, ''].join('\n'))
    damaged.push(await readFile(indexPath(own)))
    const { index, problem } = await RunIndex.open(own, time)
    await index.close()
    assert.match(String(problem), /is no line of a journal/)
  }
  const names = (await readdir(own)).filter((name) => name.includes('damaged')).sort()
  assert.deepEqual(names, ['runs.jsonl.damaged', 'runs.jsonl.damaged.2', 'runs.jsonl.damaged.3'])
  for (const [at, name] of names.entries()) assert.deepEqual(await readFile(join(own, name)), damaged[at])
})

test('an index without the key of its folder is damaged, and no empty index', async () => {
  const own = await written(2)
  await rm(join(own, 'chaos-journal.key'))
  assert.match(String((await readIndex(own)).damage), /the key of .* is missing/)
  await rm(indexPath(own))
  assert.match(String((await readIndex(own)).damage), /the key of .* is missing/)
})

test('a line without an end is no line, and a device is no index', async () => {
  const own = await written(1)
  await appendFile(indexPath(own), Buffer.alloc(17 * 1024 ** 2, 'x'))
  assert.match(String((await readIndex(own)).damage), /line 3 of .* is longer than/)
  await rm(indexPath(own))
  await symlink('/dev/zero', indexPath(own))
  await assert.rejects(readIndex(own), /runs.jsonl is no regular file/)
  await assert.rejects(RunIndex.open(own, 0), /runs.jsonl is no regular file/)
})

test('a run counts once, however often somebody with the key writes its line', async () => {
  const own = await written(2)
  const key = (await readKey(own))!
  const { hashes } = await readIndex(own)
  const [, record = ''] = /"record":(.*)\}\n$/.exec(await readFile(indexPath(own), 'utf8')) ?? []
  const hash = chainHash(key, hashes.at(-1)!, record)
  await appendFile(indexPath(own), formatLine(hash, record))
  await writeHead(join(own, 'runs.head'), key, { file: 1, oldest: 1, line: 4, hash })
  const { runs, problems } = await readIndex(own)
  assert.deepEqual([runs.length, problems], [2, ['has run run-1 twice']])
  const { index } = await RunIndex.open(own, 0)
  await index.addRuns([summary(7), summary(7)], 9)
  await index.close()
  assert.deepEqual((await readIndex(own)).problems, ['has run run-1 twice'])
})

const hasLimits = process.platform !== 'win32'

test(
  'a full disk loses no line of the index, and the refused runs can come again',
  { skip: !hasLimits },
  async () => {
    const own = await written(1)
    const built = (path: string) => new URL(`../../${path}`, import.meta.url).href
    const script = `
    import { RunIndex } from '${built('src/evidence/run-index.js')}'
    import { summary } from '${built('test/evidence/runs.js')}'
    const { index } = await RunIndex.open(process.argv[1], 0)
    let [at, refused] = [10, undefined]
    while (refused === undefined)
      await index.addRuns([summary(at++), summary(at++)], 0).catch((error) => (refused = error.code))
    console.log(at, refused, index.has(\`run-\${at - 1}\`))
    await index.close()`
    // The file of the index can grow to 10 kB, or 20 kB: shells count differently.
    const { stdout } = await promisify(execFile)('/bin/sh', [
      ...['-c', 'ulimit -f 20; exec "$0" "$@"', process.execPath],
      ...['--input-type=module', '-e', script, own],
    ])
    const [at, refused, has] = stdout.trim().split(' ')
    assert.deepEqual([refused, has], ['EFBIG', 'false'])
    const read = await readIndex(own)
    assert.deepEqual([read.runs.length, read.problems], [1 + Number(at) - 12, []])
  },
)
test('an index that is damaged again keeps both damaged files, and all runs that can be read', async () => {
  const own = await written(5)
  for (const [cut, aside] of [
    [5, '.damaged'],
    [3, '.damaged.2'],
  ] as const) {
    const lines = (await readFile(indexPath(own), 'utf8')).split('\n')
    const damaged = [...lines.slice(0, cut), 'no line', ''].join('\n')
    await writeFile(indexPath(own), damaged)
    const { index, problem } = await RunIndex.open(own, 0)
    await index.close()
    assert.match(String(problem), /is no line of a journal/)
    assert.equal(await readFile(`${indexPath(own)}${aside}`, 'utf8'), damaged)
    assert.equal((await idsOf(own)).length, cut - 1)
  }
})

test('a reader gets the fields, arms and runs that it wants, and the chain is checked all the same', async () => {
  const own = join(folder, String(folders++))
  const { index } = await RunIndex.open(own, 0)
  const [window] = summary().windows
  const windows = ['control', 'treatment'].map((arm) => ({ ...window!, arm, cells: cells.slice() }))
  const runs = [summary(0, { windows }), summary(1, { name: 'a "cells":"1:2" b', windows })]
  await index.addRuns(runs, 0)
  await index.close()
  assert.deepEqual(await runsOf(own), runs, 'everything')
  const of = async <Field extends RunField>(wanted: Wanted<Field>) => {
    const found: Pick<RunSummary, Field>[] = []
    const check = await drained(readRuns(own, wanted), (run) => found.push(run))
    return { found, check }
  }
  const { found: treated } = await of({ arms: ['treatment'] })
  assert.deepEqual(
    treated.map((run) => run.windows.map((one) => one.cells)),
    [
      [[], cells],
      [[], cells],
    ],
  )
  const { found: bare } = await of({ arms: [] })
  assert.deepEqual(
    bare,
    runs.map((run) => ({ ...run, windows: windows.map((one) => ({ ...one, cells: [] })) })),
  )
  const { found: names } = await of({ fields: ['name'], only: ({ id }) => id === 'run-1' })
  assert.deepEqual(
    names.map(({ name }) => name),
    ['a "cells":"1:2" b'],
  )
  // A change of durations that nobody asks for is found.
  const text = await readFile(indexPath(own), 'utf8')
  await writeFile(indexPath(own), text.replace('7:300', '7:301'))
  const { found, check } = await of({ fields: ['id'] })
  assert.deepEqual(found, [])
  assert.match(check.problems.join(), /line 2 of .* was changed/)
})

const cells: [number, number][] = [
  [0, 1],
  [7, 300],
  [1_234, 20],
]
