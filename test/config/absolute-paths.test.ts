import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { loadConfig } from '../../src/config/load.ts'
import { folder } from './files.ts'

test('relative paths begin at the folder of the config, and absolute paths stay', async (t) => {
  const text = `
    gateway:
      stateDir: state
      controlMcp: { plans: ./plans, tokens: [{ name: a, sha256: ${'a'.repeat(64)} }] }
    mcpServers: { a: { url: 'https://a/', tls: { ca: certificates/ca.pem, cert: /own/cert.pem, key: ../key.pem } } }
    chaos: { killFile: kill, journal: { file: ./log/chaos.jsonl } }`
  const path = await folder(t, { 'gw.yaml': text })
  const loaded = await loadConfig(join(path, 'gw.yaml'), {})
  assert.ok(loaded.ok)
  const { gateway, chaos, mcpServers } = loaded.config
  assert.equal(gateway.stateDir, join(path, 'state'))
  assert.equal(gateway.controlMcp?.plans, join(path, 'plans'))
  assert.equal(chaos.killFile, join(path, 'kill'))
  assert.equal(chaos.journal.file, join(path, 'log', 'chaos.jsonl'))
  const { a } = mcpServers
  assert.deepEqual(a?.type === 'stdio' ? undefined : a?.tls, {
    ca: join(path, 'certificates', 'ca.pem'),
    cert: '/own/cert.pem',
    key: join(path, '..', 'key.pem'),
    rejectUnauthorized: true,
  })
})
