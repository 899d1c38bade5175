import assert from 'node:assert/strict'
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'
import { readPage } from './pages.ts'

test('the page about connecting agents names every key of _meta and every header of the gateway', async () => {
  const files = (await readdir('src', { recursive: true })).filter((file) => file.endsWith('.ts'))
  const texts = await Promise.all(files.map((file) => readFile(join('src', file), 'utf8')))
  const found = texts.flatMap(
    (text) => text.match(/'(dev\.breakwater\/[a-z-]+|x-breakwater-[a-z-]+)'/g) ?? [],
  )
  const names = new Set(found.map((name) => name.slice(1, -1)))
  assert.ok(names.size > 10)
  const { text } = await readPage('docs/connect.md')
  assert.deepEqual(
    [...names].filter((name) => !text.includes(`\`${name}`)),
    [],
  )
})
