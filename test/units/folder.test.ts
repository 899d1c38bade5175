import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { makeFolder } from '../../src/units/folder.ts'

test('a folder is made with its missing parents, and an existing folder is left alone', (t) => {
  const base = mkdtempSync(join(tmpdir(), 'folder-'))
  t.after(() => rmSync(base, { recursive: true }))
  const path = join(base, 'a', 'b', 'c')
  makeFolder(path, 0o700)
  assert.equal(statSync(join(base, 'a')).mode & 0o777, 0o700)
  makeFolder(path, 0o755)
  assert.equal(statSync(path).mode & 0o777, 0o700)
  writeFileSync(join(base, 'file'), '')
  assert.throws(() => makeFolder(join(base, 'file')), { code: 'EEXIST' })
  assert.throws(() => makeFolder(join(base, 'file', 'below')), { code: /ENOTDIR|EEXIST/ })
})

test(
  'an impossible folder is reported at once',
  { skip: process.platform !== 'linux' && '/proc is of Linux' },
  () => {
    assert.throws(() => makeFolder('/proc/nothing/below'), { code: 'ENOENT' })
  },
)
