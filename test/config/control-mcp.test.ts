import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newKey } from '../../src/approval/keys.ts'
import { controlMcp } from '../../src/config/schema/control-mcp-schema.ts'

const key = newKey('a passphrase of tests').publicText

for (const [name, isAllowed] of [
  ['writer', true],
  ['ops-1', false],
  ['OPS-1', false],
] as const)
  test(`an agent ${name} beside a person ops-1 is ${isAllowed ? 'allowed' : 'refused'}`, () => {
    const read = controlMcp.safeParse({
      tokens: [{ name, sha256: 'a'.repeat(64) }],
      trust: [{ name: 'ops-1', key }],
    })
    assert.equal(read.success, isAllowed)
    assert.deepEqual(
      read.error?.issues.map(({ path, message }) => [path.join('.'), message]) ?? [],
      isAllowed ? [] : [['tokens.0.name', 'a person in "trust" has this name already']],
    )
  })
