import assert from 'node:assert/strict'
import { test } from 'node:test'
import { readdress } from '../../src/registry/references.ts'
import { newCall, TestCaller, toolCall } from '../support/caller.ts'
import { testServer } from './test-server.ts'

const serverNamed = (name: string, settings: Readonly<Record<string, unknown>> = {}) =>
  testServer(settings, undefined, { name }).server

test('the call keeps every byte but the name of the tool', () => {
  const text = (name: string) =>
    ` {"id": 12345678901234567890, "method":"tools/call", "params": { "arguments": {"a": 1.0, "name":"own"},` +
    ` "name" : ${name}, "_meta": {"x": 1E2} }, "jsonrpc":"2.0"} `
  const call = newCall({ method: 'tools/call', text: text('"from"') })
  const moved = readdress(call, serverNamed('other'), 'to "quote"')
  assert.equal(moved?.message.text, text('"to \\"quote\\""'))
  assert.deepEqual(moved?.message.value, JSON.parse(text('"to \\"quote\\""')))
  assert.deepEqual([moved?.server, moved?.tool, moved?.id], ['other', 'to "quote"', call.id])
})

test('the caller, the time limit and the record of the call stay', () => {
  const deadline = { at: 500, reserveMs: 50, askedFor: true }
  const call = toolCall('from', {}, { attempt: 2, deadline })
  const moved = readdress(call, serverNamed('other'), 'to')
  const { caller, channel, signal, record, attempt } = call
  assert.equal(moved?.record, record)
  assert.deepEqual(
    [moved?.caller, moved?.channel, moved?.signal, moved?.attempt, moved?.deadline],
    [caller, channel, signal, attempt, deadline],
  )
})

test('the replica of one server means nothing to another', () => {
  assert.equal(readdress(toolCall('from', {}, { replica: 3 }), serverNamed('o'), 'to')?.replica, undefined)
})

test('each server gets exactly its allowed headers', () => {
  const call = {
    ...toolCall('from', {}, { inbound: { authorization: 'for the first', 'x-team': 'blue' } }),
    headers: { authorization: 'for the first', 'x-breakwater-attempt': '2' },
  }
  const headersAt = (settings: Readonly<Record<string, unknown>>) =>
    readdress(call, serverNamed('other', settings), 'to')?.headers
  assert.equal(headersAt({}), undefined)
  assert.deepEqual(headersAt({ forwardHeaders: ['x-team'] }), { 'x-team': 'blue' })
})

test('a server gets the baggage of the request itself, and none that a session began with', () => {
  const names = ['baggage', 'traceparent', 'x-team']
  const headersOf = (inbound: Readonly<Record<string, string>>) => {
    const caller = Object.assign(new TestCaller(), { headers: { baggage: 'a=1', 'x-team': 'blue' } })
    const call = toolCall('from', {}, { inbound, caller })
    return readdress(call, serverNamed('other', { forwardHeaders: names }), 'to')?.headers
  }
  assert.deepEqual(headersOf({}), { 'x-team': 'blue' })
  assert.deepEqual(headersOf({ baggage: 'a=2' }), { baggage: 'a=2', 'x-team': 'blue' })
})

test('no call reaches a missing server, or a tool that agents may not call', () => {
  const call = toolCall('from')
  assert.equal(readdress(call, undefined, 'to'), undefined)
  const server = serverNamed('other', { tools: { exclude: ['secret_*'] } })
  assert.equal(readdress(call, server, 'secret_to'), undefined)
  assert.equal(readdress(call, server, 'to')?.tool, 'to')
})
