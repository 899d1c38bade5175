import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { startReceiver } from '../../registry/health/receiver.ts'
import { specOf, started } from '../experiments/scene.ts'
import { cleanUp, Gateway, type Json } from '../support/gateway.ts'

after(cleanUp)

const gameDay = (webhook: string): Json => ({
  name: 'friday',
  title: 'The server fails <!channel>',
  roles: { lead: 'alice' },
  hypothesis: 'Agents cope.',
  scope: { servers: ['flaky'] },
  communication: { webhook },
  experiments: [{ after: '1h', spec: specOf() }],
})

test('the webhook of a GameDay hears of its begin, pause, resume and end, and no other webhook does', async (t) => {
  const [ops, others] = await Promise.all([startReceiver(t, [503]), startReceiver(t)])
  const webhooks = [
    { type: 'json', name: 'ops', url: ops.url },
    { type: 'slack', name: 'others', url: others.url },
    { type: 'pagerduty', name: 'relay', url: others.url, routingKey: 'KEY' },
  ]
  const { gateway, folder, parts } = await started({ health: { webhooks } })
  const begin = (webhook: string, on = gateway) =>
    on.post<Json & { id: string; findings?: { message: string }[] }>('/admin/gamedays', {
      plan: gameDay(webhook),
      by: 'alice',
    })
  const refused = await begin('relay')
  assert.equal(refused.status, 409)
  assert.match(refused.body.findings![0]!.message, /^communication.webhook: relay pages people/)
  assert.match((await begin('nobody')).body.findings![0]!.message, /has no webhook "nobody"/)

  const { status, body } = await begin('ops')
  assert.equal(status, 202, JSON.stringify(body))
  const order = (what: string, on = gateway) =>
    on.post(`/admin/gamedays/${body.id}/${what}`, { by: 'bob', why: 'lunch' })
  for (const what of ['pause', 'resume', 'stop']) assert.equal((await order(what)).status, 200)
  await ops.came(5)
  assert.deepEqual(
    ops.taken.map(({ body, headers }) => [body.event, headers['idempotency-key']]),
    [
      ['gameday.begun', `${body.id}:begun:0`],
      ['gameday.paused', `${body.id}:paused:1`],
      ['gameday.resumed', `${body.id}:resumed:1`],
      ['gameday.stopped', `${body.id}:stopped:1`],
    ],
  )
  const { gameDay: told } = ops.received.at(-1)!.body as Json & { gameDay: Json }
  assert.equal(told.reason, 'bob stopped it: lunch')
  assert.equal(told.lead, 'alice')
  assert.equal(others.received.length, 0)

  const slack = await begin('others')
  assert.equal(slack.status, 202)
  await others.came(1)
  assert.equal(
    others.received[0]!.body.text,
    ':construction: GameDay friday, "The server fails &lt;!channel&gt;" (staging), has begun, by alice: 1 experiment with faults at flaky; alerts about these servers are expected; lead: alice',
  )
  await gateway.program.kill()
  const again = await Gateway.start(parts, { folder })
  await others.came(2)
  assert.match(
    others.received.at(-1)!.body.text ?? '',
    /^:double_vertical_bar: .* is paused, without faults: the gateway paused it/,
  )
  assert.equal((await again.post(`/admin/gamedays/${slack.body.id}/stop`, { by: 'bob' })).status, 200)
  await others.came(3)
})
