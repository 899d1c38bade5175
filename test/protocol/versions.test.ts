import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  allowsBatches,
  isLegacyVersion,
  LATEST_LEGACY,
  legacyVersions,
  negotiate,
  onceGiven,
} from '../../src/protocol/versions.ts'

test('a version that we know is spoken as asked', () => {
  for (const version of legacyVersions) assert.equal(negotiate(version), version)
})

test('for any other version we offer the newest that we know', () => {
  for (const asked of ['2026-07-28', '1999-01-01', '', undefined, null, 7, ['2025-06-18']]) {
    assert.equal(negotiate(asked), LATEST_LEGACY)
  }
  assert.equal(LATEST_LEGACY, legacyVersions.toSorted().at(-1))
})

test('versions are distinguished from other text', () => {
  assert.ok(legacyVersions.every(isLegacyVersion))
  for (const other of ['2026-07-28', '2025-06-18 ', '', undefined, {}, ['2025-06-18']]) {
    assert.equal(isLegacyVersion(other), false)
  }
})

test('batches belong to one version only', () => {
  assert.deepEqual(legacyVersions.filter(allowsBatches), ['2025-03-26'])
})

test('a header given several times alike is sent once', () => {
  for (const alike of ['a', 'a, a', 'a,a , a']) assert.equal(onceGiven(alike), 'a')
  for (const other of ['', 'a, b', 'a,', 'a b']) assert.equal(onceGiven(other), other)
})
