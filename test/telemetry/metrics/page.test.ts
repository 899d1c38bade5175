import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Page } from '../../../src/telemetry/metrics/exposition.ts'

test('appended text is in the page in UTF-8, at any distance from the expected length', () => {
  const texts = ['', 'plain ', 'größe ', '検索 ', '🔍 ', 'x'.repeat(5_000), '検'.repeat(5_000)]
  for (const expected of [0, 7, 100_000]) {
    const page = new Page(expected)
    for (const text of texts) page.add(text)
    assert.equal(page.bytes.toString(), texts.join(''))
  }
})
