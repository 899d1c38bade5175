import assert from 'node:assert/strict'
import { test } from 'node:test'
import { z } from 'zod'
import { faults as registered } from '../../../src/chaos/faults/index.ts'
import { targetFindings } from '../../../src/chaos/plan/checks.ts'
import { chaosSchema } from '../../../src/chaos/plan/schema.ts'
import { fault, registry, schema } from '../rig.ts'

/** Returns the findings about a plan, as `path: message`. */
function issues(faults: readonly unknown[], more: object = {}): string[] {
  const read = schema.safeParse({ faults, ...more })
  return (read.error?.issues ?? []).map(({ path, message }) => `${path.join('.')}: ${message}`)
}

test('chaos is off, acts, and has no faults unless told otherwise', () => {
  const { faults, ...rest } = schema.parse({})
  assert.deepEqual(faults, [])
  assert.deepEqual(rest, {
    enabled: false,
    mode: 'act',
    seed: 0,
    persist: false,
    maxTtl: 3_600_000,
    journal: { maxSize: 16 * 1024 ** 2, keep: 4 },
    debugHeader: false,
    strict: false,
    engineErrors: 10,
    aliases: {},
  })
})

test('a fault has the fields of its type beside the common ones, all with their defaults', () => {
  const [read] = schema.parse({ faults: [{ name: 'slow', type: 'test.hold', rate: 0.3, ttl: '15m' }] }).faults
  assert.deepEqual(read, {
    name: 'slow',
    type: 'test.hold',
    side: 'upstream',
    rate: 0.3,
    ttl: 900_000,
    maxConcurrent: 16,
    allowWrites: false,
    sticky: false,
    holdFor: 60_000,
  })
})

test('rate and ttl have to be given, and a rate is a ratio', () => {
  assert.match(issues([{ name: 'a', type: 'test.hold', ttl: '1m' }])[0]!, /^faults\.0\.rate: /)
  assert.match(issues([{ name: 'a', type: 'test.hold', rate: 1 }])[0]!, /^faults\.0\.ttl: /)
  assert.match(issues([fault('a', 'test.hold', { rate: 1.01 })])[0]!, /^faults\.0\.rate: /)
  assert.match(issues([fault('a', 'test.hold', { rate: -0.1 })])[0]!, /^faults\.0\.rate: /)
})

test('an unknown type is refused with the names that are near to it', () => {
  assert.deepEqual(issues([fault('a', 'test.spoilt')]), [
    'faults.0.type: unknown type "test.spoilt"; did you mean test.spoil?',
  ])
  assert.match(issues([fault('a', 'zzz')])[0]!, /unknown type "zzz"; there are test\.hold, /)
  assert.match(issues([{ name: 'a' }])[0]!, /^faults\.0\.type: missing; expected the type/)
})

test('a field of another type is refused', () => {
  const read = schema.safeParse({ faults: [fault('a', 'test.hold', { to: 'x' })] })
  assert.deepEqual(read.error?.issues[0], {
    code: 'unrecognized_keys',
    keys: ['to'],
    path: ['faults', 0],
    message: 'Unrecognized key: "to"',
  })
})

test('a match must name something, and only things that the type can hit', () => {
  assert.match(issues([fault('a', 'test.hold', { match: {} })])[0]!, /match: has no criterion/)
  assert.deepEqual(issues([fault('a', 'test.spoil', { match: { method: 'tools/list' } })]), [
    'faults.0.match.method: test.spoil can hit tools/call, not "tools/list"',
  ])
  assert.deepEqual(issues([fault('a', 'test.hold', { match: { method: 'tools/list', tool: 'x' } })]), [
    'faults.0.match.tool: never matches: only calls of the method tools/call have a tool',
  ])
  assert.deepEqual(issues([fault('a', 'test.hold', { match: { method: 'tools/*', tool: 'x' } })]), [])
})

test('a match of the gateway’s own requests can name no tenant, header or arm', () => {
  const real = chaosSchema(registered)
  const found = (type: string, more: object) =>
    (real.safeParse({ faults: [fault('a', type, more)] }).error?.issues ?? []).map(
      ({ path, message }) => `${path.join('.')}: ${message}`,
    )
  const never = 'never matches: the gateway sends this request itself, for no agent'
  assert.deepEqual(found('listen.refused', { match: { server: 's', tenant: 'acme' } }), [
    `faults.0.match.tenant: ${never}`,
  ])
  assert.deepEqual(found('ping.error', { match: { header: { 'x-a': 'b' } } }), [
    `faults.0.match.header: ${never}`,
  ])
  assert.deepEqual(found('listen.refused', { side: 'client', match: { tenant: 'acme' } }), [])
  assert.deepEqual(found('conn.refused', { match: { tenant: 'acme' } }), [])
})

test('a ramp is refused together with bursts', () => {
  const when = { ramp: { over: '1m' }, burst: { meanLength: 4 } }
  assert.match(
    issues([fault('a', 'test.hold', { rate: 0.1, when })])[0]!,
    /^faults\.0\.when\.ramp: not together with when\.burst/,
  )
  assert.deepEqual(
    issues([fault('a', 'test.hold', { match: { tasks: 0.1 }, when: { ramp: { over: '1m' } } })]),
    [],
  )
})

test('a side not supported by the type is refused', () => {
  assert.match(issues([fault('a', 'test.fail', { side: 'client' })])[0]!, /^faults\.0\.side: /)
})

test('two faults cannot share a name', () => {
  assert.deepEqual(issues([fault('a', 'test.hold'), fault('b', 'test.hold'), fault('a', 'test.fail')]), [
    'faults.2.name: "a" is already the name of faults[0]',
  ])
})

test('a ttl is at most the longest that the plan allows', () => {
  assert.deepEqual(issues([fault('a', 'test.hold', { ttl: '16m' })], { maxTtl: '15m' }), [
    'faults.0.ttl: 16m is more than chaos.maxTtl (15m)',
  ])
})

test('an impossible condition is refused: a window after the end of its fault, a call excluded by its conditions', () => {
  const found = (when: Record<string, unknown>) => issues([fault('a', 'test.hold', { ttl: '1m', when })])
  assert.deepEqual(found({ window: { from: '1m' } }), [
    'faults.0.when.window.from: never holds: the fault already ends after its ttl of 1m',
  ])
  assert.deepEqual(found({ onCall: 10, afterCalls: 10 }), [
    'faults.0.when.onCall: never holds: call 10 is excluded by afterCalls 10',
  ])
  assert.deepEqual(found({ onCall: 10, everyNth: 3 }), [
    'faults.0.when.onCall: never holds: call 10 is excluded by everyNth 3',
  ])
  assert.deepEqual(found({ onCall: 9, everyNth: 3, afterCalls: 8, window: { from: '59s' } }), [])
})

test('a window ends after it begins, and a burst leaves room for its pauses', () => {
  const window = { from: '30s', to: '30s' }
  assert.match(
    issues([fault('a', 'test.hold', { when: { window } })])[0]!,
    /when\.window\.to: expected later/,
  )
  const when = { burst: { meanLength: 4 } }
  assert.deepEqual(issues([fault('a', 'test.hold', { rate: 0.9, when })]), [
    'faults.0.rate: bursts of mean 4 with pauses between them allow a rate up to 0.800; found 0.9',
  ])
  assert.deepEqual(issues([fault('a', 'test.hold', { rate: 0.8, when })]), [])
})

test('a fault needs a matching server of the config, and a server that suits its type', () => {
  const servers = [
    { name: 'web', kind: { transport: 'http', era: undefined } },
    { name: 'pipe', kind: { transport: 'stdio', era: undefined } },
  ] as const
  const { faults } = schema.parse({
    faults: [
      fault('a', 'test.reply', { match: { server: 'nobody' } }),
      fault('b', 'test.reply', { match: { server: 'pipe' } }),
      fault('c', 'test.reply'),
      fault('d', 'test.reply', { match: { server: 'web' } }),
    ],
  })
  assert.deepEqual(targetFindings(faults, { servers, arms: [] }, registry), [
    { severity: 'error', path: ['faults', 0, 'match', 'server'], message: '"nobody" matches no server' },
    {
      severity: 'error',
      path: ['faults', 1, 'type'],
      message: 'test.reply cannot work with pipe: there is no HTTP',
    },
    {
      severity: 'warning',
      path: ['faults', 2, 'type'],
      message: 'test.reply cannot work with pipe: there is no HTTP',
    },
  ])
})

test('a fault that spares writes has to match a tool that is known to be read-only, where all tools are known', () => {
  const kind = { transport: 'http', era: undefined } as const
  const known = { name: 'web', kind, tools: ['read', 'write'], isReadOnly: (tool: string) => tool === 'read' }
  const found = (tool: string, server: object = {}, more: object = {}) =>
    targetFindings(
      schema.parse({ faults: [fault('a', 'test.hold', { match: { tool }, ...more })] }).faults,
      { servers: [{ ...known, ...server }], arms: [] },
      registry,
    )
  assert.deepEqual(found('write'), [
    {
      severity: 'warning',
      path: ['faults', 0, 'allowWrites'],
      message: 'hits no tool call: no matching tool of web is known to be read-only',
    },
  ])
  assert.deepEqual(found('*'), [])
  assert.deepEqual(found('write', {}, { allowWrites: true }), [])
  assert.deepEqual(found('write', { tools: [] }), [])
  assert.deepEqual(found('write', { isReadOnly: undefined }), [])
})

test('a protected server cannot be named as target or as destination; a glob has to match another server too', () => {
  const servers = [
    { name: 'web', kind: { transport: 'http', era: undefined } },
    { name: 'pay', kind: { transport: 'http', era: undefined }, protected: true },
  ] as const
  const aims = ['pay', 'p*', 'w*', '*', undefined].map((server, index) =>
    fault(`f${index}`, 'test.hold', server === undefined ? {} : { match: { server } }),
  )
  const { faults } = schema.parse({ faults: aims })
  const name = '"pay" is protected (mcpServers.pay.protected): no fault may'
  const path = ['faults', 0, 'match', 'server']
  assert.deepEqual(targetFindings(faults, { servers, arms: [] }, registry), [
    { severity: 'error', path, message: `${name} aim at it` },
    {
      severity: 'error',
      path: ['faults', 1, 'match', 'server'],
      message: '"p*" matches protected servers only',
    },
  ])
  const alone = targetFindings(faults.slice(4), { servers: servers.slice(1), arms: [] }, registry)
  assert.deepEqual(
    alone.map(({ severity }) => severity),
    ['warning'],
  )

  const away = (more: object) =>
    targetFindings(
      chaosSchema(registered).parse({
        faults: [{ name: 'a', rate: 1, ttl: '1m', match: { server: 'web' }, ...more }],
      }).faults,
      { servers, arms: [] },
      registered,
    ).map(({ message }) => message)
  assert.deepEqual(away({ type: 'route.wrong_backend', server: 'pay' }), [`${name} send calls to it`])
  const moved = { type: 'registry.moved', replacement: 'pay/charge' }
  assert.deepEqual(away({ ...moved, mode: 'silent' }), [`${name} send calls to it`])
  // The notice names the other server, but no call goes there.
  assert.deepEqual(away({ ...moved, mode: 'error' }), [])
})

test('an arm must belong to an existing experiment, by its name or with the name of the experiment', () => {
  const { faults } = schema.parse({
    faults: ['treatment', 'canary/*', 'canary/other', 'canary', '*'].map((arm, index) =>
      fault(`f${index}`, 'test.hold', { match: { arm } }),
    ),
  })
  const problems = (arms: readonly string[]) =>
    targetFindings(faults, { servers: [], arms }, registry).map(
      ({ path, message }) => `${path.join('.')}: ${message}`,
    )
  assert.deepEqual(problems(['canary/control', 'canary/treatment']), [
    'faults.2.match.arm: "canary/other" matches no arm of an experiment: there are canary/control, canary/treatment',
    'faults.3.match.arm: "canary" matches no arm of an experiment: there are canary/control, canary/treatment',
  ])
  assert.equal(problems([]).length, 5)
  assert.match(problems([])[0]!, /there is no experiment$/)
})

test('no type may take the name of a common field for a field of its own', () => {
  const taken = { ...registry['test.hold']!, schema: z.strictObject({ ttl: z.int() }) }
  assert.throws(() => chaosSchema({ taken }), /its fields ttl already belong to all faults/)
  assert.doesNotThrow(() => chaosSchema(registered))
})
