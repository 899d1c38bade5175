import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { test } from 'node:test'
import { commandPages } from '../../../docs/generate/commands.ts'
import { commands } from '../../../src/commands/index.ts'

test('the committed page of commands is the one that the code makes (npm run docs)', async () => {
  for (const [path, text] of Object.entries(await commandPages(commands)))
    assert.equal(await readFile(`docs/${path}`, 'utf8'), text, path)
})
