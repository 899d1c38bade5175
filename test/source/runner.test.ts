import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { isAlive } from '../support/processes.ts'
import { until } from '../support/until.ts'

const runner = fileURLToPath(new URL('../run.js', import.meta.url))

const passes = `test('passes', () => {})`
const fails = `test('fails', () => assert.fail('for good'))`
/** Passes in its second run. */
const unstable = `
  const seen = import.meta.filename + '.seen'
  test('fails at first', () => { if (!existsSync(seen)) { writeFileSync(seen, ''); assert.fail('for once') } })`
const leaves = `
  test('starts a process', () => {
    const child = spawn('sleep', ['60'], { detached: true, stdio: 'ignore' })
    child.unref()
    writeFileSync(import.meta.filename + '.pid', String(child.pid))
  })`

/** Runs files with these programs, below \`test\` by their names. */
async function run(t: TestContext, files: Readonly<Record<string, string>>, ...args: readonly string[]) {
  const folder = await mkdtemp(join(tmpdir(), 'breakwater-runner-'))
  t.after(() => rm(folder, { recursive: true }))
  const prelude = `
    import assert from 'node:assert/strict'
    import { spawn } from 'node:child_process'
    import { existsSync, writeFileSync } from 'node:fs'
    import { test } from 'node:test'\n`
  await writeFile(join(folder, 'package.json'), '{ "type": "module" }')
  for (const [name, program] of Object.entries(files)) {
    await mkdir(dirname(join(folder, name)), { recursive: true })
    await writeFile(join(folder, `${name}.test.js`), prelude + program)
  }
  const list = join(folder, 'unstable')
  const command = [runner, '--all', '--folder', folder, ...args.map((arg) => (arg === 'LIST' ? list : arg))]
  return new Promise<{ code: number; said: string; folder: string; list: () => Promise<string> }>((resolve) =>
    execFile(process.execPath, command, (error, stdout, stderr) =>
      resolve({
        code: error === null ? 0 : Number(error.code),
        said: stdout + stderr,
        folder,
        list: () => readFile(list, 'utf8'),
      }),
    ),
  )
}

test('a failed file fails the run, and the run says why', async (t) => {
  const { code, said } = await run(t, { 'e2e/good': passes, 'e2e/bad': fails })
  assert.equal(code, 1)
  assert.match(said, /^ok {5}e2e\/good: 1 tests/m)
  assert.match(said, /^FAILED e2e\/bad: 1 tests/m)
  assert.match(said, /for good/)
  assert.match(said, /^1 passed, 1 failed, 0 skipped$/m)
})

test('without a second look a file gets no second chance', async (t) => {
  assert.equal((await run(t, { 'e2e/once': unstable })).code, 1)
})

test('at a second look an unstable file passes, and is named with its first output', async (t) => {
  const { code, said, list } = await run(
    t,
    { 'e2e/once': unstable, 'e2e/good': passes },
    '--second-look',
    'LIST',
  )
  assert.equal(code, 0, said)
  assert.match(said, /^unstable:\ne2e\/once\n[^]*for once/m)
  assert.equal(await list(), 'e2e/once\n')
})

test('in a process that files share, only the failed file is run once more, and nothing is put among the tests', async (t) => {
  const files = { 'mesh/once': unstable, 'mesh/good': passes }
  const { code, said, list, folder } = await run(t, files, '--second-look', 'LIST')
  assert.equal(code, 0, said)
  assert.match(said, /^FAILED mesh: 2 tests/m)
  assert.equal(await list(), 'mesh/once\n')
  assert.deepEqual((await readdir(folder)).sort(), ['mesh', 'package.json', 'unstable'])
})

test('a file that fails twice fails the run', async (t) => {
  const { code, said } = await run(t, { 'e2e/bad': fails }, '--second-look', 'LIST')
  assert.equal(code, 1)
  assert.match(said, /^FAILED twice: e2e\/bad$/m)
})

test('more than three unstable files fail the run, although each passes at a second look', async (t) => {
  const files = Object.fromEntries([1, 2, 3, 4].map((nth) => [`e2e/once-${nth}`, unstable]))
  const { code, said } = await run(t, files, '--second-look', 'LIST')
  assert.equal(code, 1)
  assert.match(said, /^4 files are unstable, more than 3$/m)
})

test('a file without tests fails', async (t) => {
  const { code, said } = await run(t, { 'e2e/empty': '' })
  assert.equal(code, 1)
  assert.match(said, /has run no test/)
})

test('a file that leaves a process behind fails, and the process is named and ended', async (t) => {
  const { code, said, folder } = await run(t, { 'e2e/leaves': leaves })
  assert.equal(code, 1)
  const pid = Number(await readFile(join(folder, 'e2e/leaves.test.js.pid'), 'utf8'))
  assert.match(said, new RegExp(`leaves a process behind: ${pid} sleep 60`))
  await until('the process has ended', () => !isAlive(pid))
})

test('a part runs its files only, and an unknown part is refused with the names of all', async (t) => {
  const files = { 'e2e/good': passes, 'mesh/bad': fails }
  const { code, said } = await run(t, files, '--part', 'e2e')
  assert.equal(code, 0, said)
  assert.doesNotMatch(said, /mesh/)
  const refused = await run(t, files, '--part', 'e3e')
  assert.equal(refused.code, 2)
  assert.match(refused.said, /there is no part e3e; the parts are: .*\bcore, /)
})
