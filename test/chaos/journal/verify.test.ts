import assert from 'node:assert/strict'
import { createSecretKey } from 'node:crypto'
import {
  appendFile,
  copyFile,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  writeFile,
} from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { chainHash, formatLine } from '../../../src/chaos/journal/chain.ts'
import { JournalFile } from '../../../src/chaos/journal/file.ts'
import { headPath } from '../../../src/chaos/journal/head.ts'
import { type JournalCheck, verifyJournal } from '../../../src/chaos/journal/verify.ts'
import { chaos } from '../../../src/commands/break/chaos.ts'
import { ManualClock } from '../../support/manual-clock.ts'

/** A journal of 20 entries in files of 4 entries. Three older files are kept, so entries 5 to 20 exist. */
async function setUp(t: TestContext) {
  const folder = await mkdtemp(join(tmpdir(), 'verify-'))
  t.after(() => rm(folder, { recursive: true }))
  const state = join(folder, 'state')
  const path = join(folder, 'chaos.jsonl')
  const errors: string[] = []
  const open = () =>
    new JournalFile({
      path,
      keptIn: state,
      maxSize: 700,
      keep: 3,
      clock: new ManualClock(),
      onError: (why) => void errors.push(why),
    })
  const write = async (from: number, to: number) => {
    const file = open()
    for (let seq = from; seq <= to; seq++) {
      file.append({ kind: 'control', seq, at: 0, type: 'armed', by: 'me' })
      await file.flush()
    }
    await file.close()
  }
  await write(1, 20)
  const linesOf = async (file: string) => (await readFile(file, 'utf8')).split('\n').slice(0, -1)
  const put = (file: string, lines: readonly string[]) =>
    writeFile(file, lines.map((line) => `${line}\n`).join(''))
  const verify = () => verifyJournal(path, state)
  return { folder, state, path, errors, write, linesOf, put, verify }
}

const told = ({ problems }: JournalCheck) =>
  problems.map(({ file, line, why }) => `${file.replace(/.*\//, '')}:${line ?? ''} ${why}`)

test('a journal that is whole is said to be, over its files and over processes that wrote it', async (t) => {
  const { state, write, verify } = await setUp(t)
  const { entries, files, dropped, problems } = await verify()
  assert.deepEqual([entries > 8, files, dropped, problems], [true, 4, 0, []])
  await write(21, 22)
  assert.deepEqual((await verify()).problems, [])
  assert.equal((await stat(join(state, 'chaos-journal.key'))).mode & 0o777, 0o600)
})

type Journal = Awaited<ReturnType<typeof setUp>>

interface Damage {
  readonly title: string
  readonly does: (journal: Journal) => Promise<unknown>
  readonly told: RegExp
}

/** Recomputes a chain over the same lines without the key, as an attacker would. */
async function recompute(
  { path, linesOf, put }: Journal,
  key: ReturnType<typeof createSecretKey>,
): Promise<void> {
  const lines = await linesOf(path)
  let last = (JSON.parse(lines[0]!) as { record: { previous: string } }).record.previous
  const made = lines.map((line) => {
    const record = line.slice(line.indexOf('"record":') + 9, -1).replace('"by":"me"', '"by":"it"')
    last = chainHash(key, last, record)
    return formatLine(last, record).trimEnd()
  })
  await put(path, made)
}

const damages: readonly Damage[] = [
  {
    title: 'a changed line',
    does: async ({ path, linesOf, put }) => {
      const lines = await linesOf(`${path}.1`)
      await put(`${path}.1`, lines.with(1, lines[1]!.replace('"by":"me"', '"by":"it"')))
    },
    told: /^chaos\.jsonl\.1:2 was changed/,
  },
  {
    title: 'a line taken out of the middle',
    does: async ({ path, linesOf, put }) => put(`${path}.1`, (await linesOf(`${path}.1`)).toSpliced(1, 1)),
    told: /^chaos\.jsonl\.1:2 was changed, or made without the key, or a line before it is missing/,
  },
  {
    title: 'a line that is there twice',
    does: async ({ path, linesOf, put }) => {
      const lines = await linesOf(path)
      await put(path, [...lines, lines.at(-1)!])
    },
    told: /^chaos\.jsonl:\d was changed/,
  },
  {
    title: 'the end of the newest file cut off',
    does: async ({ path, linesOf, put }) => put(path, (await linesOf(path)).slice(0, -1)),
    told: /^chaos\.jsonl:(\d) is missing: the gateway wrote \1 lines to the file, and \d of them are there/,
  },
  {
    title: 'the same within a line',
    does: async ({ path }) => writeFile(path, (await readFile(path, 'utf8')).slice(0, -9)),
    told: /^chaos\.jsonl:(\d) is missing: the gateway wrote \1 lines to the file, and \d of them are there/,
  },
  {
    title: 'the end of an older file cut off',
    does: async ({ path, linesOf, put }) => put(`${path}.2`, (await linesOf(`${path}.2`)).slice(0, -1)),
    told: /^chaos\.jsonl\.1:1 does not continue .*chaos\.jsonl\.2/,
  },
  {
    title: 'the beginning of a file missing',
    does: async ({ path, linesOf, put }) => put(path, (await linesOf(path)).slice(1)),
    told: /^chaos\.jsonl:1 is not the first line of a file/,
  },
  {
    title: 'the newest file removed',
    does: ({ path }) => rm(path),
    told: /^chaos\.jsonl: file \d+ of the journal is missing/,
  },
  {
    title: 'the newest file emptied',
    does: ({ path }) => writeFile(path, ''),
    told: /^chaos\.jsonl: is empty: file \d+ of the journal is missing/,
  },
  {
    title: 'a file in the middle removed',
    does: ({ path }) => rm(`${path}.2`),
    told: /^chaos\.jsonl\.1: file \d+ of the journal is missing/,
  },
  {
    title: 'the oldest file removed',
    does: ({ path }) => rm(`${path}.3`),
    told: /^chaos\.jsonl\.2: file \d+ of the journal is missing/,
  },
  {
    title: 'two files exchanged',
    does: async ({ path }) => {
      await rename(`${path}.1`, `${path}.x`)
      await rename(`${path}.2`, `${path}.1`)
      await rename(`${path}.x`, `${path}.2`)
    },
    told: /exchanged/,
  },
  {
    title: 'a file in the place of another',
    does: ({ path }) => copyFile(`${path}.2`, path),
    told: /exchanged|missing/,
  },
  {
    title: 'all files removed',
    does: ({ path }) => Promise.all(['', '.1', '.2', '.3'].map((end) => rm(`${path}${end}`))),
    told: /^chaos\.jsonl: files \d+ to \d+ of the journal are missing/,
  },
  {
    title: 'a chain that was computed anew, with another key',
    does: (journal) => recompute(journal, createSecretKey(Buffer.alloc(32))),
    told: /^chaos\.jsonl:1 was changed, or made without the key/,
  },
  {
    title: 'a head that was removed',
    does: ({ state, path }) => rm(headPath(state, path)),
    told: /^chaos\.jsonl: has no head/,
  },
  {
    title: 'a head that was written to fit a shorter journal',
    does: async ({ state, path, linesOf, put }) => {
      await put(path, (await linesOf(path)).slice(0, -1))
      const head = headPath(state, path)
      const text = await readFile(head, 'utf8')
      await writeFile(
        head,
        text.replace(/"line":(\d+)/, (_, line) => `"line":${Number(line) - 1}`),
      )
    },
    told: /^chaos\.jsonl: has a head that was made without the key/,
  },
  {
    title: 'a key that was removed',
    does: ({ state }) => rm(join(state, 'chaos-journal.key')),
    told: /cannot be checked: there is no key/,
  },
]

for (const { title, does, told: expected } of damages) {
  test(`${title} is noticed, and where; the command says so and exits with 1`, async (t) => {
    const journal = await setUp(t)
    await does(journal)
    const problems = told(await journal.verify())
    assert.ok(
      problems.some((problem) => expected.test(problem)),
      problems.join('\n'),
    )
    const { code, stdout, stderr } = await command('--journal', journal.path, '--state', journal.state)
    assert.deepEqual([code, stdout], [1, ''])
    assert.match(stderr, /^breakwater: .*chaos\.jsonl/)
  })
}

async function command(...args: readonly string[]) {
  let stdout = ''
  let stderr = ''
  const out = {
    stdout: (line: string) => void (stdout += `${line}\n`),
    stderr: (line: string) => void (stderr += `${line}\n`),
  }
  return { code: await chaos(['verify', ...args], out, {}), stdout, stderr }
}

test('the command names entries by their seq, which is no number of a line, and files with a colon', async (t) => {
  const { path, state, linesOf, put } = await setUp(t)
  const verified = () => command('--journal', path, '--state', state)
  await put(path, (await linesOf(path)).slice(0, -1))
  assert.match(
    (await verified()).stderr,
    / is missing: the gateway wrote \d+ lines to the file, and \d+ of them are there \(after the entry with seq \d+\)\n$/,
  )
  await writeFile(path, '')
  assert.match((await verified()).stderr, /chaos\.jsonl: is empty: file \d+ of the journal is missing\n$/)
})

test('a good chain with a gap is not whole: the command says how many entries were never written, and exits with 1', async (t) => {
  const { path, state, write } = await setUp(t)
  await appendFile(path, '{"hash":"0123')
  await write(21, 21)
  const { code, stdout, stderr } = await command('--journal', path, '--state', state)
  assert.deepEqual([code, stdout], [1, ''])
  assert.match(
    stderr,
    /^breakwater: the journal has gaps: \d+ entries in \d files, and 1 more not written; a running gateway/,
  )
})

test('the command says how many entries a good one has, by its file or by the config that names it', async (t) => {
  const { folder, path, state } = await setUp(t)
  const byFile = await command('--journal', path, '--state', state)
  assert.match(byFile.stdout, /^the journal is whole: \d+ entries in 4 files\n$/)
  assert.deepEqual([byFile.code, byFile.stderr], [0, ''])
  const config = join(folder, 'gateway.yaml')
  await writeFile(
    config,
    JSON.stringify({
      gateway: { stateDir: state, environment: 'test' },
      mcpServers: { a: { command: 'true' } },
      chaos: { journal: { file: path } },
    }),
  )
  assert.equal((await command('--config', config)).stdout, byFile.stdout)
  const json = await command('--config', config, '--json')
  assert.equal((JSON.parse(json.stdout) as { ok: boolean }).ok, true)
  assert.equal((await command()).code, 2)
  assert.equal((await command('--config', config, '--journal', path)).code, 2)
})

test('the next process does not continue a newest file that was cut, and verification keeps reporting the cut', async (t) => {
  const { path, linesOf, put, write, verify, errors } = await setUp(t)
  await put(path, (await linesOf(path)).slice(0, -1))
  await write(21, 21)
  assert.match(errors[0] ?? '', /contradicts its head: .*; it is kept as .*\.damaged/)
  assert.match(told(await verify()).join(), /file \d+ of the journal is missing/)
})

for (const [title, damage] of [
  ['no head', rm],
  ['a head that was forged', (head: string) => writeFile(head, '{}')],
] as const)
  test(`the next process does not begin a journal that looks whole after one with ${title}`, async (t) => {
    const { state, path, write, verify } = await setUp(t)
    // One file is left, yet `verify` notices the loss of older files.
    for (const name of ['.1', '.2', '.3']) await rm(`${path}${name}`)
    await damage(headPath(state, path))
    assert.notDeepEqual(told(await verify()), [])
    await write(21, 22)
    assert.ok((await verify()).dropped >= 1)
    assert.equal((await command('--journal', path, '--state', state)).code, 1)
  })

test('a journal whose folder vanished under its process does not look whole afterwards', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'verify-'))
  t.after(() => rm(folder, { recursive: true }))
  const own = join(folder, 'own')
  const path = join(own, 'chaos.jsonl')
  const parts = { path, keptIn: own, maxSize: 1024 ** 2, keep: 3, clock: new ManualClock() }
  const file = new JournalFile({ ...parts, onError: () => undefined })
  const write = async (seq: number) => {
    file.append({ kind: 'control', seq, at: 0, type: 'armed', by: 'me' })
    await file.flush()
  }
  for (const seq of [1, 2, 3]) await write(seq)
  await rm(own, { recursive: true })
  // The first write fails: the folder is gone. The folder is made again for the key, and all waiting entries go there.
  for (const seq of [4, 5]) await write(seq)
  await file.close()
  const { entries, dropped, problems } = await verifyJournal(path, own)
  assert.deepEqual([entries, dropped, problems], [2, 3, []])
})

test('a process that ended between a file and its head has lost nothing, and nothing looks wrong', async (t) => {
  const { state, path, write, verify, errors } = await setUp(t)
  const head = headPath(state, path)
  const fileIn = (text: string) => /"file":(\d+)/.exec(text)?.[1]
  for (let seq = 21, before = ''; ; seq++) {
    before = await readFile(head, 'utf8')
    await write(seq, seq)
    const isSameFile = fileIn(before) === fileIn(await readFile(head, 'utf8'))
    if (isSameFile) await writeFile(head, before)
    if (isSameFile) break
  }
  assert.deepEqual((await verify()).problems, [])
  await write(99, 99)
  assert.deepEqual([(await verify()).problems, errors], [[], []])
})

test('a missing journal fails verification, and verification writes nothing', async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'verify-'))
  t.after(() => rm(folder, { recursive: true }))
  await mkdir(join(folder, 'state'))
  assert.equal((await command('--journal', join(folder, 'none.jsonl'))).code, 1)
  assert.deepEqual(await readdir(join(folder, 'state')), [])
})
