import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bootChanges } from '../../src/config/boot-keys.ts'
import { config } from '../../src/config/schema/schema.ts'

const changes = (from: object, to: object) =>
  bootChanges(config.parse({ gateway: from }), config.parse({ gateway: to }))

test('keys that are fixed at boot are named when they change', () => {
  const to = {
    listen: '127.0.0.1:9',
    sessions: { max: 5 },
    stateDir: '/s',
    environment: 'staging',
    separator: '--',
  }
  assert.deepEqual(changes({}, to).sort(), [
    'gateway.environment',
    'gateway.listen',
    'gateway.separator',
    'gateway.sessions.max',
    'gateway.stateDir',
  ])
  assert.deepEqual(changes({ stateDir: '/s' }, {}), ['gateway.stateDir'])
})

test('keys that follow a reload are not', () => {
  const to = {
    maxInFlight: 5,
    drain: '1s',
    ready: 'all',
    listTimeout: '1s',
    allowedHosts: ['h'],
    allowedOrigins: ['http://h'],
  }
  assert.deepEqual(changes({}, to), [])
})

test('a config that says the same in other words changes nothing', () => {
  assert.deepEqual(changes({ maxBody: '4MiB', sessions: { idle: '30m' } }, {}), [])
})
