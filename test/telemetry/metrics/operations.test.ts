import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Outcome } from '../../../src/mesh/call.ts'
import type { Peer } from '../../../src/telemetry/conventions.ts'
import { gatewayError } from '../../../src/mesh/errors.ts'
import { createMetrics } from '../../../src/telemetry/metrics.ts'
import { answered, failed, rpcError } from '../../policies/breaker/rig.ts'
import { newCall, toolCall, type CallParts } from '../../support/caller.ts'

const fine = answered('correct')

/** Counts calls and attempts of listed and unlisted tools, as a gateway does. */
function counting(limit = 500) {
  let peer: Peer = { transport: 'tcp', address: 'a', port: 1 }
  const metrics = createMetrics({ isPrompt: (_, prompt) => prompt.startsWith('known'), peerOf: () => peer })
  metrics.tools.limit = limit
  const operations = metrics.operations!
  const listed = new Set(['t'])
  const lanesOf = (tool: string, server: string) =>
    metrics.tools.of(server, tool, (_, name) => listed.has(name)).operations!
  return {
    metrics,
    listed,
    moveTo: (moved: Peer) => void (peer = moved),
    call(tool: string, outcome: Outcome, parts: Partial<CallParts> = {}) {
      const call = toolCall(tool, {}, { server: 's', ...parts })
      operations.served(lanesOf(tool, call.server), call, outcome, 1, 0)
      operations.attempted(lanesOf(tool, call.server), call, outcome, 1)
    },
    ask(method: string, params: Record<string, unknown>) {
      const call = newCall({ method, params, server: 's' })
      operations.served(operations.of(call), call, fine, 1, 0)
    },
    /** Returns the counts of one side, by a label. */
    async counts(side: 'server' | 'client', label: string): Promise<Record<string, number>> {
      const text = await metrics.registry.metrics()
      const rows = text
        .split('\n')
        .filter((row) => row.startsWith(`mcp_${side}_operation_duration_seconds_count`))
      const pairs = rows.map(
        (row) =>
          [new RegExp(`[{,]${label}="([^"]*)"`).exec(row)?.[1] ?? '', Number(row.split(' ').at(-1))] as const,
      )
      const sums: Record<string, number> = {}
      for (const [value, count] of pairs) sums[value] = (sums[value] ?? 0) + count
      return sums
    },
  }
}

test('a server that answers with ever new codes gets sixteen types of errors, and one for the rest', async () => {
  const { call, counts } = counting()
  for (let n = 0; n < 2; n++) for (let code = 1; code <= 40; code++) call('t', rpcError(code))
  call('t', fine)
  const types = await counts('client', 'error_type')
  assert.equal(Object.keys(types).length, 18)
  assert.deepEqual([types['1'], types['16'], types._OTHER, types['']], [2, 2, 48, 1])
  assert.deepEqual(await counts('server', 'error_type'), types)
  // Codes beyond sixteen get no series either.
  assert.equal(Object.keys(await counts('client', 'rpc_response_status_code')).length, 17)
})

test('errors have the types that spans give them', async () => {
  const { call, counts } = counting()
  for (const outcome of [answered('tool_error'), answered('schema_invalid'), failed('attempt_timeout')])
    call('t', outcome)
  call('t', { kind: 'rejected', error: gatewayError('overloaded', 'full'), by: 'bulkhead' })
  const types = { tool_error: 1, schema_invalid: 1, attempt_timeout: 1, overloaded: 1 }
  assert.deepEqual(await counts('server', 'error_type'), types)
})

test('a replica that has another address is another series, and the same one again afterwards', async () => {
  const { call, counts, moveTo } = counting()
  call('t', fine)
  moveTo({ transport: 'tcp', address: 'b', port: 1 })
  call('t', fine)
  moveTo({ transport: 'tcp', address: 'a', port: 1 })
  call('t', fine)
  assert.deepEqual(await counts('client', 'server_address'), { a: 2, b: 1 })
})

test('versions that nobody knows are not told', async () => {
  const { call, counts, moveTo } = counting()
  moveTo({ transport: 'tcp', version: 'made up' })
  call('t', fine, { inbound: { 'mcp-protocol-version': 'made up' } })
  call('t', fine, { inbound: { 'mcp-protocol-version': '2025-06-18' } })
  assert.deepEqual(await counts('server', 'mcp_protocol_version'), { '': 1, '2025-06-18': 1 })
  assert.deepEqual(await counts('client', 'mcp_protocol_version'), { '': 2 })
})

test('prompts have a limit of their own', async () => {
  const { ask, counts } = counting()
  for (let n = 0; n < 600; n++) ask('prompts/get', { name: `known ${n}` })
  ask('prompts/get', { name: 'known 0' })
  ask('prompts/get', { name: 'unknown' })
  ask('prompts/get', {})
  const prompts = await counts('server', 'gen_ai_prompt_name')
  assert.ok(Object.keys(prompts).length <= 522, `${Object.keys(prompts).length} prompts`)
  assert.equal(prompts['known 0'], 2)
  assert.equal(
    Object.values(prompts).reduce((sum, count) => sum + count),
    603,
  )
})

test('a tool without its place, and a removed server, leave no series', async () => {
  const { call, counts, listed, metrics } = counting(1)
  call('t', fine)
  call('t', fine, { server: 'other' })
  listed.delete('t')
  listed.add('u')
  call('u', fine)
  assert.deepEqual(await counts('server', 'gen_ai_tool_name'), { t: 1, u: 1 })
  metrics.forgetServer('other')
  assert.deepEqual(await counts('client', 'gen_ai_tool_name'), { u: 1 })
})
