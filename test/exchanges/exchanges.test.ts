import assert from 'node:assert/strict'
import { test } from 'node:test'
import { differences } from './compare.ts'
import { readRecord } from './record.ts'
import { playAll } from './script/index.ts'

test('every recorded exchange is the same, byte by byte', async () => {
  const recorded = await readRecord()
  assert.ok(recorded.length >= 1_000, `${recorded.length} exchanges are recorded`)
  const found = differences(recorded, await playAll())
  assert.equal(found.length, 0, found.slice(0, 10).join('\n\n'))
})
