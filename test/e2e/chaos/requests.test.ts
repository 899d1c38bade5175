import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import { cleanUp, Gateway, type Json } from '../support/gateway.ts'
import { RawClient } from '../support/raw-client.ts'
import { closeServers, RawServer, sendJson } from '../support/raw-server.ts'

/** Each fault has a tool of its own. */
const faults: Readonly<Record<string, Json>> = {
  lost: { type: 'request.argument_lost', argument: 'b' },
  lost_by_agent: { type: 'request.argument_lost', argument: 'b', side: 'client' },
  twice: { type: 'request.argument_duplicated', argument: 'a' },
  twice_by_agent: { type: 'request.argument_duplicated', argument: 'a', side: 'client' },
  doubled: { type: 'request.argument_duplicated', form: 'list' },
  turned: { type: 'request.argument_reordered' },
  turned_list: { type: 'request.argument_reordered', of: 'list' },
  delivered_twice: { type: 'request.duplicated' },
  written: { type: 'request.duplicated' },
  written_twice: { type: 'request.duplicated', allowWrites: true },
  by_header: { type: 'request.argument_lost', argument: 'a', match: { header: { 'x-canary': 'blue*' } } },
  by_task: { type: 'request.argument_lost', argument: 'a', match: { tasks: 0.5 } },
  skewed: { type: 'result.clock_skew', by: '1h' },
  late_token: { type: 'auth.refresh_refused', side: 'client' },
  forwarded_token: { type: 'auth.refresh_refused' },
  other_owner: { type: 'auth.owner_changed', as: 'other_result' },
  nobody: { type: 'auth.owner_changed', as: 'not_found' },
  not_yours: { type: 'auth.owner_changed' },
}
const writes = ['written', 'written_twice']

/** Odd on purpose: none of it may be written anew. */
const args = '{ "a": [1.0, 2],  "b": {"é": 1e2}, "c":"x" }'

let gateway: Gateway
let server: RawServer

before(async () => {
  server = await RawServer.start(({ message }, response) => {
    const { id, method } = message
    if (method === 'tools/list') {
      const tools = Object.keys(faults).map((name) => ({
        name,
        description: `Does ${name}.`,
        inputSchema: { type: 'object' },
        annotations: { readOnlyHint: !writes.includes(name) },
      }))
      sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, result: { tools } }))
      return true
    }
    if (method !== 'tools/call') return false
    const structuredContent = { at: '2026-01-31T23:30:00.5Z', day: '2026-01-31', id: '42' }
    const text = `At 2026-01-31T23:30:00+02:00: ${JSON.stringify(structuredContent)}`
    const result = { content: [{ type: 'text', text }], structuredContent }
    sendJson(response, JSON.stringify({ jsonrpc: '2.0', id, result }))
    return true
  })
  gateway = await Gateway.start({
    gateway: { environment: 'test' },
    servers: {
      raw: {
        url: server.url,
        era: 'legacy',
        trusted: true,
        forwardHeaders: { 'x-user-token': 'authorization' },
      },
    },
    chaos: {
      enabled: true,
      persist: true,
      faults: Object.entries(faults).map(([tool, { match, ...more }]) => ({
        name: tool,
        rate: 1,
        ttl: '10m',
        match: { server: 'raw', tool, ...(match as Json | undefined) },
        ...more,
      })),
    },
  })
  await gateway.waitFor('up', 'raw')
})
after(async () => {
  await cleanUp()
  closeServers()
})

/** Calls a tool; gives the response, and the arguments that the server got, as they were written. */
async function call(tool: string, headers: Readonly<Record<string, string>> = {}) {
  const client = await RawClient.open(gateway.mcp('raw'), { headers })
  const text = `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"${tool}","arguments":${args}}}`
  const { messages, status, headers: replied } = await client.post(text)
  const got = server
    .of('tools/call')
    .filter(({ message }) => (message.params as Json).name === tool)
    .map(({ text: sent }) => /"arguments":(.*)\}\}$/.exec(sent)?.[1])
  return { response: messages[0] ?? {}, status, replied, got }
}

const isGood = ({ response }: { readonly response: Json }) =>
  assert.ok('result' in response, JSON.stringify(response))

test('request.argument_lost: the server gets all but one argument, as they were written', async () => {
  for (const tool of ['lost', 'lost_by_agent']) {
    const { got, ...rest } = await call(tool)
    isGood(rest)
    assert.deepEqual(got, ['{"a": [1.0, 2],"c":"x"}'])
  }
})

test('request.argument_duplicated: the same key stands twice in the text, or a list is doubled', async () => {
  assert.deepEqual((await call('twice')).got, ['{"a": [1.0, 2],"a": [1.0, 2],"b": {"é": 1e2},"c":"x"}'])
  assert.deepEqual((await call('doubled')).got, ['{"a":[1.0,1.0,2,2],"b": {"é": 1e2},"c":"x"}'])
})

test('request.argument_duplicated: the gateway refuses what has a key twice, so an agent cannot send it', async () => {
  assert.deepEqual((await call('twice_by_agent')).got, [args])
})

test('request.argument_reordered: members or elements come in the opposite order', async () => {
  assert.deepEqual((await call('turned')).got, ['{"c":"x","b": {"é": 1e2},"a": [1.0, 2]}'])
  assert.deepEqual((await call('turned_list')).got, ['{"a":[2,1.0],"b": {"é": 1e2},"c":"x"}'])
})

test('request.duplicated: the server gets the call twice, and the agent one answer; a write only by leave', async () => {
  for (const [tool, times] of [
    ['delivered_twice', 2],
    ['written', 1],
    ['written_twice', 2],
  ] as const) {
    const { got, ...rest } = await call(tool)
    isGood(rest)
    assert.equal(rest.response.id, 'a')
    assert.deepEqual(
      got,
      Array.from({ length: times }, () => args),
      tool,
    )
  }
})

test('match.header: only requests whose header matches are hit, and the journal has no value of it', async () => {
  await call('by_header')
  await call('by_header', { 'x-canary': 'green' })
  const { got } = await call('by_header', { 'x-canary': 'blue-s3same' })
  assert.deepEqual(got, [args, args, '{"b": {"é": 1e2},"c":"x"}'])
  for (const path of ['/admin/chaos/journal', '/admin/chaos']) {
    const { body } = await gateway.admin(path)
    assert.match(JSON.stringify(body), /by_header/)
    assert.doesNotMatch(JSON.stringify(body), /s3same|blue/)
  }
})

test('match.tasks: of a task all calls are hit or none, in whatever sessions they come', async () => {
  const names = Array.from({ length: 24 }, (_, task) => ({ 'x-breakwater-intent': `task ${task}` }))
  let seen: readonly unknown[] = []
  for (const task of names) seen = (await call('by_task', task)).got
  for (const task of names) seen = (await call('by_task', task)).got
  const isHit = seen.map((got) => got !== args)
  assert.equal(isHit.length, 2 * names.length)
  assert.deepEqual(isHit.slice(names.length), isHit.slice(0, names.length))
  assert.equal(new Set(isHit).size, 2)
})

test('result.clock_skew: all points in time move by the same, as exact as they were', async () => {
  const { response } = await call('skewed')
  const { content, structuredContent } = response.result as { content: Json[]; structuredContent: Json }
  const shifted = { at: '2026-02-01T00:30:00.5Z', day: '2026-01-31', id: '42' }
  assert.deepEqual(structuredContent, shifted)
  assert.equal(content[0]?.text, `At 2026-02-01T00:30:00+02:00: ${JSON.stringify(shifted)}`)
})

test('auth.refresh_refused: the first token holds, the next one is refused, and neither is told', async () => {
  const [old, fresh] = [{ authorization: 'Bearer s3same-old' }, { authorization: 'Bearer s3same-new' }]
  isGood(await call('late_token', old))
  isGood(await call('late_token', old))
  const refused = await call('late_token', fresh)
  assert.equal(refused.status, 401)
  assert.match(refused.replied.get('www-authenticate') ?? '', /^Bearer error="invalid_token"/)
  assert.equal(refused.got.length, 2)

  isGood(await call('forwarded_token', { 'x-user-token': old.authorization }))
  const { response, got } = await call('forwarded_token', { 'x-user-token': fresh.authorization })
  assert.equal(((response.error as Json).data as Json).reason, 'upstream_unauthorized')
  assert.equal(got.length, 1)

  const { body } = await gateway.admin('/admin/chaos/journal')
  assert.match(JSON.stringify(body), /late_token/)
  assert.doesNotMatch(JSON.stringify(body), /s3same/)
})

test('auth.owner_changed: forbidden, not there, or what somebody else would get', async () => {
  const other = await call('other_owner')
  assert.deepEqual(other.response.result, { content: [{ type: 'text', text: 'No entries.' }] })
  const nobody = await call('nobody')
  assert.deepEqual(nobody.response.result, { content: [{ type: 'text', text: 'Not found' }], isError: true })
  const { response } = await call('not_yours')
  assert.equal(((response.error as Json).data as Json).reason, 'upstream_forbidden')
  for (const { got } of [other, nobody]) assert.equal(got.length, 0)
})
