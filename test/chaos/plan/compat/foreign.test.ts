import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  ForeignPlanError,
  fromChaosMonkey,
  fromMcpChaos,
  planFormat,
} from '../../../../src/chaos/plan/compat/index.ts'

const options = { ttl: '15m' }

function refusal(read: () => unknown): string {
  try {
    read()
  } catch (error) {
    assert.ok(error instanceof ForeignPlanError)
    return error.message
  }
  return assert.fail('was taken')
}

test('an unknown type of mcp-chaos is refused with the place, what was meant, and what there is', () => {
  const faults = [{ type: 'latency' }, { type: 'shema_drift' }]
  assert.equal(
    refusal(() => fromMcpChaos({ faults }, options)),
    'faults[1].type: unknown type "shema_drift"; did you mean schema_drift? there are latency, drop_tool, ' +
      'registry_inconsistency, schema_drift, partial_result, error_injection, burst_error, server_degradation',
  )
  assert.match(
    refusal(() => fromMcpChaos({ faults: [{}] }, options)),
    /^faults\[0\]\.type: expected the type/,
  )
})

test('an unknown field of mcp-chaos is refused with its type and what is allowed', () => {
  const faults = [{ type: 'latency', added: 5 }]
  assert.equal(
    refusal(() => fromMcpChaos({ faults }, options)),
    'faults[0]: unknown field "added" of latency; did you mean added_ms? allowed are added_ms, jitter_ms, probability',
  )
  assert.match(
    refusal(() => fromMcpChaos({ faults: [], sede: 1 }, options)),
    /unknown field "sede" of a plan/,
  )
})

test('an impossible value is refused at its place', () => {
  const faults = [{ type: 'error_injection', rate: 2 }]
  assert.match(
    refusal(() => fromMcpChaos({ faults }, options)),
    /^faults\[0\]\.rate: /,
  )
  const entry = { target: 'a', config: { type: 'error', statusCode: 200 } }
  assert.match(
    refusal(() => fromChaosMonkey([entry], options)),
    /^\[0\]\.config\.statusCode: /,
  )
  assert.match(
    refusal(() => fromChaosMonkey({ type: 'latency' }, options)),
    /^delayMs: /,
  )
})

test('an empty file is a plan of mcp-chaos without faults', () => {
  assert.deepEqual(fromMcpChaos(null, options), { seed: 0, faults: [] })
})

test('unknown types and fields of mcp-chaos-monkey are refused in the same way', () => {
  assert.match(
    refusal(() => fromChaosMonkey({ faults: [{ target: 'a', config: { type: 'latancy' } }] }, options)),
    /^faults\[0\]\.config\.type: unknown type "latancy"; did you mean latency\? there are latency, error, /,
  )
  assert.match(
    refusal(() =>
      fromChaosMonkey({ target: 'a', config: { type: 'latency', delayMs: 1, jitterMs: 1 } }, options),
    ),
    /^config: unknown field "jitterMs" of latency; allowed are delayMs, probability$/,
  )
  assert.match(
    refusal(() => fromChaosMonkey('latency', options)),
    /expected an object/,
  )
})

test('a field in both spellings is refused', () => {
  const config = { type: 'latency', delayMs: 1, delay_ms: 2 }
  assert.match(
    refusal(() => fromChaosMonkey(config, options)),
    /^delay_ms: appears twice/,
  )
})

test('a scenario of mcp-chaos-monkey is its faults', () => {
  const scenario = {
    name: 'outage',
    description: 'all is down',
    faults: [
      { target: 'weather', config: { type: 'connection-refused' } },
      { target: '*/get_*', config: { type: 'connection-refused' }, durationMs: 0 },
    ],
    expectedBehavior: 'the agent is told',
    assertions: ['no stack trace'],
  }
  assert.equal(planFormat(scenario), 'chaos-monkey')
  const common = { type: 'conn.refused', rate: 1, maxConcurrent: 10_000 }
  assert.deepEqual(fromChaosMonkey(scenario, options), [
    { name: 'connection-refused-1', match: { server: 'weather' }, ttl: '15m', ...common },
    // Ends at once, as in chaos-monkey: only a fault without a duration stays.
    { name: 'connection-refused-2', match: { tool: 'get_*' }, ttl: '1ms', ...common },
  ])
})

test('a bare fault config is aimed at everything', () => {
  const [fault] = fromChaosMonkey({ type: 'timeout', hang_ms: 5_000, probability: 0.1 }, options)
  assert.deepEqual(fault, {
    name: 'timeout-1',
    type: 'conn.half_open',
    rate: 0.1,
    hold: '5s',
    then: 'fail',
    ttl: '15m',
    maxConcurrent: 10_000,
  })
})

test('writes are allowed where that is asked for, and not otherwise', () => {
  const plan = { faults: [{ type: 'error_injection' }] }
  assert.equal('allowWrites' in fromMcpChaos(plan, options).faults[0]!, false)
  assert.equal(fromMcpChaos(plan, { ...options, allowWrites: true }).faults[0]?.allowWrites, true)
  const [fault] = fromChaosMonkey({ type: 'connection-refused' }, { ...options, allowWrites: true })
  assert.equal(fault?.allowWrites, true)
})

test('the faults of a plan reveal its format', () => {
  const own = { name: 'slow', type: 'latency', rate: 1, ttl: '1m' }
  assert.equal(planFormat({ seed: 1, faults: [own] }), 'own')
  assert.equal(planFormat({ enabled: true, faults: [{ type: 'conn.latency' }] }), 'own')
  assert.equal(planFormat({ faults: [] }), 'own')
  assert.equal(planFormat(undefined), 'own')
  assert.equal(planFormat({ faults: [{ type: 'typo' }, { type: 'burst_error' }] }), 'mcp-chaos')
  assert.equal(planFormat({ faults: [{ type: 'latency', probability: 0.5 }] }), 'mcp-chaos')
  assert.equal(planFormat({ faults: [{ type: 'latency', delayMs: 5 }] }), 'chaos-monkey')
  assert.equal(planFormat({ target: 'a', config: {} }), 'chaos-monkey')
  assert.equal(planFormat([{ type: 'rate-limit', retry_after_seconds: 1 }]), 'chaos-monkey')
})

const targetOf = (target: string, more: object) =>
  fromChaosMonkey([{ target, config: { type: 'connection-refused' } }], { ...options, ...more })[0]?.match

test('an alias says which server or tool a target is, also as the first part of one', () => {
  const here = {
    servers: ['cache', 'weather'],
    aliases: {
      redis: 'cache',
      'oauth-token': 'weather/login',
      'weather-api': 'weather',
      'redis/get': 'cache/read',
    },
  }
  assert.deepEqual(targetOf('redis', here), { server: 'cache' })
  assert.deepEqual(targetOf('redis/set', here), { server: 'cache', tool: 'set' })
  assert.deepEqual(targetOf('redis/get', here), { server: 'cache', tool: 'read' })
  assert.deepEqual(targetOf('oauth-token', here), { server: 'weather', tool: 'login' })
  assert.deepEqual(targetOf('wea*/get_*', here), { server: 'wea*', tool: 'get_*' })
  assert.equal(targetOf('*', here), undefined)
  assert.match(
    refusal(() => targetOf('oauth-token/x', here)),
    /^\[0\]\.target: "oauth-token" means "weather\/login" by "aliases", which is already a tool$/,
  )
})

test('a target that is no server is an error that names aliases; without known servers the target stays', () => {
  assert.equal(
    refusal(() => targetOf('redis', { servers: ['weather', 'files'] })),
    '[0].target: "redis" is no server here; there are weather, files; "aliases" can map the target to SERVER or SERVER/TOOL',
  )
  assert.match(
    refusal(() => targetOf('redis', { servers: ['weather'], aliases: { redis: 'cache' } })),
    /"redis" means "cache" by "aliases", but no server here has this name; there is weather$/,
  )
  assert.deepEqual(targetOf('redis', {}), { server: 'redis' })
})

test('with one wrapped server, a plan with a single target means this server; several targets need a choice', () => {
  const wrapped = { servers: ['wrapped'], soleTarget: 'wrapped' }
  assert.deepEqual(targetOf('weather-api', wrapped), { server: 'wrapped' })
  assert.deepEqual(targetOf('weather-api/get_*', wrapped), { server: 'wrapped', tool: 'get_*' })
  const config = { type: 'connection-refused' }
  const both = [
    { target: 'weather-api', config },
    { target: 'redis', config },
  ]
  assert.match(
    refusal(() => fromChaosMonkey(both, { ...options, ...wrapped })),
    /^\[0\]\.target: "weather-api" is no server here; /,
  )
  const aliases = { redis: 'wrapped/cached' }
  assert.deepEqual(
    fromChaosMonkey(both, { ...options, ...wrapped, aliases }).map(({ match }) => match),
    [{ server: 'wrapped' }, { server: 'wrapped', tool: 'cached' }],
  )
})

test('expected afterMs or afterBytes, not both, and not after both', () => {
  const at = (more: object) =>
    fromChaosMonkey([{ target: 'a', config: { type: 'connection-drop', ...more } }], options)[0]?.at
  assert.deepEqual(
    [at({}), at({ afterMs: 0 }), at({ after_ms: 1_500 }), at({ after_bytes: 512 })],
    ['headers', 'headers', { after: '1500ms' }, { afterBytes: 512 }],
  )
  assert.match(
    refusal(() => at({ afterMs: 1, afterBytes: 1 })),
    /config\.afterBytes: /,
  )
})

test('a server that degrades without tools has none to fail, and a mean of less than one step is one', () => {
  assert.deepEqual(fromMcpChaos({ faults: [{ type: 'server_degradation' }] }, options).faults, [])
  const [fault] = fromMcpChaos({ faults: [{ type: 'burst_error', burst_len: 0 }] }, options).faults
  assert.deepEqual(fault?.when, { burst: { meanLength: 1, per: 'call' } })
})
