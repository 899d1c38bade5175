import assert from 'node:assert/strict'
import { test } from 'node:test'
import { gatewayError } from '../../src/mesh/errors.ts'
import { Names } from '../../src/registry/names.ts'
import { plainTool } from '../support/scripted-upstream.ts'
import { listPage } from './listed.ts'
import { testServer } from './test-server.ts'

const names = new Names('__')

test('a list that shows last-known entries of a server says so, until they are gone', async () => {
  const { server, upstream, clock, start } = testServer({ grace: '60s' })
  const list = () =>
    JSON.parse(listPage('tools', undefined, new Map([['s', server]]), names) ?? 'null') as unknown
  const starting = { source: 'missing_servers', reason: 'not available now: s', missing: ['s'] }
  assert.deepEqual(list(), { tools: [], _meta: { 'dev.breakwater/partial': starting } })
  await start()
  assert.deepEqual(list(), { tools: [plainTool('s__a')] })
  await clock.advance(1_000)
  upstream.refusal = gatewayError('upstream_unavailable', 'cannot connect')
  upstream.upstreamSession.end()
  await clock.advance(0)
  const stale = { source: 'stale', reason: 'down, shown as last known: s' }
  assert.deepEqual(list(), { tools: [plainTool('s__a')], _meta: { 'dev.breakwater/partial': stale } })
  await clock.advance(60_000)
  assert.deepEqual(list(), { tools: [], _meta: { 'dev.breakwater/partial': starting } })
})

test('a server that is down and had nothing of a kind is missing from that list', async () => {
  const { server, upstream, clock, start } = testServer()
  await start()
  await clock.advance(1_000)
  upstream.refusal = gatewayError('upstream_unavailable', 'cannot connect')
  upstream.upstreamSession.end()
  await clock.advance(0)
  const prompts = listPage('prompts', undefined, new Map([['s', server]]), names)
  assert.ok(prompts?.includes('"source":"missing_servers"'))
})
