import assert from 'node:assert/strict'
import { test } from 'node:test'
import { formatIssue } from '../../src/config/issues/issues.ts'
import { loadConfig } from '../../src/config/load.ts'
import { folder } from './files.ts'

/** Returns the findings about policies, as `validate` prints findings. */
async function wrongWith(
  t: Parameters<typeof folder>[0],
  policies: string,
  servers = '{ a: { command: a, trusted: true }, b: { command: b, trusted: true } }',
): Promise<string[]> {
  const path = await folder(t, { 'gw.yaml': `mcpServers: ${servers}\npolicies:\n${policies}` })
  const loaded = await loadConfig(`${path}/gw.yaml`, {})
  const issues = loaded.ok ? loaded.warnings : loaded.errors
  return issues.map((issue) => formatIssue(issue).replace(/^.*gw\.yaml:/, ''))
}

test('an attempt that may take longer than the call is a contradiction', async (t) => {
  const at = '  defaults: { deadline: { total: 5s }, attemptTimeout: { timeout: 6s } }'
  assert.deepEqual(await wrongWith(t, at), [
    '3:67  policies.defaults.attemptTimeout.timeout  expected at most 5s, the longest deadline of this config, which covers all attempts; found 6s',
  ])
  assert.equal(
    (await wrongWith(t, '  overrides: [{ match: { server: a }, attemptTimeout: { timeout: 90s } }]')).length,
    1,
  )
  assert.equal((await wrongWith(t, '  sets: { slow: { attemptTimeout: { timeout: 90s } } }')).length, 1)
})

test('no contradiction is reported where an override or a set may decide', async (t) => {
  const good = [
    '  defaults: { deadline: { total: 30s } }\n  overrides: [{ match: { server: a }, deadline: { total: 10m } }, { match: { server: a, tool: x }, attemptTimeout: { timeout: 2m } }]',
    '  defaults: { attemptTimeout: { timeout: 1s } }\n  overrides: [{ match: { server: a }, attemptTimeout: { timeout: 30s } }, { match: { server: a, tool: x }, hedge: { after: 5s } }]',
    '  defaults: { attemptTimeout: { timeout: 5m } }\n  overrides: [{ match: { tool: slow }, deadline: { total: 10m } }]',
    '  defaults: { attemptTimeout: { timeout: 5m } }\n  sets: { long: { deadline: { total: 10m } } }',
    '  overrides: [{ match: { server: a }, deadline: { total: 10s }, attemptTimeout: { timeout: 30s } }, { match: { server: a, tool: x }, deadline: { total: 50s } }]',
    '  overrides: [{ match: { server: a }, deadline: { total: 30s, onProgress: extend }, attemptTimeout: { timeout: 2m } }]',
  ]
  for (const policies of good) assert.deepEqual(await wrongWith(t, policies), [], policies)
})

test('a deadline shortens an attempt timeout that nobody configured', async (t) => {
  assert.deepEqual(await wrongWith(t, '  defaults: { deadline: { total: 5s } }'), [])
})

test('limits in one place are compared with each other, and with those that take their place', async (t) => {
  const both = 'match: { server: a }, deadline: { total: 5s }, attemptTimeout: { timeout: 9s }'
  const late = 'match: { server: a }, attemptTimeout: { timeout: 2s }, hedge: { after: 2s }'
  for (const [policies, words] of [
    [
      `  overrides: [{ ${both} }]`,
      /at most 5s, the longest deadline that is in force here, which .* found 9s/,
    ],
    [
      `  overrides: [{ ${late} }]`,
      /less than 2s, the longest attempt timeout that is in force here; found 2s/,
    ],
    [`  sets: { x: { ${late.replace('match: { server: a }, ', '')} } }`, /less than 2s/],
    [`  overrides: [{ match: { server: a }, deadline: { total: 20s } }, { ${both} }]`, /at most 5s/],
    [`  overrides: [{ ${both} }, { match: { server: b }, deadline: { total: 20s } }]`, /at most 5s/],
  ] as const) {
    const issues = await wrongWith(t, policies)
    assert.equal(issues.length, 1, policies)
    assert.match(issues[0]!, words)
  }
  const later = '{ match: { tool: x }, deadline: { total: 20s } }'
  assert.deepEqual(await wrongWith(t, `  overrides: [{ ${both} }, ${later}]`), [])
  assert.deepEqual(
    await wrongWith(
      t,
      `  overrides: [{ ${both} }]`,
      '{ a: { command: a, timeout: 10s }, b: { command: b } }',
    ),
    [],
  )
})

test('a hedge that starts when the first try is given up is a contradiction', async (t) => {
  const policies = '  defaults: { attemptTimeout: { timeout: 2s }, hedge: { after: 2s } }'
  assert.match(
    (await wrongWith(t, policies)).join(),
    /hedge\.after {2}expected less than 2s, the longest attempt timeout of this config; found/,
  )
})

test('a fallback to a server that does not exist is named', async (t) => {
  const policies = '  defaults: { degrade: { fallback: { tool: t, server: c } } }'
  assert.match((await wrongWith(t, policies)).join(), /degrade\.fallback\.server {2}there is no server "c"/)
})

test('two tools may back each other up, and a tool that falls back to itself gives a finding', async (t) => {
  const policies = `  overrides:
    - { match: { server: a, tool: x }, degrade: { fallback: { tool: y, server: b } } }
    - { match: { server: b, tool: y }, degrade: { fallback: { tool: x, server: a } } }
    - { match: { server: a, tool: z }, degrade: { fallback: { tool: z } } }`
  const issues = await wrongWith(t, policies)
  assert.equal(issues.length, 1, issues.join('\n'))
  assert.match(
    issues[0] ?? '',
    /overrides\[2\].degrade.fallback {2}warning: has no effect: "z" falls back to itself/,
  )
})

test('a queue has a bound, and numbers that contradict each other within a policy are named', async (t) => {
  const issues = await wrongWith(
    t,
    '  defaults: { bulkhead: { queue: 5000, concurrent: 4, perTool: 8 }, breaker: { open: 2m }, retry: { base: 11s } }',
  )
  assert.match(issues.join('\n'), /bulkhead\.queue/)
  assert.match(issues.join('\n'), /retry\.base/)
  assert.match(issues.join('\n'), /breaker\.open/)
})

test('hedges and kept answers without a known read-only tool give a warning', async (t) => {
  const servers = '{ a: { command: a }, b: { command: b, trusted: true }, c: { command: c } }'
  const policies = `  overrides:
    - { match: { server: a }, hedge: { after: 1s }, degrade: { lastKnownGood: {} } }
    - { match: { server: b }, hedge: { after: 1s } }
    - { match: { server: c, tool: "get_*" }, hedge: { after: 1s } }
    - { match: { server: c, tool: get_item }, effect: read_only }
    - { match: { server: c, tool: put_item }, degrade: { lastKnownGood: {} } }`
  assert.deepEqual(
    (await wrongWith(t, policies, servers)).map((line) =>
      line.replace(/^\S+ +(\S+).*tool of (\w+) .*/, '$1 $2'),
    ),
    [
      'policies.overrides[0].hedge a',
      'policies.overrides[0].degrade.lastKnownGood a',
      'policies.overrides[4].degrade.lastKnownGood c',
    ],
  )
  const all = await wrongWith(t, '  defaults: { hedge: { after: 1s } }', '{ a: { command: a } }')
  assert.match(
    all.join(),
    /policies\.defaults\.hedge {2}warning: has no effect on tool calls: no tool of a is known/,
  )
})

/** Returns the findings for one fault with these fields. */
const ofFault = (
  t: Parameters<typeof folder>[0],
  fields: string,
  servers: string,
  policies = '  overrides: []',
) => wrongWith(t, `${policies}\nchaos: { faults: [{ name: f, rate: 1, ttl: 1m, ${fields} }] }`, servers)

test('a fault that spares writes without a known read-only tool gives a warning', async (t) => {
  const servers = '{ a: { command: a }, b: { command: b, trusted: true } }'
  const error = 'type: rpc.error'
  const [line, ...more] = await ofFault(t, `${error}, match: { server: a }`, servers)
  assert.match(
    line ?? '',
    /chaos\.faults\[0\] {2}warning: has no effect on tool calls: no tool of a is known .*allowWrites/,
  )
  assert.deepEqual(more, [])
  const reads = '  overrides: [{ match: { server: a, tool: "get_*" }, effect: read_only }]'
  const put = await ofFault(t, `${error}, match: { server: a, tool: put }`, servers, reads)
  assert.match(put.join(), /no tool of a that it matches is known/)
  for (const fields of [
    error,
    `${error}, match: { server: b }`,
    `${error}, match: { server: a }, allowWrites: true`,
    'type: conn.latency, match: { server: a, method: tools/list }, distribution: { kind: fixed, delay: 1s }',
    'type: registry.ghost_tool, match: { server: a }, tools: [x]',
    'type: registry.stale_list, match: { server: a }, age: 5m',
  ])
    assert.deepEqual(await ofFault(t, fields, servers), [], fields)
  assert.deepEqual(await ofFault(t, `${error}, match: { server: a, tool: get_x }`, servers, reads), [])
})

test('an override that says of its tools that they write gives them no hedge and no kept answer, and a fallback with care', async (t) => {
  const degrade = '{ lastKnownGood: {}, fallback: { tool: x, server: b } }'
  const write = `{ match: { tool: put }, effect: write, hedge: { after: 1s }, degrade: ${degrade} }`
  const why = 'it is for read-only tools, and this override says "effect: write"'
  assert.deepEqual(
    (await wrongWith(t, `  overrides: [${write}]`)).map((line) => line.replace(/^\S+ +\S+overrides/, '')),
    [
      `[0].hedge  warning: has no effect on tool calls: ${why}`,
      `[0].degrade.lastKnownGood  warning: has no effect on tool calls: ${why}`,
      '[0].degrade.fallback  warning: is for a tool that writes: the write may have run when the fallback answers',
    ],
  )
  const later = '{ match: { server: a, tool: "p*" }, effect: read_only }'
  assert.deepEqual(await wrongWith(t, `  overrides: [${write}, ${later}]`), [])
})
