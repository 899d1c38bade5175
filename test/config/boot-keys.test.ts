import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bootChanges, keepBootKeys } from '../../src/config/boot-keys.ts'
import { config } from '../../src/config/schema/schema.ts'

const changes = (from: object, to: object) => bootChanges(config.parse(from), config.parse(to))
const kept = (from: object, to: object) => keepBootKeys(config.parse(from), config.parse(to))

const fixed = {
  gateway: {
    listen: '127.0.0.1:9',
    sessions: { max: 5 },
    stateDir: '/s',
    environment: 'staging',
    separator: '--',
  },
  telemetry: {
    metrics: { endpoint: 'http://collector:4318', semanticConventions: true },
    traces: { endpoint: 'http://collector:4318', sample: 0.5, payloads: true },
  },
}

const live = {
  gateway: {
    maxInFlight: 5,
    drain: '1s',
    ready: 'all',
    listTimeout: '1s',
    allowedHosts: ['h'],
    allowedOrigins: ['http://h'],
    limits: { memory: '1GiB', perClient: 1, stalled: '5s' },
  },
  telemetry: { metrics: { maxAge: 0 }, intents: { idle: '5s' }, accessLog: { sample: 0.5 } },
  mcpServers: { a: { url: 'http://127.0.0.1:1' } },
  policies: { defaults: { retry: { maxRetries: 1 } } },
}

test('keys that are fixed at boot are named when they change', () => {
  assert.deepEqual(changes({}, fixed).sort(), [
    'gateway.environment',
    'gateway.listen',
    'gateway.separator',
    'gateway.sessions.max',
    'gateway.stateDir',
    'telemetry.metrics.endpoint',
    'telemetry.metrics.semanticConventions',
    'telemetry.traces.endpoint',
    'telemetry.traces.payloads',
    'telemetry.traces.sample',
  ])
  assert.deepEqual(changes({ gateway: { stateDir: '/s' } }, {}), ['gateway.stateDir'])
})

test('keys that follow a reload are not named', () => {
  assert.deepEqual(changes({}, live), [])
})

test('a config that says the same in other words changes nothing', () => {
  assert.deepEqual(changes({ gateway: { maxBody: '4MiB', sessions: { idle: '30m' } } }, {}), [])
})

test('a reload applies all reloadable keys, and leaves fixed keys', () => {
  const both = {
    ...live,
    gateway: { ...live.gateway, ...fixed.gateway },
    telemetry: {
      ...live.telemetry,
      ...fixed.telemetry,
      metrics: { ...live.telemetry.metrics, ...fixed.telemetry.metrics },
    },
  }
  assert.deepEqual(kept({}, both), config.parse(live))
  assert.deepEqual(kept(fixed, {}), config.parse(fixed))
})

test('the config in force after a reload differs from both files, and both configs stay unchanged', () => {
  const [boot, next] = [config.parse({}), config.parse(fixed)]
  keepBootKeys(boot, next)
  assert.deepEqual([boot, next], [config.parse({}), config.parse(fixed)])
})
