import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { printingOf, withOutputs } from '../../../docs/generate/outputs.ts'
import { commands } from '../../../src/commands/index.ts'
import { cleanUp, newFolder } from '../../e2e/support/gateway.ts'
import { bound } from '../../support/bound.ts'
import { main } from '../../support/main.ts'

after(cleanUp)

const docs = fileURLToPath(new URL('../../../docs/generate/blast-radius.js', import.meta.url))
const run = promisify(execFile)

/** The table and the pictures of this command share one simulation. */
const SWEEP = 'sweep --only none,default --seeds 5'

/** The page with the outputs of some commands; outputs of other commands count as plain text. */
const pageOf = (page: string, isAmong: (line: string) => boolean) =>
  page.replace(/<!-- breakwater (.*) -->/g, (all, line: string) =>
    isAmong(line) ? all : `<!-- elsewhere: ${line} -->`,
  )

/** True if a study's own test compares the findings with the page, so that no study runs twice. */
const isComparedElsewhere = (line: string) => {
  const [, name] = /^study (\S+) /.exec(line) ?? []
  const path = `test/sim/studies/${name}.test.ts`
  return (
    name !== undefined && existsSync(path) && readFileSync(path, 'utf8').includes(`runAsShown('${name}')`)
  )
}

// In separate processes: within a test, each promise of a simulation costs several times as much.
test('the page about blast radius and its pictures are what its commands make (npm run docs)', async () => {
  const page = await readFile('docs/blast-radius.md', 'utf8')
  assert.ok((page.match(/<!-- breakwater /g) ?? []).length >= 6)
  const swept = pageOf(page, (line) => line === SWEEP)
  const others = pageOf(page, (line) => line !== SWEEP && !isComparedElsewhere(line))
  assert.ok(swept.includes(`<!-- breakwater ${SWEEP} -->`))
  const [folder, made] = await Promise.all([newFolder(), newFolder()])
  await mkdir(join(folder, 'docs'))
  await writeFile(join(folder, 'docs', 'blast-radius.md'), swept)
  const [, printed] = await Promise.all([
    run(process.execPath, [docs, made], { cwd: folder, env: bound() }),
    withOutputs(others, async (args) => {
      const { stdout } = await run(process.execPath, [main, ...args], { env: bound() })
      return stdout.replace(/[ ]+$/gm, '').trim()
    }),
  ])
  assert.equal(printed, others)
  assert.equal(await readFile(join(made, 'blast-radius.md'), 'utf8'), swept)
  const pictures = await readdir(join(made, 'blast-radius'))
  assert.deepEqual(await readdir('docs/blast-radius'), pictures)
  for (const name of pictures) {
    const path = `blast-radius/${name}`
    assert.equal(await readFile(`docs/${path}`, 'utf8'), await readFile(join(made, path), 'utf8'), path)
    assert.ok(page.includes(path), `the page shows ${path}`)
  }
})

test('a changed output is written anew, and a failing command is reported', async () => {
  const stale = 'Before.\n\n<!-- breakwater version -->\n\n```text\nold\n```\n\nBehind.\n'
  const fresh = await withOutputs(stale, () => Promise.resolve('new'))
  assert.equal(fresh, stale.replace('old', 'new'))
  await assert.rejects(printingOf(commands)(['demo', '--tasks', '0']), /ended with 2: .*--tasks/)
})
