import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { GatewayError } from '../../src/mesh/errors.ts'
import { TestCaller } from '../support/caller.ts'
import { open, stdioUpstream } from '../support/stdio.ts'
import { until } from '../support/until.ts'

const from = (client: string) => Object.assign(new TestCaller(), { client })

test('a client has its share of the processes of a server, all together what there is, and the gateway its own', async (t) => {
  const refused: string[] = []
  const upstream = stdioUpstream(t, {
    sharing: 'per_session',
    processes: { max: 3, perClient: 2 },
    refused: (limit) => refused.push(limit),
  })
  const [first] = await Promise.all([open(upstream, from('greedy')), open(upstream, from('greedy'))])
  const isFull = (pattern: RegExp) => (error: unknown) =>
    (error as GatewayError).reason === 'overloaded' && pattern.test((error as GatewayError).message)
  const ofClient = /processes of this client \(limit 2, mcpServers\.test\.processes\.perClient\)/
  await assert.rejects(open(upstream, from('greedy')), isFull(ofClient))
  await open(upstream, from('bystander'))
  const ofServer = /processes of this server \(limit 3, mcpServers\.test\.processes\.max\)/
  await assert.rejects(open(upstream, from('another')), isFull(ofServer))
  await open(upstream)
  assert.equal(upstream.processes(), 4)
  assert.deepEqual(refused, ['processes_per_client', 'processes'])
  await first.close()
  await until('the process is gone', () => upstream.processes() === 3)
  await assert.rejects(open(upstream, from('another')), isFull(ofServer))
})

test('starts at the same time are counted before any of them is done', async (t) => {
  const upstream = stdioUpstream(t, { sharing: 'per_session', processes: { max: 8, perClient: 4 } })
  const starts = await Promise.allSettled(Array.from({ length: 20 }, () => open(upstream, from('greedy'))))
  assert.equal(starts.filter(({ status }) => status === 'fulfilled').length, 4)
  assert.equal(upstream.processes(), 4)
})
