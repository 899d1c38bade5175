import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { applyPatch } from 'diff'
import { parse } from 'yaml'
import { UnusableInput } from '../../src/commands/shared/arguments.ts'
import { readChange } from '../../src/commands/agents/cycle/change.ts'

const FILE = 'config/drills.yaml'
const cycle = parse(await readFile('config/cycles/pool-cut.yaml', 'utf8')) as { change: { diff: string } }
const diff = cycle.change.diff.trimEnd()
const text = await readFile(FILE, 'utf8')

const read = (changed: string) => readChange(FILE, { diff: changed, effect: '', harm: '' }, process.env)

test('a report has a diff of its own that makes the checked change', async () => {
  const both = await read(diff)
  assert.match(both.diff, /^--- a\/config\/drills\.yaml\n\+\+\+ b\/config\/drills\.yaml\n@@ /)
  assert.equal(applyPatch(text, both.diff), applyPatch(text, diff.replace(/^$/gm, ' ')))
  assert.notEqual(both.diff, diff)
})

for (const [what, changed] of [
  ['lines before the header', `patch this:\n${diff}`],
  ['a rename', `diff --git a/${FILE} b/deploy.yaml\nrename from ${FILE}\nrename to deploy.yaml\n${diff}`],
  ['a rename at its end', `${diff}\nrename to deploy.yaml\n`],
  ['an ed script', `${diff}\n!sh\n`],
  ['the path of another file', diff.replaceAll(FILE, 'config/breakwater.yaml')],
  ['two paths', diff.replace(`b/${FILE}`, 'b/config/breakwater.yaml')],
  ['an empty path', diff.replaceAll(`/${FILE}`, '/')],
] as const)
  test(`a diff with ${what} is refused`, async () => {
    await assert.rejects(
      read(changed),
      (error) => error instanceof UnusableInput && error.message.startsWith('the diff '),
    )
  })
